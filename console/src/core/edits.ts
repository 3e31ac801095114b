/** Changes of an object's settings before they are sent: pure. `GET …/settings` has the present values. */
import { size } from "./format";
import { t } from "../texts/en";

export type Path = readonly (string | number)[];

export interface Setting {
  readonly path: Path;
  readonly title: string;
  readonly name: string;
  readonly doc?: string;
  readonly form?: "text" | "flag" | "integer" | "size" | "number";
  readonly value: unknown;
  readonly source?: string;
  readonly inherited?: unknown;
  readonly inherited_from?: string;
  /** The value in a request that removes the object's own; absent: it cannot be removed. */
  readonly reset?: unknown;
  readonly choices?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly policy?: readonly [number, number];
  readonly applies?: "now" | "hotplug" | "start";
}

export interface Settings {
  readonly kind: string;
  readonly name: string;
  readonly serial_no: number;
  readonly tags: readonly string[];
  readonly settings: readonly Setting[];
  readonly bases?: readonly { readonly path: Path; readonly value: unknown }[];
  readonly open?: readonly string[];
}

/** What a person has entered, by the key of the setting: a text, or null to remove the object's own value. */
export type Entered = ReadonlyMap<string, string | null>;

export interface Change {
  readonly setting: Setting;
  readonly isReset: boolean;
  /** The value in the request. */
  readonly sent: unknown;
  readonly before: string;
  readonly after: string;
  readonly problem: string | null;
  readonly warning: string | null;
}

export const keyOf = (path: Path): string => path.join("/");

const UNITS: Readonly<Record<string, number>> = { "": 1, m: 1, g: 1024, t: 1024 * 1024 };
const SIZE = /^([0-9]+(?:\.[0-9]+)?)\s*([mgt]?)(?:i?b)?$/i;

/** MiB of `512`, `512m`, `1.5 GiB`; null for another text. */
export function mibOf(text: string): number | null {
  const [, number, unit = ""] = SIZE.exec(text.trim()) ?? [];
  return number === undefined ? null : Math.round(Number(number) * (UNITS[unit.toLowerCase()] ?? 1));
}

