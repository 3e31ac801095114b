/** Histories as charts need them. Pure. */
import { size } from "../core/format";

export type Values = readonly (number | null)[];

/** The answer of `GET /2/instances/NAME/history`. */
export interface History {
  /** Seconds between two values. */
  readonly step: number;
  readonly times: readonly number[];
  readonly figures: Readonly<Record<string, Values>>;
  /** Names of nodes that did not answer. */
  readonly silent: readonly string[];
}

export const RANGES = { hour: { step: 5, span: 3600 }, day: { step: 60, span: 86_400 }, month: { step: 900, span: 31 * 86_400 } };
export type Range = keyof typeof RANGES;
export const RANGE_NAMES = Object.keys(RANGES) as Range[];

export type Unit = "processors" | "mib" | "bytes" | "requests";

export interface Chart {
  readonly id: "cpu" | "memory" | "disk" | "requests" | "network";
  readonly figures: readonly string[];
  readonly unit: Unit;
}

export const CHARTS: readonly Chart[] = [
  { id: "cpu", figures: ["cpu"], unit: "processors" },
  { id: "memory", figures: ["memory", "guest_memory"], unit: "mib" },
  { id: "disk", figures: ["disk_read", "disk_write"], unit: "bytes" },
  { id: "requests", figures: ["disk_reads", "disk_writes"], unit: "requests" },
  { id: "network", figures: ["net_in", "net_out"], unit: "bytes" },
];

const isKnown = (value: number | null): value is number => value !== null;

/** The figures of a chart that have a value anywhere. */
export function shownFigures(chart: Chart, history: History): string[] {
  return chart.figures.filter((figure) => history.figures[figure]?.some(isKnown));
}

/** Return the history with later values added, limited to the last `span` seconds. New values replace old ones. */
export function joined(old: History, added: History, span: number): History {
  if (old.step !== added.step) return added;
  const first = added.times[0];
  if (first === undefined) return { ...old, silent: added.silent };
  const end = added.times[added.times.length - 1] as number;
  const from = old.times.findIndex((time) => time > end - span);
  const until = old.times.findIndex((time) => time >= first);
  const [begin, cut] = [from < 0 ? old.times.length : from, until < 0 ? old.times.length : until];
  const names = new Set([...Object.keys(old.figures), ...Object.keys(added.figures)]);
  const missing = (count: number): Values => Array<null>(Math.max(0, count)).fill(null);
  const figures = Object.fromEntries([...names].map((name) => [name, [
    ...(old.figures[name]?.slice(begin, cut) ?? missing(cut - begin)),
    ...(added.figures[name] ?? missing(added.times.length)),
  ]]));
  return { step: old.step, times: [...old.times.slice(begin, cut), ...added.times], figures, silent: added.silent };
}

/** Return times and columns for the plot. A missing step is a row without values, so that the line has a gap. */
export function aligned(history: History, figures: readonly string[]): (number | null)[][] {
  const times: number[] = [];
  const columns: (number | null)[][] = figures.map(() => []);
  let before: number | undefined;
  history.times.forEach((time, at) => {
    if (before !== undefined && time - before > history.step) {
      times.push(before + history.step);
      for (const column of columns) column.push(null);
    }
    times.push(time);
    figures.forEach((figure, index) => columns[index]?.push(history.figures[figure]?.[at] ?? null));
    before = time;
  });
  return [times, ...columns];
}

export interface Summary {
  readonly latest: number | null;
  readonly mean: number | null;
  readonly greatest: number | null;
}

export function summary(values: Values): Summary {
  const known = values.filter(isKnown);
  if (known.length === 0) return { latest: null, mean: null, greatest: null };
  const mean = known.reduce((sum, one) => sum + one, 0) / known.length;
  return { latest: values[values.length - 1] ?? null, mean, greatest: known.reduce((most, one) => Math.max(most, one)) };
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A value as people read it. */
export function shown(value: number | null | undefined, unit: Unit): string {
  if (value === null || value === undefined) return "–";
  if (unit === "processors") return `${Math.round(value * 1000) / 10} %`;
  if (unit === "mib") return size(Math.round(value * 10) / 10);
  if (unit === "requests") return `${value >= 100 ? Math.round(value) : Math.round(value * 10) / 10}/s`;
  let [rest, at] = [value, 0];
  while (rest >= 1024 && at < BYTE_UNITS.length - 1) [rest, at] = [rest / 1024, at + 1];
  return `${at === 0 || rest >= 100 ? Math.round(rest) : rest.toFixed(1)} ${BYTE_UNITS[at]}/s`;
}

/** At most `count` rows for a table: the mean of each figure over equal parts of the time, the latest first. */
export function tableRows(history: History, figures: readonly string[], count: number): { time: number; values: (number | null)[] }[] {
  const length = Math.ceil(history.times.length / count);
  const rows = [];
  for (let end = history.times.length; end > 0; end -= length) {
    const begin = Math.max(0, end - length);
    rows.push({
      time: history.times[begin] as number,
      values: figures.map((figure) => summary(history.figures[figure]?.slice(begin, end) ?? []).mean),
    });
  }
  return rows;
}

/** Distances of marks at an axis, for values with a binary unit and for others. */
export function marks(unit: Unit): number[] {
  if (unit === "processors" || unit === "requests") {
    return [-2, -1, 0, 1, 2, 3, 4, 5].flatMap((power) => [1, 2, 5].map((one) => Number((one * 10 ** power).toPrecision(1))));
  }
  return Array.from({ length: 45 }, (_, power) => 2 ** power);
}
