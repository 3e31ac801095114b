import { describe, expect, it } from "vitest";
import { mayOpen } from "../src/core/access";
import type { Session } from "../src/core/state";
import { NAVIGATION } from "../src/pages/pages";
import roles from "./roles.json";

/** tests/unit/web/test_console_roles.py compares the operations of each role with those that the server allows. */
const sessionOf = (role: keyof typeof roles.roles): Session => ({
  user: role, rights: [], operations: roles.roles[role], limited: role.startsWith("tenant"), csrf: "", expires: 0, idle_s: 0, now: 0,
});
const ONES = ["instances", "nodes", "groups", "networks", "images", "jobs", "console"];
const pagesOf = (session: Session) => [
  ...NAVIGATION.flatMap((group) => group.pages).map((one) => one.id).concat("create").filter((one) => mayOpen(session, one, false)),
  ...ONES.filter((one) => mayOpen(session, one, true)).map((one) => `${one}/`),
].sort().join(" ");

/** What a page requests without asking for the right first. */
const REQUESTS: Readonly<Record<string, readonly string[]>> = {
  map: ["get_nodes", "get_instances"], cluster: ["get_info"], instances: ["get_instances"], nodes: ["get_nodes"], groups: ["get_groups"],
  networks: ["get_networks"], os: ["put_query"], storage: ["get_nodes", "get_instances"], exports: ["get_backups"], jobs: ["get_jobs"],
  locks: ["put_query"], filters: ["put_query"], audit: ["get_audit"], users: ["get_users"], create: ["post_instances", "get_os", "get_jobs_id"],
  images: ["get_images"], "images/": ["get_images_name"],
  whatif: ["post_whatif", "get_whatif", "get_nodes"],
  "instances/": ["get_instances_name"], "nodes/": ["get_nodes_name"], "groups/": ["get_groups_name"], "networks/": ["get_networks_name"], "jobs/": ["get_jobs_id"],
};

const OF_ALL = "cluster groups groups/ images images/ instances instances/ jobs jobs/ map networks networks/ nodes nodes/ overview storage";
const OF_READERS = `${OF_ALL} exports filters locks os whatif`;

describe("the pages that a role may open", () => {
  const expected: Record<keyof typeof roles.roles, string> = {
    admin: `${OF_READERS} audit console/ create users`,
    operator: `${OF_READERS} console/`,
    reader: OF_READERS,
    guest: OF_ALL,
    tenant: "cluster console/ create exports instances instances/ jobs jobs/ overview",
    tenant_reader: "cluster exports instances instances/ jobs jobs/ overview",
    tenant_guest: "cluster instances instances/ jobs jobs/ overview",
  };
  for (const role of Object.keys(expected) as (keyof typeof roles.roles)[]) {
    const session = sessionOf(role);
    it(`${role}`, () => {
      expect(pagesOf(session)).toBe(expected[role].split(" ").sort().join(" "));
    });
    it(`${role} gets no refusal on any of them`, () => {
      for (const page of pagesOf(session).split(" "))
        for (const operation of REQUESTS[page] ?? []) expect(session.operations, `${page}: ${operation}`).toContain(operation);
    });
  }

  it("are none that does not exist, and any that needs no right", () => {
    expect(mayOpen(null, "overview", false)).toBe(true);
    expect(mayOpen(null, "instances", false)).toBe(false);
  });
});