/** A value as people read it. */
export function shown(setting: Setting, value: unknown): string {
  if (value === "" || value === null || value === undefined) return t.edit.nothing;
  if (setting.form === "size") return size(Number(value));
  if (typeof value === "boolean") return value ? t.plain.yes : t.plain.no;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A value as text of its field. */
export function textIn(setting: Setting, value: unknown): string {
  if (value === null || value === undefined) return "";
  if (setting.form === "flag") return value ? "true" : "false";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Read the text of a field: the value, or what is wrong with it. */
export function valueOf(setting: Setting, text: string): { value: unknown; problem: string | null } {
  const wrong = (problem: string) => ({ value: null, problem });
  const right = (value: unknown) => ({ value, problem: null });
  if (setting.form === "flag") return right(text === "true");
  if (setting.choices?.length) return right(setting.choices.find((one) => String(one) === text) ?? text);
  if (setting.form === undefined || setting.form === "text") return right(text);
  const number = setting.form === "size" ? mibOf(text) : text.trim() === "" ? NaN : Number(text);
  if (number === null) return wrong(t.edit.notSize);
  if (Number.isNaN(number)) return wrong(t.edit.notNumber);
  if (setting.form === "integer" && !Number.isInteger(number)) return wrong(t.edit.notWhole);
  if (setting.minimum !== undefined && number < setting.minimum) return wrong(t.edit.atLeast(shown(setting, setting.minimum)));
  if (setting.maximum !== undefined && number > setting.maximum) return wrong(t.edit.atMost(shown(setting, setting.maximum)));
  return right(number);
}

/** The bounds of a setting as a text beside its field; empty without any. */
export function boundsOf(setting: Setting): string {
  const { policy, minimum, maximum } = setting;
  if (policy) return t.edit.byPolicy(shown(setting, policy[0]), shown(setting, policy[1]));
  if (minimum !== undefined && maximum !== undefined) return t.edit.from(shown(setting, minimum), shown(setting, maximum));
  return minimum !== undefined ? t.edit.atLeast(shown(setting, minimum)) : "";
}

/** The layer that a value comes from, in words. */
export function originOf(setting: Setting): string {
  const source = setting.source ?? "own";
  if (source === "own") return setting.inherited_from ? t.edit.own : "";
  return t.edit.origins[source] ?? source;
}

/** What differs from the present values. */
export function changesOf(settings: readonly Setting[], entered: Entered): Change[] {
  const found: Change[] = [];
  for (const setting of settings) {
    const text = entered.get(keyOf(setting.path));
    if (text === undefined) continue;
    const before = shown(setting, setting.value);
    const isOwn = (setting.source ?? "own") === "own";
    if (text === null) {
      if (!isOwn || setting.reset === undefined) continue;
      const after = setting.inherited_from ? `${shown(setting, setting.inherited)} (${t.edit.origins[setting.inherited_from] ?? setting.inherited_from})` : t.edit.nothing;
      found.push({ setting, isReset: true, sent: setting.reset, before, after, problem: null, warning: null });
      continue;
    }
    const { value, problem } = valueOf(setting, text);
    if (!problem && value === setting.value && isOwn) continue;
    // An emptied text that has no layer below is a removal.
    const isRemoval = value === "" && setting.reset !== undefined && !setting.inherited_from;
    if (isRemoval && setting.value === "") continue;
    found.push({
      setting, isReset: isRemoval, sent: isRemoval ? setting.reset : value, before, after: problem ? text : shown(setting, value), problem,
      warning: problem ? null : outside(setting, value),
    });
  }
  return found;
}

function outside(setting: Setting, value: unknown): string | null {
  if (!setting.policy || typeof value !== "number") return null;
  const [low, high] = setting.policy;
  return value < low || value > high ? t.edit.outside(shown(setting, low), shown(setting, high)) : null;
}

/** The body of the request: each value at its path; a part with a base is sent as a whole. */
export function bodyOf(settings: Settings, changes: readonly Change[]): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  const nics = new Map<number, Record<string, unknown>>();
  for (const { setting, sent } of changes) {
    const [part, index, name] = setting.path;
    if (part === "nics") {
      const nic = nics.get(Number(index)) ?? {};
      nics.set(Number(index), { ...nic, [String(name)]: sent });
      continue;
    }
    const base = settings.bases?.find((one) => one.path.every((word, at) => word === setting.path[at]));
    if (base && at(body, base.path) === undefined) put(body, base.path, structuredClone(base.value));
    put(body, setting.path, sent);
  }
  if (nics.size) body["nics"] = [...nics].map(([index, params]) => ["modify", index, params]);
  return body;
}

function at(body: unknown, path: Path): unknown {
  return path.reduce<unknown>((found, word) => (found as Record<string | number, unknown> | undefined)?.[word], body);
}

function put(body: Record<string, unknown>, path: Path, value: unknown): void {
  let part = body as Record<string | number, unknown>;
  for (const word of path.slice(0, -1)) {
    part[word] ??= {};
    part = part[word] as Record<string | number, unknown>;
  }
  part[path[path.length - 1] as string] = value;
}

export interface Guest {
  readonly isRunning: boolean;
  /** Whether the request changes the running guest where that is possible. */
  readonly isHot: boolean;
}

/** When a change takes effect, in words; `guest` is null for objects other than instances. */
export function effectOf(setting: Setting, guest: Guest | null): string {
  const applies = setting.applies ?? "now";
  if (applies === "now") return t.edit.now;
  if (!guest) return t.edit.eachAtStart;
  if (!guest.isRunning) return t.edit.whenStarted;
  return applies === "hotplug" && guest.isHot ? t.edit.hot : t.edit.atStart;
}

/** Whether a running guest must be restarted to get the change. */
export function waitsForStart(setting: Setting, guest: Guest | null): boolean {
  return Boolean(guest?.isRunning) && (setting.applies === "start" || (setting.applies === "hotplug" && !guest?.isHot));
}

export interface Meanwhile {
  readonly setting: Setting;
  readonly before: string;
  readonly now: string;
  /** The person here has entered something for it, too. */
  readonly isEntered: boolean;
}

/** What others have changed since the editing began. */
export function meanwhileOf(began: Settings, now: Settings, entered: Entered): Meanwhile[] {
  const before = new Map(began.settings.map((one) => [keyOf(one.path), one]));
  const found: Meanwhile[] = [];
  for (const setting of now.settings) {
    const old = before.get(keyOf(setting.path));
    if (old && JSON.stringify(old.value) === JSON.stringify(setting.value) && (old.source ?? "own") === (setting.source ?? "own")) continue;
    found.push({ setting, before: old ? shown(old, old.value) : t.edit.nothing, now: shown(setting, setting.value), isEntered: entered.has(keyOf(setting.path)) });
  }
  return found;
}

/** Tags to add and to remove, from a text with commas or spaces. */
export function tagChanges(present: readonly string[], text: string): { added: string[]; removed: string[] } {
  const wanted = tagsIn(text);
  return { added: wanted.filter((tag) => !present.includes(tag)), removed: present.filter((tag) => !wanted.includes(tag)) };
}

export function tagsIn(text: string): string[] {
  return [...new Set(text.split(/[,\s]+/).filter(Boolean))];
}
