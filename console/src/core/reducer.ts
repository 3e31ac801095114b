/** Every change of the page's state, as one pure function of the state and what happened. */
import { keyOf, initialState, KINDS } from "./state";
import type { Sending } from "./images";
import type { AnyRow, Key, Kind, Link, Notice, Progress, Session, State, Table } from "./state";
import { t } from "../texts/en";

/** An event of the stream, as `GET /2/events` sends it. */
export interface StreamEvent {
  readonly number: string | null;
  readonly kind: string;
  readonly content: AnyRow;
}

export type Action =
  | { type: "signed-in"; session: Session }
  | { type: "signed-out" }
  | { type: "link"; link: Link }
  | { type: "events"; events: readonly StreamEvent[] }
  | { type: "wanted"; kind: Kind; fields: readonly string[] }
  | { type: "requested"; kind: Kind; keys: readonly Key[] | null }
  | { type: "rows"; kind: Kind; keys: readonly Key[] | null; rows: readonly AnyRow[] }
  | { type: "not-loaded"; kind: Kind; keys: readonly Key[] | null; problem: string }
  | { type: "cluster"; facts: AnyRow }
  | { type: "submitted"; job: number }
  | { type: "notice"; tone: Notice["tone"]; text: string }
  | { type: "dismissed"; id: number }
  | { type: "upload"; upload: Sending }
  | { type: "upload-gone"; id: string };

export const FINAL: ReadonlySet<string> = new Set(["success", "error", "canceled"]);
const NOTICES_SHOWN = 4;
const SUMMARY = /^([A-Z]+)_[A-Z_]+\((.+)\)$/;
const KIND_OF_WORD: Readonly<Record<string, Kind>> = {
  INSTANCE: "instance", BACKUP: "instance", NODE: "node", GROUP: "group", NETWORK: "network",
};
const OF_BACKUPS = /^BACKUP_(SAVE|PRUNE|CHECK|DRILL|EXPORT|REMOVE|SCHEDULE_[A-Z_]+)\b/;
/** A new instance may give its node a copy of its image. */
const OF_IMAGES = /^(IMAGE_[A-Z_]+|INSTANCE_CREATE|INSTANCE_REINSTALL)\b/;

export function reduce(state: State, action: Action): State {
  switch (action.type) {
    case "signed-in":
      return { ...state, session: action.session };
    case "signed-out":
      return { ...initialState(), session: null };
    case "link":
      return changedLink(state, action.link);
    case "events":
      return action.events.reduce(applied, state);
    case "wanted":
      return withTable(state, action.kind, (table) => wanted(table, action.fields));
    case "requested":
      return withTable(state, action.kind, (table) => requested(table, action.keys));
    case "rows":
      return withTable(state, action.kind, (table) => filled(action.kind, table, action.keys, action.rows));
    case "not-loaded":
      return withTable(state, action.kind, (table) => again(table, action.keys, action.problem));
    case "cluster":
      return { ...state, cluster: action.facts, isClusterDue: false };
    case "submitted":
      return { ...state, own: new Set(state.own).add(String(action.job)) };
    case "notice":
      return noticed(state, action.tone, action.text);
    case "dismissed":
      return { ...state, notices: state.notices.filter((one) => one.id !== action.id) };
    case "upload":
      return { ...state, uploads: new Map(state.uploads).set(action.upload.id, action.upload) };
    case "upload-gone":
      return { ...state, uploads: new Map([...state.uploads].filter(([id]) => id !== action.id)) };
  }
}

function changedLink(state: State, link: Link): State {
  if (link === state.link) return state;
  const wasLost = link === "live" && (state.link === "lost" || state.link === "offline");
  return { ...state, link, resumed: state.resumed + (wasLost ? 1 : 0) };
}

function withTable(state: State, kind: Kind, change: (table: Table) => Table): State {
  const before = state.tables[kind];
  const after = change(before);
  return before === after ? state : { ...state, tables: { ...state.tables, [kind]: after } };
}

