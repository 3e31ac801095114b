/** The same action as a command line and as a request with curl, for people to copy. */
import { address } from "../api/client";
import type { Request } from "../api/client";

const SAFE = /^[A-Za-z0-9_@%+=:,./~-]+$/;

/** Quote a word for a POSIX shell. */
export function quoted(word: string): string {
  return SAFE.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
}

export function curlOf(request: Request, origin: string): string {
  const words = ["curl", "--cacert", "rapi.pem", "-u", "USER", "-X", request.method];
  if (request.body !== undefined)
    words.push("-H", "Content-Type: application/json", "-d", JSON.stringify(request.body));
  words.push(origin + address(request));
  return words.map(quoted).join(" ");
}

type Values = Readonly<Record<string, unknown>>;

/** How an operation is said on the command line. */
interface CommandForm {
  readonly words: string | ((values: Values) => string);
  /** Fields of the path, query or body that are positional arguments, in their order; `?` ends the name of one that may be missing. */
  readonly names?: readonly string[];
  /** Fields whose option is not `--` and the name with dashes; an empty text omits the field. */
  readonly options?: Readonly<Record<string, string>>;
  /** Texts of fields that have a form of their own. */
  readonly own?: Readonly<Record<string, (value: unknown) => string[]>>;
}

const NEVER = new Set(["__version__", "reason", "dry_run", "expected_serial"]);

const asWord = (value: unknown) => (typeof value === "string" ? value.replace(/,/g, "\\,") : String(value));

/** `k=v,…`; `removal` says that a name loses its value. */
function pairs(value: unknown, removal: (name: string) => string = (name) => `${name}=default`): string {
  return Object.entries((value ?? {}) as Values).map(([name, one]) => (one === null ? removal(name) : `${name}=${asWord(one)}`)).join(",");
}

const removed = (name: string) => `-${name}`;
const withRemovals = (option: string) => (value: unknown) => (pairs(value) ? [`${option}=${pairs(value, removed)}`] : []);
const named = (option: string) => (value: unknown) =>
  Object.entries((value ?? {}) as Values).flatMap(([name, params]) => [option, `${name}:${pairs(params, removed)}`]);

/** An instance policy, which has an option for each part. */
function policy(value: unknown): string[] {
  const given = (value ?? {}) as Values;
  const part = (option: string, text: (one: unknown) => string, name: string) =>
    given[name] === undefined ? [] : [option, given[name] === null ? "default" : text(given[name])];
  const bounds = (one: unknown) => (one as { min: Values; max: Values }[]).map(({ min, max }) => `min:${pairs(min)}/max:${pairs(max)}`).join("//");
  return [
    ...part("--ipolicy-vcpu-ratio", String, "vcpu-ratio"), ...part("--ipolicy-spindle-ratio", String, "spindle-ratio"),
    ...part("--ipolicy-std-specs", pairs, "std"), ...part("--ipolicy-bounds-specs", bounds, "minmax"),
  ];
}

const OF_CONNECTION = ["mode", "link", "vlan"];

/** Changes of network interfaces, as requests have them: `["modify", 0, {…}]`. */
function nicChanges(value: unknown): string[] {
  return ((value ?? []) as [string, number, Values][]).flatMap(([action, index, params]) =>
    ["--net", `${index}:${action},${pairs(params, (name) => `${name}=${OF_CONNECTION.includes(name) ? "default" : "none"}`)}`]);
}

/** Flags that are said as yes and no. */
const yesNo = (option: string) => (value: unknown) => (typeof value === "boolean" ? [option, value ? "yes" : "no"] : value ? [option, String(value)] : []);
const YES_NO = ["master_candidate", "drained", "offline", "master_capable", "vm_capable"] as const;
const yesNos = Object.fromEntries(YES_NO.map((name) => [name, yesNo(`--${name.replace(/_/g, "-")}`)]));
const tagged = (kind: string) => ({ words: `gnt-${kind} add-tags`, names: [kind, "tags"] });
const untagged = (kind: string) => ({ words: `gnt-${kind} remove-tags`, names: [kind, "tags"] });

const withPairs = (option: string) => (value: unknown) => (pairs(value) ? [option, pairs(value)] : []);

function disks(value: unknown): string[] {
  return ((value ?? []) as Values[]).flatMap((disk, index) => {
    const given = Object.fromEntries(Object.entries(disk).filter(([, one]) => one !== null && one !== undefined && one !== ""));
    if (typeof given["size"] === "number") given["size"] = `${given["size"]}m`;
    return ["--disk", `${index}:${pairs(given)}`];
  });
}

