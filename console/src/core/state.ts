/** The state of the whole page. Only the reducer makes a new one; components only read it. */
import type { components } from "../api/schema";
import type { Sending } from "./images";

export type Fields = components["schemas"]["QueryFields"];
/** Kinds of objects that have a table which events keep up to date. */
export type Kind = "instance" | "node" | "group" | "network" | "job";
/** One object; a missing value means that no node reports it, or that it does not apply. */
export type Row<K extends Kind = Kind> = Partial<Fields[K]>;
export type AnyRow = Readonly<Record<string, unknown>>;
export type Key = string;

export interface Table {
  readonly rows: ReadonlyMap<Key, AnyRow>;
  readonly fields: readonly string[];
  /** Objects that have changed since their rows were requested. */
  readonly stale: ReadonlySet<Key>;
  /** True if the whole table must be requested. */
  readonly isDue: boolean;
  /** True while the whole table is on its way: what changes meanwhile may be missing in it. */
  readonly isAsked: boolean;
  readonly isLoaded: boolean;
  readonly problem: string | null;
}

export interface Session {
  readonly user: string;
  readonly rights: readonly string[];
  readonly operations: readonly string[];
  readonly limited: boolean;
  readonly csrf: string;
  readonly expires: number;
  readonly idle_s: number;
  readonly now: number;
}

/** `starting`: no answer yet; `live`: events arrive; `lost`: reconnecting; `offline`: the browser has no network;
 * `closed`: the user's role has no events. */
export type Link = "starting" | "live" | "lost" | "offline" | "closed";

export interface Notice {
  readonly id: number;
  readonly tone: "good" | "bad" | "info";
  readonly text: string;
  readonly job?: number;
}

export interface Progress {
  readonly percent: number | null;
  readonly text: string;
  readonly rate: number | null;
  readonly leftS: number | null;
}

export interface State {
  /** undefined: not asked yet; null: signed out. */
  readonly session: Session | null | undefined;
  readonly link: Link;
  /** Number of the last event, from which the stream continues. */
  readonly last: string | null;
  /** Times that the stream was resumed after it was lost. */
  readonly resumed: number;
  readonly tables: Readonly<Record<Kind, Table>>;
  readonly cluster: AnyRow | null;
  readonly isClusterDue: boolean;
  readonly progress: ReadonlyMap<Key, Progress>;
  /** Jobs that this page has submitted and that have not ended. */
  readonly own: ReadonlySet<Key>;
  readonly notices: readonly Notice[];
  readonly noticeCount: number;
  /** Jobs that have ended and that may have changed backups, exports or schedules. */
  readonly backups: number;
  /** Jobs that have ended and that may have changed images or their copies. */
  readonly images: number;
  /** Uploads of images that this page has sent a part of. */
  readonly uploads: ReadonlyMap<string, Sending>;
}

export const KINDS: readonly Kind[] = ["instance", "node", "group", "network", "job"];

export const DEFAULT_FIELDS: { readonly [K in Kind]: readonly (keyof Fields[K] & string)[] } = {
  instance: [
    "name", "status", "pnode", "snodes", "os", "hypervisor", "be/vcpus", "be/maxmem", "oper_ram",
    "disk_usage", "disk_template", "tags", "admin_state", "pnode.group",
  ],
  node: [
    "name", "role", "group", "offline", "drained", "mtotal", "mfree", "mnode", "dtotal", "dfree", "ctotal",
    "pinst_cnt", "sinst_cnt", "tags", "maintenance", "recovery_state", "recovery_why", "vm_capable",
  ],
  group: ["name", "alloc_policy", "node_cnt", "pinst_cnt", "tags", "node_list"],
  network: ["name", "network", "gateway", "free_count", "reserved_count", "group_list", "inst_cnt", "tags"],
  job: ["id", "status", "summary", "source", "received_ts", "start_ts", "end_ts", "waiting_for", "priority", "dry_run", "depends"],
};

function emptyTable(kind: Kind): Table {
  return {
    rows: new Map(), fields: DEFAULT_FIELDS[kind], stale: new Set(), isDue: false, isAsked: false, isLoaded: false, problem: null,
  };
}

export function initialState(): State {
  const tables = Object.fromEntries(KINDS.map((kind) => [kind, emptyTable(kind)])) as Record<Kind, Table>;
  return {
    session: undefined, link: "starting", last: null, resumed: 0, tables, cluster: null, isClusterDue: true,
    progress: new Map(), own: new Set(), notices: [], noticeCount: 0, backups: 0, images: 0,
    uploads: new Map(),
  };
}

/** The key of an object's row. */
export function keyOf(kind: Kind, row: AnyRow): Key {
  return String(kind === "job" ? row["id"] : row["name"]);
}
