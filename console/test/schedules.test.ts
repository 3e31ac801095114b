import { describe, expect, it } from "vitest";
import { keptBy, selectionOf, sortedSchedules } from "../src/core/schedules";
import type { Run, Schedule } from "../src/core/schedules";

const run = (instance: string, state: Run["state"]): Run => ({ instance, state, last: null, backup: null, due: null, running: false, job: null, failures: 0, error: null });
const schedule = (name: string, more: Partial<Schedule> = {}): Schedule => ({
  name, calendar: "daily", time_zone: "UTC", next: null, all_instances: false, instances: [], instance_tags: [], groups: [], instance_count: 0,
  node: null, target: null, window: null, keep_rules: {}, drill: null, paused: false, running: 0, failing: 0, old: 0, runs: [], ...more,
});

describe("schedules", () => {
  it("with problems come first, and their runs too", () => {
    const found = sortedSchedules([
      schedule("b"), schedule("a"),
      schedule("z", { old: 1, runs: [run("web2", "good"), run("web10", "failing"), run("web1", "good"), run("web3", "old")] }),
    ]);
    expect(found.map((one) => one.name)).toEqual(["z", "a", "b"]);
    expect(found[0]?.runs.map((one) => one.instance)).toEqual(["web3", "web10", "web1", "web2"]);
  });

  it("say what they save and keep", () => {
    expect(selectionOf(schedule("a", { all_instances: true, instances: ["web1"] }))).toEqual([["all", []]]);
    expect(selectionOf(schedule("a", { instances: ["web1"], groups: ["default"] }))).toEqual([["instances", ["web1"]], ["groups", ["default"]]]);
    expect(keptBy(schedule("a", { keep_rules: { last: 0, daily: 7, weekly: 4 } }))).toBe("daily 7, weekly 4");
  });
});
