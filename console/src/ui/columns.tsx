/** Columns of tables: the chosen fields of a kind, each shown as its kind of value asks for. */
import type { ComponentChildren } from "preact";
import type { FieldInfo } from "../api/queries";
import { clock, secondsOf, short, size } from "../core/format";
import { summaryOf } from "../core/reducer";
import type { AnyRow, Kind } from "../core/state";
import { t } from "../texts/en";
import { InstanceStatus, JobStatus, Meter, NodeRole, ObjectLink } from "./bits";
import type { Column } from "./table";

interface Special {
  readonly title?: string;
  readonly width?: number;
  readonly show?: (row: AnyRow) => ComponentChildren;
  readonly text?: (row: AnyRow) => string;
}

const link = (kind: string, field: string) => (row: AnyRow) => <ObjectLink kind={kind} name={row[field]} />;
const names = (kind: string, field: string) => (row: AnyRow) =>
  ((row[field] as string[] | undefined) ?? []).map((name, at) => <>{at > 0 && ", "}<ObjectLink kind={kind} name={name} /></>);
const used = (free: string, total: string) => (row: AnyRow) => {
  const [left, whole] = [Number(row[free] ?? 0), Number(row[total] ?? 0)];
  if (!whole) return <span class="faint">–</span>;
  const part = (whole - left) / whole;
  return (
    <span class="metered">
      <Meter label={total} whole={whole} parts={[{ name: "used", value: whole - left, tone: part > 0.9 ? "bad" : part > 0.75 ? "warn" : "used" }]} />
      <span>{size(left)}</span>
    </span>
  );
};
const tags = (row: AnyRow) => ((row["tags"] as string[] | undefined) ?? []).map((tag) => <span class="tag" key={tag}>{tag}</span>);

const SPECIAL: { readonly [K in Kind]: Readonly<Record<string, Special>> } = {
  instance: {
    name: { title: "Name", width: 150, show: link("instance", "name") },
    status: { title: "Status", width: 118, show: (row) => <InstanceStatus status={row["status"]} /> },
    pnode: { title: "Node", width: 110, show: link("node", "pnode") },
    snodes: { title: "Secondary", width: 110, show: names("node", "snodes") },
    os: { title: "Operating system", width: 150 },
    "be/vcpus": { title: "CPUs", width: 62 },
    "be/maxmem": { title: "Memory", width: 86 },
    disk_usage: { title: "Disk", width: 86, text: (row) => (row["disk_usage"] ? size(Number(row["disk_usage"])) : "–") },
    disk_template: { title: "Disks", width: 90 },
    hypervisor: { title: "Hypervisor", width: 90 },
    tags: { title: "Tags", width: 140, show: tags },
    "pnode.group": { title: "Group", width: 100, show: link("group", "pnode.group") },
  },
  node: {
    name: { title: "Name", width: 160, show: link("node", "name") },
    role: { title: "Role", width: 110, show: (row) => <NodeRole role={row["role"]} /> },
    group: { title: "Group", width: 100, show: link("group", "group") },
    mfree: { title: "Free memory", width: 150, show: used("mfree", "mtotal") },
    dfree: { title: "Free disk", width: 150, show: used("dfree", "dtotal") },
    ctotal: { title: "CPUs", width: 64 },
    pinst_cnt: { title: "Instances", width: 86 },
    sinst_cnt: { title: "Secondary", width: 86 },
    tags: { title: "Tags", width: 130, show: tags },
  },
  group: {
    name: { title: "Name", width: 180, show: link("group", "name") },
    alloc_policy: { title: "Allocation", width: 120 },
    node_cnt: { title: "Nodes", width: 80 },
    pinst_cnt: { title: "Instances", width: 90 },
    tags: { title: "Tags", width: 140, show: tags },
  },
  network: {
    name: { title: "Name", width: 150, show: link("network", "name") },
    network: { title: "Network", width: 150 },
    gateway: { title: "Gateway", width: 130 },
    free_count: { title: "Free", width: 80 },
    reserved_count: { title: "Reserved", width: 90 },
    inst_cnt: { title: "Instances", width: 90 },
    group_list: { title: "Groups", width: 160, text: (row) => ((row["group_list"] as string[][] | undefined) ?? []).map((one) => one[0]).join(", ") },
    tags: { title: "Tags", width: 130, show: tags },
  },
  job: {
    id: { title: "Job", width: 70, show: (row) => <ObjectLink kind="job" name={row["id"]} whole /> },
    status: { title: "Status", width: 110, show: (row) => <JobStatus status={row["status"]} /> },
    summary: { title: "What", width: 165, text: (row) => summaryOf(row) + (row["dry_run"] === true ? ` (${t.jobs.dryRun})` : "") },
    source: { title: "By", width: 120, text: (row) => String(row["source"] ?? "–").replace(/^rest:/, "") },
    received_ts: { title: "Submitted", width: 140 },
    start_ts: { title: "Started", width: 140 },
    end_ts: { title: "Ended", width: 140 },
    waiting_for: { title: "Waits for", width: 200 },
  },
};

export const DEFAULT_COLUMNS: { readonly [K in Kind]: readonly string[] } = {
  instance: ["name", "status", "pnode", "snodes", "os", "be/vcpus", "be/maxmem", "disk_usage", "tags"],
  node: ["name", "role", "group", "mfree", "dfree", "ctotal", "pinst_cnt", "sinst_cnt", "tags"],
  group: ["name", "alloc_policy", "node_cnt", "pinst_cnt", "tags"],
  network: ["name", "network", "gateway", "free_count", "reserved_count", "inst_cnt", "group_list", "tags"],
  job: ["id", "status", "summary", "source", "received_ts", "end_ts"],
};

/** Which columns stay longest on a narrow page, apart from the order of all others. */
const FIRST: { readonly [K in Kind]: readonly string[] } = {
  instance: ["name", "status", "pnode"], node: ["name", "role", "mfree"], group: ["name"], network: ["name", "network"],
  job: ["summary", "status"],
};

const DEFAULT_WIDTH = 120;

export function columnsOf(kind: Kind, chosen: readonly string[], fields: readonly FieldInfo[]): Column[] {
  const known = new Map(fields.map((field) => [field.name, field]));
  return chosen.map((name, order) => {
    const special = SPECIAL[kind][name] ?? {};
    const info = known.get(name);
    const value = special.text ?? ((row: AnyRow) => textOf(row[name], info?.kind, name));
    const first = FIRST[kind].indexOf(name);
    return {
      field: name,
      title: special.title ?? info?.title ?? name,
      width: special.width ?? DEFAULT_WIDTH,
      rank: first >= 0 ? first : 10 + order,
      isNumber: !special.show && (info?.kind === "number" || info?.kind === "unit" || info?.kind === "float"),
      text: value,
      show: special.show ?? ((row: AnyRow) => <span class="text" title={value(row)}>{value(row)}</span>),
    };
  });
}

/** A value of a field as text, as its kind asks for. */
export function textOf(value: unknown, kind: FieldInfo["kind"] | undefined, name = ""): string {
  if (value === undefined || value === null || value === "") return "–";
  if (kind === "unit") return size(Number(value));
  if (kind === "timestamp" || (name.endsWith("_ts") && secondsOf(value) !== null)) return clock(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map((one) => (typeof one === "object" ? JSON.stringify(one) : short(one))).join(", ") || "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
