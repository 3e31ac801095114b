/** Values as people read them. */
const UNITS = ["MiB", "GiB", "TiB", "PiB"];
const STEP = 1024;
const PADDED_DIGITS = 12;

export function size(mib: number | undefined | null): string {
  if (mib === undefined || mib === null) return "–";
  let value = mib;
  let unit = 0;
  while (value >= STEP && unit < UNITS.length - 1) {
    value /= STEP;
    unit += 1;
  }
  const digits = value >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

export function percent(part: number, whole: number): number {
  return whole > 0 ? Math.round((100 * part) / whole) : 0;
}

/** Seconds of a time in any form that REST has: `[seconds, microseconds]` or seconds. */
export function secondsOf(time: unknown): number | null {
  if (Array.isArray(time)) return Number(time[0]) + Number(time[1] ?? 0) / 1e6;
  return typeof time === "number" ? time : null;
}

export function clock(time: unknown): string {
  const seconds = secondsOf(time);
  if (seconds === null) return "–";
  return new Date(seconds * 1000).toLocaleString(undefined, {
    month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
  });
}

export function ago(time: unknown, now: number): string {
  const seconds = secondsOf(time);
  if (seconds === null) return "–";
  return `${duration(Math.max(0, now / 1000 - seconds))} ago`;
}

export function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

const keys = new Map<string, string>();
const KEYS_KEPT = 100_000;

/** A text that sorts as people expect: web2 before web10. Kept, because tables sort often. */
export function naturalKey(text: string): string {
  let key = keys.get(text);
  if (key === undefined) {
    key = text.toLowerCase().replace(/[0-9]+/g, (digits) => digits.padStart(PADDED_DIGITS, "0"));
    if (keys.size >= KEYS_KEPT) keys.clear();
    keys.set(text, key);
  }
  return key;
}

export function compare(one: unknown, other: unknown): number {
  if (typeof one === "number" && typeof other === "number") return one - other;
  if (one === other) return 0;
  if (one === undefined || one === null) return 1;
  if (other === undefined || other === null) return -1;
  const [a, b] = [naturalKey(String(one)), naturalKey(String(other))];
  return a < b ? -1 : a > b ? 1 : 0;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** The first label of a host name, which is enough for people to know it. */
export function short(name: unknown): string {
  return String(name ?? "–").split(".", 1)[0] ?? "–";
}