function wanted(table: Table, fields: readonly string[]): Table {
  const missing = fields.filter((name) => !table.fields.includes(name));
  if (missing.length > 0) return { ...table, fields: [...table.fields, ...missing], isDue: true };
  return table.isLoaded || table.isDue ? table : { ...table, isDue: true };
}

function requested(table: Table, keys: readonly Key[] | null): Table {
  if (keys === null) return { ...table, isDue: false, isAsked: true, stale: new Set() };
  const stale = new Set(table.stale);
  for (const key of keys) stale.delete(key);
  return { ...table, stale };
}

/** Enter rows that were requested by key, or all; a requested object without a row is gone. */
function filled(kind: Kind, table: Table, keys: readonly Key[] | null, found: readonly AnyRow[]): Table {
  const rows = new Map(keys === null ? [] : table.rows);
  for (const key of keys ?? []) rows.delete(key);
  if (keys === null) {
    for (const row of found) rows.set(keyOf(kind, row), row);
    return { ...table, rows, isAsked: false, isLoaded: true, problem: null };
  }
  for (const row of found) rows.set(keyOf(kind, row), row);
  return { ...table, rows, problem: null };
}

function again(table: Table, keys: readonly Key[] | null, problem: string): Table {
  if (keys === null) return { ...table, problem, isDue: true, isAsked: false };
  return { ...table, problem, stale: new Set([...table.stale, ...keys]) };
}

function noticed(state: State, tone: Notice["tone"], text: string, job?: number): State {
  const notice: Notice = { id: state.noticeCount + 1, tone, text, ...(job === undefined ? {} : { job }) };
  return { ...state, noticeCount: notice.id, notices: [...state.notices, notice].slice(-NOTICES_SHOWN) };
}

// Events

function applied(state: State, event: StreamEvent): State {
  const next = changed(state, event);
  return event.number === null ? next : { ...next, last: event.number };
}

function changed(state: State, event: StreamEvent): State {
  switch (event.kind) {
    case "reset":
      return resetTables(state);
    case "job":
      return jobChanged(state, event.content);
    case "instance":
      return instanceChanged(state, event.content);
    case "node":
    case "group":
    case "network":
      return objectChanged(state, event.kind, event.content);
    case "cluster":
      return { ...state, isClusterDue: true };
    default:
      return state;
  }
}

/** Request everything again: the events in between are not known. */
function resetTables(state: State): State {
  const due = KINDS.map((kind) => {
    const table = state.tables[kind];
    return [kind, { ...table, isDue: table.isLoaded || table.isDue, stale: new Set<Key>() }];
  });
  return { ...state, isClusterDue: true, backups: state.backups + 1, images: state.images + 1, tables: Object.fromEntries(due) as Record<Kind, Table> };
}

function objectChanged(state: State, kind: Kind, content: AnyRow): State {
  const name = String(content["name"]);
  if (content["change"] === "removed") return withTable(state, kind, (table) => without(table, name));
  return stale(state, kind, [name]);
}

/** Its nodes have changed, too: their free memory and counts of instances. */
function instanceChanged(state: State, content: AnyRow): State {
  const row = state.tables.instance.rows.get(String(content["name"]));
  const nodes = row ? [row["pnode"], ...((row["snodes"] as string[] | undefined) ?? [])] : [];
  return stale(objectChanged(state, "instance", content), "node", nodes.filter(Boolean).map(String));
}

function without(table: Table, key: Key): Table {
  if (!table.rows.has(key) && !table.stale.has(key)) return table;
  const rows = new Map(table.rows);
  const left = new Set(table.stale);
  rows.delete(key);
  left.delete(key);
  return { ...table, rows, stale: left };
}

function stale(state: State, kind: Kind, keys: readonly Key[]): State {
  if (keys.length === 0) return state;
  return withTable(state, kind, (table) =>
    table.isLoaded || table.isAsked || table.rows.size > 0 ? { ...table, stale: new Set([...table.stale, ...keys]) } : table,
  );
}

