/** One action for many objects: what was sent, what became of it. Pure; `ui/batch.tsx` sends. */
import { FINAL } from "./reducer";
import type { AnyRow, Key } from "./state";

/** `waits`: not sent yet; `done`: the request itself was the action, without a job. */
export type Sent = { readonly state: "waits" | "done" } | { readonly state: "job"; readonly job: number } | { readonly state: "refused"; readonly why: string };

export interface Batch {
  readonly names: readonly Key[];
  readonly sent: ReadonlyMap<Key, Sent>;
  readonly isStopped: boolean;
}

export function startBatch(names: readonly Key[]): Batch {
  return { names, sent: new Map(), isStopped: false };
}

/** Enter the answers of some objects. */
export function answered(batch: Batch, answers: readonly (readonly [Key, Sent])[]): Batch {
  return { ...batch, sent: new Map([...batch.sent, ...answers]) };
}

export const stopped = (batch: Batch): Batch => ({ ...batch, isStopped: true });

/** What a request has answered: the number of its job, or for a cancellation whether it was possible and why not. */
export function sentOf(answer: unknown): Sent {
  if (typeof answer === "number") return { state: "job", job: answer };
  if (Array.isArray(answer) && answer[0] === false) return { state: "refused", why: String(answer[1] ?? "") };
  return { state: "done" };
}

export type Outcome = "waits" | "runs" | "good" | "bad" | "canceled";

export interface Line {
  readonly name: Key;
  readonly job: number | null;
  readonly outcome: Outcome;
  readonly why: string;
}

/** What became of one object; `jobs` are the rows of the table of jobs. */
export function lineOf(batch: Batch, name: Key, jobs: ReadonlyMap<Key, AnyRow>): Line {
  const sent = batch.sent.get(name) ?? { state: "waits" };
  if (sent.state === "refused") return { name, job: null, outcome: "bad", why: sent.why };
  if (sent.state === "done") return { name, job: null, outcome: "good", why: "" };
  if (sent.state !== "job") return { name, job: null, outcome: batch.isStopped ? "canceled" : "waits", why: "" };
  const status = String(jobs.get(String(sent.job))?.["status"] ?? "");
  const outcome = status === "success" ? "good" : status === "error" ? "bad" : status === "canceled" ? "canceled" : "runs";
  return { name, job: sent.job, outcome, why: "" };
}

const ORDER: Readonly<Record<Outcome, number>> = { bad: 0, runs: 1, waits: 2, canceled: 3, good: 4 };

/** All lines, failures first, and how many there are of each. */
export function linesOf(batch: Batch, jobs: ReadonlyMap<Key, AnyRow>): { lines: Line[]; counts: Record<Outcome, number> } {
  const counts: Record<Outcome, number> = { waits: 0, runs: 0, good: 0, bad: 0, canceled: 0 };
  const lines = batch.names.map((name) => lineOf(batch, name, jobs));
  for (const line of lines) counts[line.outcome] += 1;
  return { lines: lines.sort((one, other) => ORDER[one.outcome] - ORDER[other.outcome]), counts };
}

export function isOver(batch: Batch, jobs: ReadonlyMap<Key, AnyRow>): boolean {
  return batch.names.every((name) => {
    const sent = batch.sent.get(name);
    if (!sent || sent.state === "waits") return batch.isStopped;
    return sent.state !== "job" || FINAL.has(String(jobs.get(String(sent.job))?.["status"] ?? ""));
  });
}

/** The chosen objects that the action fits, and the others, which it leaves out. */
export function fitting(fits: ((row: AnyRow) => boolean) | undefined, names: readonly Key[], rows: ReadonlyMap<Key, AnyRow>): { fit: Key[]; left: Key[] } {
  const fit: Key[] = [];
  const left: Key[] = [];
  for (const name of names) {
    const row = rows.get(name);
    (!fits || !row || fits(row) ? fit : left).push(name);
  }
  return { fit, left };
}
