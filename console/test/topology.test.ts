import { describe, expect, it } from "vitest";
import { arrivals, groupsOf, loadOf, notRestarted, rackOf, sharesOf, tally, tintOf, zoomFor } from "../src/core/topology";
import type { Fate, Knowledge, Outcomes, Tile } from "../src/core/topology";

const NONE: Knowledge = { busy: null, weak: null, outcomes: null };
const node = (name: string, more = {}) => ({ name, group: "default", tags: [], mtotal: 1000, mfree: 600, ctotal: 4, ...more });
const instance = (name: string, pnode: string, more = {}) => ({ name, pnode, status: "running", admin_state: "up", "be/vcpus": 2, ...more });
const tile = (more = {}, instances: Tile["instances"] = []): Tile => ({ node: node("node1", more), name: "node1", instances });
const fate = (name: string, how: string, to: string | null): Fate => ({ name, role: "primary", how, to, why: "" });
const isBad = (status: unknown) => String(status).startsWith("ERROR");

describe("groups and racks", () => {
  const nodes = [node("node10", { tags: ["rack:b"] }), node("node2", { tags: ["x", "rack:a"] }), node("node1", { tags: ["rack:a"] }), node("other", { group: "edge" })];
  const instances = [instance("web10", "node2"), instance("web9", "node2"), instance("gone", "node77")];

  it("are in natural order, with their nodes and instances", () => {
    const found = groupsOf(nodes, instances);
    expect([...found.keys()]).toEqual(["default", "edge"]);
    expect(found.get("default")?.map((rack) => [rack.name, rack.tiles.map((one) => one.name)])).toEqual([["a", ["node1", "node2"]], ["b", ["node10"]]]);
    expect(found.get("edge")?.[0]?.name).toBe("");
    expect(found.get("default")?.[0]?.tiles[1]?.instances.map((one) => one["name"])).toEqual(["web9", "web10"]);
  });

  it("keep the tiles that have not changed", () => {
    const tiles = (all: ReturnType<typeof groupsOf>) => new Map([...all.values()].flat().flatMap((rack) => rack.tiles).map((one) => [one.name, one]));
    const before = tiles(groupsOf(nodes, instances));
    const after = tiles(groupsOf(nodes, [...instances, instance("new", "node1")], before));
    expect(after.get("node2")).toBe(before.get("node2"));
    expect(after.get("node1")).not.toBe(before.get("node1"));
    const moved = tiles(groupsOf(nodes, [instance("web9", "node2"), instance("web11", "node2")], before));
    expect(moved.get("node2")).not.toBe(before.get("node2"));
  });

  it("come from tags", () => {
    expect(rackOf({ tags: ["rackety", "rack:r1"] })).toBe("r1");
    expect(rackOf({})).toBe("");
  });
});

describe("colours", () => {
  it("are of memory, load and processors in percent", () => {
    const one = tile({}, [instance("a", "node1"), instance("b", "node1", { admin_state: "down" })]);
    expect(loadOf(one, "memory", NONE)).toBe(40);
    expect(loadOf(one, "cpus", NONE)).toBe(50);
    expect(loadOf(one, "load", NONE)).toBeNull();
    expect(loadOf(one, "load", { ...NONE, busy: new Map([["node1", 3.6]]) })).toBe(90);
    expect(tintOf(one, "load", { ...NONE, busy: new Map([["node1", 3.6]]) }, isBad)).toBe("bad");
    expect(tintOf(one, "memory", NONE, isBad)).toBe("mid");
    expect(tintOf(tile({ mfree: 200 }), "memory", NONE, isBad)).toBe("warn");
    expect(tintOf(tile({ mtotal: undefined }), "memory", NONE, isBad)).toBe("off");
  });

  it("show what the failure of a node would mean", () => {
    const outcomes = (more: Partial<Outcomes>): Knowledge => ({
      ...NONE, outcomes: new Map([["node1", { name: "node1", failover: 0, restart: 0, degraded: 0, unplaced: 0, lost: 0, ...more }]]),
    });
    const tint = (more: Partial<Outcomes>) => tintOf(tile(), "impact", outcomes(more), isBad);
    expect([tint({}), tint({ degraded: 3 }), tint({ restart: 1 }), tint({ failover: 2 })]).toEqual(["low", "low", "mid", "mid"]);
    expect([tint({ lost: 1 }), tint({ unplaced: 1 }), tint({ unplaced: null })]).toEqual(["bad", "bad", "bad"]);
    expect(tintOf(tile(), "impact", NONE, isBad)).toBe("off");
    expect(notRestarted({ name: "", failover: 0, restart: 0, degraded: 9, unplaced: 2, lost: 3 })).toBe(5);
  });

  it("show N+1 and states, and nothing of nodes that are offline", () => {
    const weak = { ...NONE, weak: new Set(["node1"]) };
    expect(tintOf(tile(), "slack", weak, isBad)).toBe("bad");
    expect(tintOf(tile(), "slack", { ...NONE, weak: new Set<string>() }, isBad)).toBe("low");
    expect(tintOf(tile(), "slack", NONE, isBad)).toBe("off");
    expect(tintOf(tile({}, [instance("a", "node1", { status: "ERROR_down" })]), "status", NONE, isBad)).toBe("bad");
    expect(tintOf(tile({ offline: true }), "slack", weak, isBad)).toBe("off");
  });
});

describe("a large cluster", () => {
  it("is shown with less of each node", () => {
    expect([3, 60, 61, 1000, 2001].map(zoomFor)).toEqual(["instances", "instances", "nodes", "nodes", "groups"]);
  });

  it("is counted by colour, the worst first", () => {
    expect(sharesOf(["low", "bad", "low", "off"])).toEqual([["bad", 1], ["low", 2], ["off", 1]]);
  });
});

describe("the failure of a node", () => {
  const fates = [fate("a", "failover", "node2"), fate("b", "restart", "node2"), fate("c", "lost", null), fate("d", "failover", "node3")];

  it("brings instances to other nodes", () => {
    expect([...arrivals(fates)]).toEqual([["node2", 2], ["node3", 1]]);
  });

  it("is counted by outcome", () => {
    expect(tally(fates)).toEqual([["failover", 2], ["restart", 1], ["lost", 1]]);
  });
});
