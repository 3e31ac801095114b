import { describe, expect, it } from "vitest";
import { commandOf, figureOf, firstMoment, momentOf, requestOf, saidBy } from "../src/core/whatif";
import type { Report, Run } from "../src/core/whatif";

const run: Run = {
  seed: 1, ended: 500, figures: { outages: 2 }, first_misfit: null, still_down: [{ instance: "db1", why: "no room" }],
  node_states: [{ node: "node2", state: "failed", began: 60, ended: 90 }, { node: "node2", state: "fencing", began: 90, ended: 500 }],
  outages: [
    { instance: "web1", node: "node2", began: 60, ended: 130, is_over: true, new_node: "node1" },
    { instance: "db1", node: "node2", began: 60, ended: 500, is_over: false, new_node: "" },
  ],
  timeline: [{ at: 0, kind: "scenario", text: "begins" }, { at: 60, kind: "node", text: "node2 failed" }, { at: 130, kind: "instance", text: "web1 runs" }],
};
const nodes = [{ name: "node1", offline: false }, { name: "node2", offline: false }];
const instances = [{ name: "web1", pnode: "node2", status: "running" }, { name: "db1", pnode: "node2", status: "running" }, { name: "x", pnode: "node1", status: "ADMIN_down" }];
const at = (time: number) => momentOf(run, time, nodes, instances);

describe("the request", () => {
  const question = { nodes: ["node1", "node2"], back: " 1h ", isProtected: true, seeds: 3 };
  it("lets the nodes fail together, under the policy", () => {
    expect(requestOf(question)).toEqual({
      scenario: { name: "node1, node2", steps: [{ at: "0s", set: { recovery: "failover" } }, { at: "1m", "fail-node": ["node1", "node2"], for: "1h" }] }, seeds: 3,
    });
    expect(commandOf(question)).toBe("gnt-whatif cluster --set recovery=failover@0s --fail-node node1,node2@1m/1h --seeds 3");
  });
  it("lets them fail for good without a time", () => {
    const plain = { nodes: ["node1"], back: "", isProtected: false, seeds: 1 };
    expect(requestOf(plain).scenario.steps).toEqual([{ at: "1m", "fail-node": ["node1"] }]);
    expect(commandOf(plain)).toBe("gnt-whatif cluster --fail-node node1@1m");
  });
});

describe("the cluster at a moment", () => {
  it("is that of now before the failure, with the same rows", () => {
    const found = at(59);
    expect(found.nodes[1]).toBe(nodes[1]);
    expect(found.instances.map((row, index) => row === instances[index])).toEqual([true, true, true]);
  });
  it("has lost nodes and instances during the failure", () => {
    const found = at(60);
    expect(found.nodes.map((row) => row["offline"])).toEqual([false, true]);
    expect(found.instances.map((row) => [row["pnode"], row["status"]])).toEqual([["node2", "ERROR_down"], ["node2", "ERROR_down"], ["node1", "ADMIN_down"]]);
  });
  it("has instances on other nodes after their recovery", () => {
    expect(at(130).instances.map((row) => [row["pnode"], row["status"]])).toEqual([["node1", "running"], ["node2", "ERROR_down"], ["node1", "ADMIN_down"]]);
  });
  it("brings nodes back", () => {
    expect(at(500).nodes[1]?.["offline"]).toBe(false);
    expect(at(500).instances[1]?.["status"]).toBe("ERROR_down");
  });
  it("is told by the newest entries first", () => {
    expect(saidBy(run, 100, 5).map((one) => one.text)).toEqual(["node2 failed", "begins"]);
    expect(saidBy(run, 500, 1).map((one) => one.text)).toEqual(["web1 runs"]);
    expect(firstMoment(run)).toBe(55);
    expect(firstMoment({ ...run, outages: [], node_states: [], ended: 3 })).toBe(0);
  });
});

describe("a figure", () => {
  const report: Report = { steps: [], seeds: [1], notes: [], distribution: {}, run };
  const spread = { min: 1, p50: 2, p90: 3, max: 4 };
  it("is a value, or the middle and the ends of several runs", () => {
    expect(figureOf(report, "outages", String)).toBe("2");
    expect(figureOf({ ...report, distribution: { outages: spread } }, "outages", String)).toBe("2 (1 – 4)");
    expect(figureOf({ ...report, distribution: { outages: { ...spread, max: 1 } } }, "outages", String)).toBe("2");
  });
});