function nics(value: unknown): string[] {
  return ((value ?? []) as Values[]).flatMap((nic, index) => ["--net", `${index}:${pairs(nic)}`]);
}

const listed = (option: string) => (value: unknown) => (((value ?? []) as string[]).length ? [option, (value as string[]).join(",")] : []);
const OF_SCHEDULES = {
  all_instances: yesNo("--all-instances"), instances: listed("--instances"), instance_tags: listed("--instance-tags"), groups: listed("--groups"),
};
const OF_IMAGES = { cloud_init: yesNo("--cloud-init"), disk_size: (value: unknown) => (value === undefined ? [] : ["--disk-size", `${String(value)}m`]) };
const withoutNode = { target_node: "--target-node", iallocator: "--iallocator" };

export const COMMANDS: Readonly<Record<string, CommandForm>> = {
  post_instances: {
    words: "gnt-instance add", names: ["name"],
    options: {
      os: "--os-type", disk_template: "--disk-template", iallocator: "--iallocator", mode: "", group_name: "--node-group",
    },
    own: {
      disks, nics, beparams: withPairs("--backend-parameters"), osparams: withPairs("--os-parameters"),
      tags: (value) => ((value ?? []) as string[]).length ? ["--tags", ((value ?? []) as string[]).join(",")] : [],
      pnode: (value) => (value ? ["--node", String(value)] : []),
      start: (value) => (value === false ? ["--no-start"] : []),
      no_install: (value) => (value ? ["--no-install"] : []),
      no_nics: (value) => (value ? ["--no-nics"] : []),
      name_check: (value) => (value ? ["--name-check"] : []),
      ip_check: (value) => (value ? ["--ip-check"] : []),
    },
  },
  put_instances_name_startup: { words: "gnt-instance startup", names: ["instance"] },
  put_instances_name_shutdown: { words: "gnt-instance shutdown", names: ["instance"] },
  post_instances_name_reboot: { words: "gnt-instance reboot", names: ["instance"], options: { type: "--type" } },
  put_instances_name_migrate: { words: "gnt-instance migrate --force", names: ["instance"], options: withoutNode },
  put_instances_name_move: { words: "gnt-instance move --force", names: ["instance"], options: { target_node: "--node" } },
  put_instances_name_failover: { words: "gnt-instance failover --force", names: ["instance"], options: withoutNode },
  delete_instances_name: { words: "gnt-instance remove --force", names: ["instance"] },
  post_instances_name_backups: { words: "gnt-backup save", names: ["instance"] },
  put_instances_name_backups_name_restore: { words: "gnt-backup restore --force", names: ["instance"] },
  put_instances_name_backups_name_drill: { words: "gnt-backup drill", names: ["instance", "point"] },
  put_instances_name_backups_prune: { words: "gnt-backup prune", names: ["instance"] },
  put_instances_name_backups_check: { words: "gnt-backup check", names: ["instance"] },
  put_instances_name_verify_export: { words: "gnt-backup verify", names: ["instance"] },
  delete_instances_name_export: { words: "gnt-backup remove", names: ["instance"] },
  put_instances_name_export: {
    words: "gnt-backup export", names: ["instance"], options: { destination: "--node" },
    own: { shutdown: (value) => (value === false ? ["--noshutdown"] : []) },
  },
  post_backup_schedules: { words: "gnt-backup schedule add", names: ["name"], own: OF_SCHEDULES },
  put_backup_schedules_name: {
    words: ({ is_paused: isPaused }) => `gnt-backup schedule ${isPaused === undefined ? "modify" : isPaused ? "pause" : "resume"}`,
    names: ["schedule"], own: { ...OF_SCHEDULES, is_paused: () => [] },
  },
  put_backup_schedules_name_run: { words: "gnt-backup schedule run", names: ["schedule"], own: OF_SCHEDULES },
  delete_backup_schedules_name: { words: "gnt-backup schedule remove", names: ["schedule"] },
  post_instances_name_snapshots: { words: "gnt-instance snapshot create", names: ["instance", "snapshot?"] },
  put_instances_name_snapshots_name_rollback: { words: "gnt-instance snapshot rollback --force", names: ["instance", "snapshot"] },
  delete_instances_name_snapshots_name: { words: "gnt-instance snapshot remove --force", names: ["instance", "snapshot"] },
  post_images: { words: "gnt-image import", names: ["name", "source"], options: { source_format: "--format" }, own: OF_IMAGES },
  put_images_name_modify: { words: "gnt-image modify", names: ["image"], own: OF_IMAGES },
  put_images_name_rename: { words: "gnt-image rename", names: ["image", "new_name"] },
  put_images_name_copy: { words: "gnt-image copy", names: ["image", "nodes"] },
  put_images_name_export: { words: "gnt-image export", names: ["image", "path"], options: { target_format: "--format" } },
  delete_images_name: { words: "gnt-image remove --force", names: ["image"] },
  put_instances_name_rename: { words: "gnt-instance rename", names: ["instance", "new_name"] },
  put_nodes_name_role: { words: "gnt-node modify", names: ["node"], own: yesNos },
  post_nodes_name_evacuate: {
    words: "gnt-node evacuate --force", names: ["node"],
    own: { mode: (value) => (value === "primary-only" || value === "secondary-only" ? [`--${value}`] : []) },
  },
  post_nodes_name_migrate: { words: "gnt-node migrate --force", names: ["node"] },
  post_verify: { words: "gnt-cluster verify" },
  delete_jobs_id: { words: "gnt-job cancel", names: ["job"] },
  put_instances_name_modify: {
    words: "gnt-instance modify", names: ["instance"], options: { os_name: "--os-type" },
    own: {
      custom_beparams: withPairs("--backend-parameters"), custom_hvparams: withPairs("--hypervisor-parameters"),
      osparams: withRemovals("--os-parameters"), nics: nicChanges,
    },
  },
  post_nodes_name_modify: {
    words: "gnt-node modify", names: ["node"], own: { ndparams: withRemovals("--node-parameters"), ...yesNos },
  },
  put_groups_name_modify: {
    words: "gnt-group modify", names: ["group"],
    own: {
      custom_ndparams: withRemovals("--node-parameters"), custom_beparams: withRemovals("--backend-parameters"),
      custom_ipolicy: policy, custom_diskparams: named("--disk-parameters"),
    },
  },
  put_networks_name_modify: { words: "gnt-network modify", names: ["network"] },
  put_cluster_modify: {
    words: "gnt-cluster modify",
    own: {
      beparams: withRemovals("--backend-parameters"), ndparams: withRemovals("--node-parameters"), nicparams: withRemovals("--nic-parameters"),
      hvparams: named("--hypervisor-parameters"), diskparams: named("--disk-parameters"), ipolicy: policy,
    },
  },
  put_instances_name_tags: tagged("instance"), delete_instances_name_tags: untagged("instance"),
  put_nodes_name_tags: tagged("node"), delete_nodes_name_tags: untagged("node"),
  put_groups_name_tags: tagged("group"), delete_groups_name_tags: untagged("group"),
  put_networks_name_tags: tagged("network"), delete_networks_name_tags: untagged("network"),
  put_tags: { words: "gnt-cluster add-tags", names: ["tags"] }, delete_tags: { words: "gnt-cluster remove-tags", names: ["tags"] },
};

