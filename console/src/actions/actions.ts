/** The actions that buttons offer: what each sends, who may, and how it is said elsewhere. */
import type { operations } from "../api/schema";
import { send } from "../api/client";
import type { Request } from "../api/client";
import { FINAL } from "../core/reducer";
import { store } from "../core/store";
import type { AnyRow } from "../core/state";
import { t } from "../texts/en";

export type OperationId = keyof operations & string;

export interface Act {
  readonly id: string;
  readonly label: string;
  /** What it does, said before it is done. */
  readonly explanation: string;
  readonly operation: OperationId;
  readonly request: (name: string, words?: readonly string[]) => Request;
  /** Values for the command line, beyond the name. */
  readonly values: (name: string, words?: readonly string[]) => Readonly<Record<string, unknown>>;
  readonly tone?: "danger" | "caution";
  /** Whether it makes sense for an object; the server decides in any case. */
  readonly fits?: (row: AnyRow) => boolean;
  /** It destroys data, or stops what depends on it: the name or the number must be typed. */
  readonly isDestructive?: boolean;
  /** Asks for words first, which `request` and `values` get. */
  readonly ask?: { readonly label: string; readonly hint: string };
  /** Only for several objects: the page of one has another way. */
  readonly isForMany?: boolean;
}

const instance = (name: string, rest = "") => `/2/instances/${name}${rest}`;
const isUp = (row: AnyRow) => row["admin_state"] === "up";
const hasMoved = (row: AnyRow) => row["disk_template"] !== "plain" && row["disk_template"] !== "file";

/** Tags of any kind of object, added to or removed from several at once. */
function tagActs(kind: "instance" | "node" | "group" | "network"): readonly Act[] {
  const of = (how: "add" | "remove"): Act => {
    const method = how === "add" ? "PUT" : "DELETE";
    return {
      id: `${how}-tags`, label: how === "add" ? t.acts.addTags : t.acts.removeTags, explanation: how === "add" ? t.acts.addTagsWhat : t.acts.removeTagsWhat,
      operation: `${how === "add" ? "put" : "delete"}_${kind}s_name_tags`, ask: { label: t.instance.tags, hint: t.create.tagsHint }, isForMany: true,
      request: (name, words = []) => ({ method, path: `/2/${kind}s/${name}/tags`, query: { tag: words } }),
      values: (name, words = []) => ({ [kind]: name, tags: words }),
    };
  };
  return [of("add"), of("remove")];
}

export const GROUP_ACTS = tagActs("group");
export const NETWORK_ACTS = tagActs("network");

export const INSTANCE_ACTS: readonly Act[] = [
  {
    id: "startup", label: t.acts.startup, explanation: t.acts.startupWhat, operation: "put_instances_name_startup",
    request: (name) => ({ method: "PUT", path: instance(name, "/startup") }),
    values: (name) => ({ instance: name }), fits: (row) => !isUp(row),
  },
  {
    id: "shutdown", label: t.acts.shutdown, explanation: t.acts.shutdownWhat, operation: "put_instances_name_shutdown",
    request: (name) => ({ method: "PUT", path: instance(name, "/shutdown") }),
    values: (name) => ({ instance: name }), tone: "caution", fits: isUp,
  },
  {
    id: "reboot", label: t.acts.reboot, explanation: t.acts.rebootWhat, operation: "post_instances_name_reboot",
    request: (name) => ({ method: "POST", path: instance(name, "/reboot"), query: { type: "hard" } }),
    values: (name) => ({ instance: name, type: "hard" }), tone: "caution", fits: isUp,
  },
  {
    id: "migrate", label: t.acts.migrate, explanation: t.acts.migrateWhat, operation: "put_instances_name_migrate",
    request: (name) => ({ method: "PUT", path: instance(name, "/migrate"), body: {} }),
    values: (name) => ({ instance: name }), fits: (row) => isUp(row) && hasMoved(row),
  },
  {
    id: "failover", label: t.acts.failover, explanation: t.acts.failoverWhat, operation: "put_instances_name_failover",
    request: (name) => ({ method: "PUT", path: instance(name, "/failover"), body: {} }),
    values: (name) => ({ instance: name }), tone: "caution", fits: hasMoved,
  },
  {
    id: "remove", label: t.acts.remove, explanation: t.acts.removeWhat, operation: "delete_instances_name",
    request: (name) => ({ method: "DELETE", path: instance(name) }),
    values: (name) => ({ instance: name }), tone: "danger", isDestructive: true,
  },
  {
    id: "save-backup", label: t.backups.save, explanation: t.backups.saveManyWhat, operation: "post_instances_name_backups", isForMany: true,
    request: (name) => ({ method: "POST", path: instance(name, "/backups"), body: {} }),
    values: (name) => ({ instance: name }),
  },
  ...tagActs("instance"),
];

export const JOB_ACTS: readonly Act[] = [
  {
    id: "cancel", label: t.jobs.cancel, explanation: t.jobs.cancelWhat, operation: "delete_jobs_id",
    request: (id) => ({ method: "DELETE", path: `/2/jobs/${id}` }), values: (id) => ({ job: id }), tone: "danger",
    fits: (row) => !FINAL.has(String(row["status"])),
  },
];

export const CLUSTER_ACTS: readonly Act[] = [
  {
    id: "verify", label: t.acts.verify, explanation: t.acts.verifyWhat, operation: "post_verify",
    request: () => ({ method: "POST", path: "/2/verify", body: {} }), values: () => ({}),
  },
];

const role = (name: string, to: string): Request => ({ method: "PUT", path: `/2/nodes/${name}/role`, body: to });

export const NODE_ACTS: readonly Act[] = [
  {
    id: "drain", label: t.acts.drain, explanation: t.acts.drainWhat, operation: "put_nodes_name_role",
    request: (name) => role(name, "drained"), values: (name) => ({ node: name, drained: "yes" }), tone: "caution",
    fits: (row) => row["role"] === "C" || row["role"] === "R",
  },
  {
    id: "offline", label: t.acts.offline, explanation: t.acts.offlineWhat, operation: "put_nodes_name_role",
    request: (name) => role(name, "offline"), values: (name) => ({ node: name, offline: "yes" }), tone: "danger", isDestructive: true,
    fits: (row) => row["role"] !== "O" && row["role"] !== "M",
  },
  {
    id: "candidate", label: t.acts.online, explanation: t.acts.onlineWhat, operation: "put_nodes_name_role",
    request: (name) => role(name, "master-candidate"),
    values: (name) => ({ node: name, offline: "no", drained: "no", master_candidate: "yes" }),
    fits: (row) => row["role"] === "D" || row["role"] === "O",
  },
  {
    id: "migrate-all", label: t.acts.migrateAll, explanation: t.acts.migrateAllWhat,
    operation: "post_nodes_name_migrate",
    request: (name) => ({ method: "POST", path: `/2/nodes/${name}/migrate`, body: {} }),
    values: (name) => ({ node: name }), fits: (row) => Number(row["pinst_cnt"]) > 0,
  },
  ...tagActs("node"),
];

/** Send a request that submits a job, and return the job's number; the result appears as a notice, unless `isListed` elsewhere. */
export async function submit(request: Request, isListed = false): Promise<number> {
  const job = await send<number>(request);
  if (!isListed && typeof job === "number" && Number(request.query?.["dry-run"] ?? 0) !== 1)
    store.dispatch({ type: "submitted", job });
  return job;
}
