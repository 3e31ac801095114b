/** The actions that buttons offer: what each sends, who may, and how it is said elsewhere. */
import type { operations } from "../api/schema";
import { reason, send } from "../api/client";
import type { Request } from "../api/client";
import { store } from "../core/store";
import type { AnyRow, Session } from "../core/state";
import { t } from "../texts/en";

export type OperationId = keyof operations & string;

export interface Act {
  readonly id: string;
  readonly label: string;
  /** What it does, said before it is done. */
  readonly explanation: string;
  readonly operation: OperationId;
  readonly request: (name: string) => Request;
  /** Values for the command line, beyond the name. */
  readonly values: (name: string) => Readonly<Record<string, unknown>>;
  readonly tone?: "danger" | "caution";
  /** Whether it makes sense for an object; the server decides in any case. */
  readonly fits?: (row: AnyRow) => boolean;
  /** It destroys data: the name must be typed. */
  readonly isDestructive?: boolean;
}

const instance = (name: string, rest = "") => `/2/instances/${name}${rest}`;
const isUp = (row: AnyRow) => row["admin_state"] === "up";
const hasMoved = (row: AnyRow) => row["disk_template"] !== "plain" && row["disk_template"] !== "file";

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
    request: (name) => role(name, "offline"), values: (name) => ({ node: name, offline: "yes" }), tone: "danger",
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
];

export function may(session: Session | null | undefined, operation: string): boolean {
  return Boolean(session?.operations.includes(operation));
}

/** Send a request that submits a job, and return the job's number; the result appears as a notice. */
export async function submit(request: Request): Promise<number> {
  const job = await send<number>(request);
  if (typeof job === "number" && Number(request.query?.["dry-run"] ?? 0) !== 1)
    store.dispatch({ type: "submitted", job });
  return job;
}

/** Submit an action for several objects; each refusal is a notice. */
export async function submitAll(act: Act, names: readonly string[]): Promise<void> {
  const results = await Promise.allSettled(names.map((name) => submit(act.request(name))));
  results.forEach((result, index) => {
    if (result.status === "rejected")
      store.dispatch({ type: "notice", tone: "bad", text: `${names[index]}: ${reason(result.reason)}` });
  });
}