function jobChanged(state: State, content: AnyRow): State {
  const key = String(content["id"]);
  if (content["progress"]) return progressed(state, key, content["progress"] as AnyRow);
  const status = String(content["status"]);
  let next = withTable(state, "job", (table) => shownAtOnce(table, key, content));
  next = stale(next, "job", [key]);
  if (!FINAL.has(status)) return next;
  next = objectsOf(content).reduce((found, [kind, name]) => stale(found, kind, [name]), ended(next, key));
  if (hasChanged(content, OF_BACKUPS)) next = { ...next, backups: next.backups + 1 };
  if (hasChanged(content, OF_IMAGES)) next = { ...next, images: next.images + 1 };
  return state.own.has(key) ? finishedOwn(next, key, status, content) : next;
}

function hasChanged(job: AnyRow, what: RegExp): boolean {
  return job["dry_run"] !== true && ((job["summary"] as string[] | undefined) ?? []).some((one) => what.test(one));
}

/** The event has what changed most visibly, so the table need not wait for the row. */
function shownAtOnce(table: Table, key: Key, content: AnyRow): Table {
  if (!table.isLoaded) return table;
  const { change: _change, ...values } = content;
  return { ...table, rows: new Map(table.rows).set(key, { ...table.rows.get(key), ...values }) };
}

function progressed(state: State, key: Key, given: AnyRow): State {
  const progress: Progress = {
    percent: (given["percent"] as number | undefined) ?? null,
    text: String(given["text"] ?? ""),
    rate: (given["rate"] as number | undefined) ?? null,
    leftS: (given["left_s"] as number | undefined) ?? null,
  };
  return { ...state, progress: new Map(state.progress).set(key, progress) };
}

function ended(state: State, key: Key): State {
  if (!state.progress.has(key)) return state;
  const progress = new Map(state.progress);
  progress.delete(key);
  return { ...state, progress };
}

function finishedOwn(state: State, key: Key, status: string, content: AnyRow): State {
  const own = new Set(state.own);
  own.delete(key);
  const tone = status === "success" ? "good" : status === "error" ? "bad" : "info";
  const said = content["dry_run"] === true ? t.checked : t.job;
  return noticed({ ...state, own }, tone, `${summaryOf(content)}: ${said[status] ?? status}`, Number(key));
}

export function summaryOf(job: AnyRow): string {
  const all = (job["summary"] as string[] | undefined) ?? [];
  return all.map(spoken).join(", ");
}

/** Whether a job can have changed something: a dry run and a verification cannot. */
export function isChange(job: AnyRow): boolean {
  const all = (job["summary"] as string[] | undefined) ?? [];
  return job["dry_run"] !== true && !all.every((one) => READING.test(one));
}

const READING = /^(CLUSTER_VERIFY|CLUSTER_QUERY|CLUSTER_DOCTOR|GROUP_VERIFY_DISKS|OS_DIAGNOSE|BACKUP_CHECK|BACKUP_DRILL|BACKUP_QUERY|TAGS_SEARCH|OOB_COMMAND|TEST_)/;
const VERBS: Readonly<Record<string, string>> = { STARTUP: "start", SHUTDOWN: "shut down" };

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** `INSTANCE_SET_PARAMS(web1)` as people say it: "Instance web1: set params"; a UUID says nothing to them. */
export function spoken(summary: string): string {
  const [, kind, action = "", name] = /^([A-Z]+)_([A-Z_]+)(?:\((.*)\))?$/.exec(summary) ?? [];
  if (!kind) return summary;
  const verb = VERBS[action] ?? action.toLowerCase().replace(/_/g, " ");
  const subject = kind[0] + kind.slice(1).toLowerCase();
  return name && !UUID.test(name) ? `${subject} ${name}: ${verb}` : `${subject}: ${verb}`;
}

/** The objects that a job's summary names: `INSTANCE_STARTUP(web1)` is an instance. */
export function objectsOf(job: AnyRow): [Kind, string][] {
  const found: [Kind, string][] = [];
  for (const line of (job["summary"] as string[] | undefined) ?? []) {
    const [, word, name] = SUMMARY.exec(line) ?? [];
    const kind = word ? KIND_OF_WORD[word] : undefined;
    if (kind && name) found.push([kind, name]);
  }
  return found;
}
