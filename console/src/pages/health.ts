/** What the tables say about the cluster: what needs attention, and how much there is of everything. */
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
export function findings(nodes: readonly AnyRow[], instances: readonly AnyRow[]): Finding[] {
  const found: Finding[] = [];
  for (const check of CHECKS) {
    const rows = check.page === "nodes" ? nodes : instances;
    const count = rows.filter(check.isHit).length;
    if (count > 0) found.push({ tone: check.tone, text: check.text(count, rows.length), href: href([check.page], { q: check.filter }) });
  }
  return found.sort((one, other) => Number(other.tone === "bad") - Number(one.tone === "bad"));
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
