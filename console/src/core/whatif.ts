/** Simulations: the request that a form makes, and the cluster at a moment of a report. Pure. */
import type { AnyRow } from "./state";

/** What a person asks: which nodes fail, for how long (empty: for good), and under which policy. */
export interface Question {
  readonly nodes: readonly string[];
  readonly back: string;
  readonly isProtected: boolean;
  readonly seeds: number;
}

export interface Simulation {
  readonly id: string;
  readonly name: string;
  readonly state: "running" | "done" | "failed";
  readonly began: number;
  readonly seeds: number;
  readonly done: number;
  readonly error: string;
}

interface Span { readonly began: number; readonly ended: number }
export interface NodeSpan extends Span { readonly node: string; readonly state: string }
export interface Outage extends Span { readonly instance: string; readonly node: string; readonly is_over: boolean; readonly new_node: string }
export interface Entry { readonly at: number; readonly kind: string; readonly text: string }
export interface Spread { readonly min: number; readonly p50: number; readonly p90: number; readonly max: number }

export interface Run {
  readonly seed: number;
  readonly ended: number;
  readonly figures: Readonly<Record<string, number>>;
  readonly first_misfit: { readonly what: string; readonly why: string } | null;
  readonly node_states: readonly NodeSpan[];
  readonly outages: readonly Outage[];
  readonly still_down: readonly { readonly instance: string; readonly why: string }[];
  readonly timeline: readonly Entry[];
}

export interface Report {
  readonly steps: readonly string[];
  readonly seeds: readonly number[];
  readonly notes: readonly string[];
  readonly distribution: Readonly<Record<string, Spread>>;
  readonly run: Run;
}

/** The status of an instance that a simulation has lost. */
const DOWN = "ERROR_down";
const RUNNING = "running";

/** The body of the request; nodes fail after a minute, so that the picture begins with the cluster as it is. */
export function requestOf({ nodes, back, isProtected, seeds }: Question) {
  const failure = { at: "1m", "fail-node": [...nodes], ...(back.trim() ? { for: back.trim() } : {}) };
  const policy = isProtected ? [{ at: "0s", set: { recovery: "failover" } }] : [];
  return { scenario: { name: nodes.join(", "), steps: [...policy, failure] }, seeds };
}

/** The same as a command. */
export function commandOf({ nodes, back, isProtected, seeds }: Question): string {
  const policy = isProtected ? " --set recovery=failover@0s" : "";
  return `gnt-whatif cluster${policy} --fail-node ${nodes.join(",")}@1m${back.trim() ? `/${back.trim()}` : ""}${seeds > 1 ? ` --seeds ${seeds}` : ""}`;
}

/** The rows of nodes and instances at `at` seconds of a run. Rows that do not differ are the same objects. */
export function momentOf(run: Run, at: number, nodes: Iterable<AnyRow>, instances: Iterable<AnyRow>): { nodes: AnyRow[]; instances: AnyRow[] } {
  const lost = new Set(run.node_states.filter((one) => covers(one, at)).map((one) => one.node));
  const last = new Map<string, Outage>();
  for (const one of run.outages) if (one.began <= at) last.set(one.instance, one);
  return {
    nodes: [...nodes].map((row) => (Boolean(row["offline"]) === lost.has(String(row["name"])) ? row : { ...row, offline: lost.has(String(row["name"])) })),
    instances: [...instances].map((row) => {
      const outage = last.get(String(row["name"]));
      if (!outage) return row;
      const isDown = !outage.is_over || at < outage.ended;
      return { ...row, pnode: isDown ? outage.node : outage.new_node || outage.node, status: isDown ? DOWN : RUNNING };
    }),
  };
}

function covers(span: Span, at: number): boolean {
  return span.began <= at && at < span.ended;
}

/** The last entries of the timeline at a moment, the newest first. */
export function saidBy(run: Run, at: number, count: number): Entry[] {
  return run.timeline.filter((one) => one.at <= at).slice(-count).reverse();
}

/** Where the picture begins, in seconds: shortly before the first event. */
export function firstMoment(run: Run): number {
  const first = Math.min(...run.outages.map((one) => one.began), ...run.node_states.map((one) => one.began), run.ended);
  return Math.max(0, first - 5);
}

/** A figure of the report as text: the middle and the greatest of several runs, or the value of the only one. */
export function figureOf(report: Report, name: string, shown: (value: number) => string): string {
  const spread = report.distribution[name];
  const value = report.run.figures[name] ?? 0;
  if (!spread || shown(spread.min) === shown(spread.max)) return shown(value);
  return `${shown(spread.p50)} (${shown(spread.min)} – ${shown(spread.max)})`;
}
