/** Incremental backups by instance and directory: pure. */
import { compare } from "./format";

/** A backup, as `GET /2/backups` returns it; sizes in MiB, null for an unusable manifest. */
export interface Point {
  readonly node: string;
  readonly target: string;
  readonly instance: string;
  readonly backup: string;
  readonly ctime: number | null;
  readonly parent: string | null;
  readonly consistency: string | null;
  readonly disk_size: number | null;
  readonly stored: number | null;
  /** What its last check or drill has shown: `good`, `failed` or `unproven`; null for an unusable manifest. */
  readonly proof: string | null;
  readonly checked: number | null;
  readonly drilled: number | null;
  readonly failure: string | null;
  readonly problem: string | null;
}

export interface Listing {
  readonly points: readonly Point[];
  /** Nodes that did not answer in time. */
  readonly silent: readonly string[];
  readonly offline: readonly string[];
}

/** The backups of an instance in one directory of one node, the newest first. */
export interface Series {
  readonly key: string;
  readonly instance: string;
  readonly node: string;
  readonly target: string;
  readonly points: readonly Point[];
  readonly stored: number;
  readonly problems: number;
  /** No other directory has backups of the instance, so a request need not name this one. */
  readonly isOnly: boolean;
}

/** The series by the names of their instances. */
export function seriesOf(points: readonly Point[]): Series[] {
  const found = new Map<string, Point[]>();
  const places = new Map<string, number>();
  for (const point of points) {
    const key = `${point.instance} ${point.node} ${point.target}`;
    const known = found.get(key);
    if (known) known.push(point);
    else {
      found.set(key, [point]);
      places.set(point.instance, (places.get(point.instance) ?? 0) + 1);
    }
  }
  return [...found].map(([key, all]) => {
    const [{ instance, node, target }] = all as [Point];
    return {
      key, instance, node, target, points: all.sort((one, other) => compare(other.backup, one.backup)),
      stored: all.reduce((sum, one) => sum + (one.stored ?? 0), 0), problems: all.filter((one) => one.problem !== null || one.proof === "failed").length,
      isOnly: places.get(instance) === 1,
    };
  }).sort((one, other) => compare(one.instance, other.instance) || compare(one.node, other.node) || compare(one.target, other.target));
}

/** Whether a series has all words in one of its texts. */
export function hasWords(series: Series, text: string): boolean {
  const all = `${series.instance} ${series.node} ${series.target}`.toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

/** The fields of a request about a series: it names the directory only where there are several. */
export function fixedOf(series: Series): Readonly<Record<string, string>> {
  const { instance, node, target, isOnly } = series;
  return isOnly ? { instance } : { instance, node, target };
}
