/** The pages of the navigation. */
import type { OperationId } from "../actions/actions";
import { t } from "../texts/en";

export interface PageEntry {
  readonly id: string;
  readonly title: string;
  /** The operation without which the page has nothing to show. */
  readonly operation?: OperationId;
}

export const NAVIGATION: readonly { readonly title: string; readonly pages: readonly PageEntry[] }[] = [
  { title: "", pages: [{ id: "overview", title: t.nav.overview }, { id: "map", title: t.nav.map, operation: "get_nodes" }] },
  {
    title: t.nav.machines,
    pages: [
      { id: "cluster", title: t.nav.cluster, operation: "get_info" },
      { id: "instances", title: t.nav.instances, operation: "get_instances" },
      { id: "nodes", title: t.nav.nodes, operation: "get_nodes" },
      { id: "groups", title: t.nav.groups, operation: "get_groups" },
      { id: "networks", title: t.nav.networks, operation: "get_networks" },
      { id: "os", title: t.nav.os, operation: "put_query" },
      { id: "storage", title: t.nav.storage, operation: "get_nodes" },
      { id: "exports", title: t.nav.exports, operation: "put_query" },
    ],
  },
  {
    title: t.nav.work,
    pages: [
      { id: "jobs", title: t.nav.jobs, operation: "get_jobs" },
      { id: "locks", title: t.nav.locks, operation: "put_query" },
      { id: "filters", title: t.nav.filters, operation: "put_query" },
      { id: "audit", title: t.nav.audit, operation: "get_audit" },
      { id: "users", title: t.nav.users, operation: "get_users" },
    ],
  },
];