/** Return the command line of an operation, or null if it is not in the table. */
export function commandOf(operation: string, values: Values): string | null {
  const form = COMMANDS[operation];
  if (!form) return null;
  const words: string[] = [];
  for (const [field, value] of Object.entries(values)) {
    if (NEVER.has(field) || form.names?.some((name) => name === field || name === `${field}?`)) continue;
    words.push(...optionOf(form, field, value));
  }
  const names = (form.names ?? []).flatMap((name) => positional(name, values));
  return [typeof form.words === "string" ? form.words : form.words(values), ...[...words, ...names].map(quoted)].join(" ");
}

function positional(name: string, values: Values): string[] {
  if (name.endsWith("?")) return values[name.slice(0, -1)] ? [String(values[name.slice(0, -1)])] : [];
  return [values[name] ?? name.toUpperCase()].flat().map(String);
}

function optionOf(form: CommandForm, field: string, value: unknown): string[] {
  const own = form.own?.[field];
  if (own) return own(value);
  const option = form.options?.[field] ?? `--${field.replace(/_/g, "-")}`;
  if (!option || value === null || value === undefined || value === false || value === "") return [];
  if (value === true || value === 1) return [option];
  if (typeof value === "object") return pairs(value) ? [option, pairs(value)] : [];
  return [option, String(value)];
}
