/** Which pages a user may open: pure. The server decides about each request in any case. */
import type { OperationId } from "../actions/actions";
import type { Session } from "./state";

/** The operation without which a page has nothing to show: by the first word of the path, for the page of all and of one. */
const NEEDED: Readonly<Record<string, { readonly all?: OperationId; readonly one?: OperationId }>> = {
  map: { all: "get_nodes" },
  whatif: { all: "post_whatif" },
  cluster: { all: "get_info" },
  instances: { all: "get_instances", one: "get_instances_name" },
  nodes: { all: "get_nodes", one: "get_nodes_name" },
  groups: { all: "get_groups", one: "get_groups_name" },
  networks: { all: "get_networks", one: "get_networks_name" },
  os: { all: "put_query" },
  storage: { all: "get_nodes" },
  exports: { all: "get_backups" },
  images: { all: "get_images", one: "get_images_name" },
  jobs: { all: "get_jobs", one: "get_jobs_id" },
  locks: { all: "put_query" },
  filters: { all: "put_query" },
  audit: { all: "get_audit" },
  users: { all: "get_users" },
  create: { all: "post_instances" },
  console: { one: "post_instances_name_console_ticket" },
};

export function may(session: Session | null | undefined, operation: string): boolean {
  return Boolean(session?.operations.includes(operation));
}

/** Whether a user may open the page of all objects of a kind, or of one of them. */
export function mayOpen(session: Session | null | undefined, page: string, isOne: boolean): boolean {
  const needed = NEEDED[page]?.[isOne ? "one" : "all"];
  return needed === undefined || may(session, needed);
}
