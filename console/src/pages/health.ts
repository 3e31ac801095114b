/** What the tables and the survey say about the cluster: what needs attention, and how much there is of everything. */
import { plural } from "../core/format";
import { href } from "../core/route";
import type { AnyRow } from "../core/state";

export interface Finding {
  readonly tone: "warn" | "bad";
  readonly text: string;
  readonly href: string;
}

interface Check {
  readonly page: "nodes" | "instances";
  readonly filter: string;
  readonly tone: Finding["tone"];
  readonly isHit: (row: AnyRow) => boolean;
  readonly text: (count: number, all: number) => string;
}

/** The answer of `GET /2/overview`. */
export interface Survey {
  readonly groups: readonly { readonly name: string; readonly nodes: number; readonly n1_violations: readonly string[] }[];
  readonly memory: { readonly total: number; readonly free: number; readonly available: number; readonly reserved: number };
  readonly disk: { readonly total: number; readonly free: number; readonly available: number };
  readonly cpus: { readonly total: number; readonly virtual: number; readonly used: number };
  readonly standard: {
    readonly memory: number; readonly disk: number; readonly vcpus: number; readonly template: string; readonly fits: number;
    readonly is_limit: boolean; readonly limited_by: string; readonly closed_groups: readonly string[];
  };
  readonly verify: Verified | null;
}

export interface Verified {
  readonly ended: number;
  readonly errors: number;
  readonly warnings: number;
  readonly findings: readonly { readonly severity: "error" | "warning"; readonly code: string | null; readonly kind: string; readonly name: string;
    readonly text: string; readonly job: number }[];
}

/** The answer of `GET /2/ha-status`. */
export interface Recovery {
  readonly nodes: readonly { readonly name: string; readonly state: string; readonly why: string; readonly why_unarmed: string }[];
  readonly instances: readonly { readonly name: string; readonly state: string; readonly why: string }[];
  readonly alarms: readonly string[];
  readonly limits: readonly string[];
}

const CHECKS: readonly Check[] = [
  {
    page: "nodes", filter: "offline", tone: "bad", isHit: (row) => row["offline"] === true,
    text: (count, all) => `${count} of ${plural(all, "node")} ${count === 1 ? "is" : "are"} offline`,
  },
  {
    page: "nodes", filter: "not offline and not mtotal", tone: "bad", isHit: (row) => !row["offline"] && row["vm_capable"] !== false && !row["mtotal"],
    text: (count) => `${plural(count, "node")} ${count === 1 ? "does" : "do"} not answer`,
  },
  {
    page: "nodes", filter: "drained", tone: "warn", isHit: (row) => row["drained"] === true,
    text: (count) => `${plural(count, "node")} ${count === 1 ? "is" : "are"} drained`,
  },
  {
    page: "nodes", filter: "maintenance", tone: "warn", isHit: (row) => row["maintenance"] === true,
    text: (count) => `${plural(count, "node")} in maintenance`,
  },
  {
    page: "instances", filter: "status =~ ^ERROR", tone: "bad", isHit: (row) => String(row["status"]).startsWith("ERROR"),
    text: (count) => `${plural(count, "instance")} ${count === 1 ? "is" : "are"} not in the requested state`,
  },
];

/** What needs attention, worst first, each with the page that shows it. */
export function findings(
  nodes: readonly AnyRow[], instances: readonly AnyRow[], survey: Survey | null, recovery: Recovery | null,
): Finding[] {
  const found: Finding[] = [];
  for (const check of CHECKS) {
    const rows = check.page === "nodes" ? nodes : instances;
    const count = rows.filter(check.isHit).length;
    if (count > 0) found.push({ tone: check.tone, text: check.text(count, rows.length), href: href([check.page], { q: check.filter }) });
  }
  found.push(...ofRecovery(recovery), ...ofSurvey(survey));
  return found.sort((one, other) => Number(other.tone === "bad") - Number(one.tone === "bad"));
}

function ofRecovery(recovery: Recovery | null): Finding[] {
  const found: Finding[] = [];
  const waiting = recovery?.instances.filter((one) => one.state === "queued" || one.state === "given up").length ?? 0;
  if (waiting > 0) found.push({ tone: "bad", text: `${plural(waiting, "instance")} ${waiting === 1 ? "waits" : "wait"} for recovery`, href: "#recovery" });
  const alarms = recovery?.alarms.length ?? 0;
  if (alarms > 0) found.push({ tone: "bad", text: `${plural(alarms, "alarm")} of automatic recovery`, href: "#recovery" });
  return found;
}

/** Groups with nodes, and those of them that survive the loss of any node. */
export function redundancy(survey: Survey): { holds: number; all: number } {
  const groups = survey.groups.filter((one) => one.nodes > 0);
  return { holds: groups.filter((one) => one.n1_violations.length === 0).length, all: groups.length };
}

function ofSurvey(survey: Survey | null): Finding[] {
  if (!survey) return [];
  const found: Finding[] = [];
  const { holds, all } = redundancy(survey);
  if (holds < all) found.push({ tone: "warn", text: `N+1 holds in ${holds} of ${plural(all, "group")}`, href: href(["map"], { by: "slack" }) });
  const errors = survey.verify?.errors ?? 0;
  if (errors > 0) found.push({ tone: "bad", text: `${plural(errors, "error")} found by verify`, href: "#verify" });
  return found;
}

export interface Totals {
  readonly memory: { whole: number; free: number; host: number };
  readonly disk: { whole: number; free: number };
  readonly cpus: { whole: number; allocated: number };
}

/** Sums over the nodes that are in service, in MiB. */
export function totals(nodes: readonly AnyRow[], instances: readonly AnyRow[]): Totals {
  const sum = { memory: { whole: 0, free: 0, host: 0 }, disk: { whole: 0, free: 0 }, cpus: { whole: 0, allocated: 0 } };
  const number = (row: AnyRow, name: string) => Number(row[name] ?? 0);
  for (const row of nodes) {
    if (row["offline"]) continue;
    sum.memory.whole += number(row, "mtotal");
    sum.memory.free += number(row, "mfree");
    sum.memory.host += Math.min(number(row, "mnode"), number(row, "mtotal") - number(row, "mfree"));
    sum.disk.whole += number(row, "dtotal");
    sum.disk.free += number(row, "dfree");
    sum.cpus.whole += number(row, "ctotal");
  }
  for (const row of instances) if (row["admin_state"] === "up") sum.cpus.allocated += number(row, "be/vcpus");
  return sum;
}
