import { describe, expect, it } from "vitest";
import { answered, fitting, isOver, lineOf, linesOf, sentOf, startBatch, stopped } from "../src/core/batch";

const jobs = (all: Record<string, string>) => new Map(Object.entries(all).map(([id, status]) => [id, { id: Number(id), status }]));

describe("a batch", () => {
  const begun = startBatch(["a", "b", "c", "d"]);
  const some = answered(begun, [["a", { state: "job", job: 1 }], ["b", { state: "job", job: 2 }], ["c", { state: "refused", why: "no" }]]);

  it("counts outcomes and shows failures first", () => {
    const { lines, counts } = linesOf(some, jobs({ 1: "success", 2: "error" }));
    expect(counts).toEqual({ waits: 1, runs: 0, good: 1, bad: 2, canceled: 0 });
    expect(lines.map((one) => one.name)).toEqual(["b", "c", "d", "a"]);
    expect(lineOf(some, "c", jobs({}))).toEqual({ name: "c", job: null, outcome: "bad", why: "no" });
  });

  it("ends when every job has ended, or when it was stopped", () => {
    const ended = jobs({ 1: "success", 2: "error" });
    expect(isOver(some, ended)).toBe(false);
    expect(isOver(stopped(some), ended)).toBe(true);
    expect(isOver(stopped(some), jobs({ 1: "running", 2: "error" }))).toBe(false);
    expect(lineOf(stopped(some), "d", ended).outcome).toBe("canceled");
    expect(isOver(answered(some, [["d", { state: "done" }]]), ended)).toBe(true);
  });

  it("is quick with 20,000 objects", () => {
    const names = Array.from({ length: 20_000 }, (_, index) => `web${index}`);
    const large = answered(startBatch(names), names.map((name, index) => [name, { state: "job", job: index }]));
    const { counts } = linesOf(large, new Map());
    expect(counts.runs).toBe(20_000);
  });

  it("understands the answer of a cancellation", () => {
    expect(sentOf(17)).toEqual({ state: "job", job: 17 });
    expect(sentOf([true, "Job 3 canceled"])).toEqual({ state: "done" });
    expect(sentOf([false, "Job 3 has ended"])).toEqual({ state: "refused", why: "Job 3 has ended" });
  });

  it("leaves out what the action does not fit; an unknown object is for the server to decide", () => {
    const rows = new Map([["a", { isUp: true }], ["b", { isUp: false }]]);
    expect(fitting((row) => row["isUp"] === true, ["a", "b", "c"], rows)).toEqual({ fit: ["a", "c"], left: ["b"] });
    expect(fitting(undefined, ["b"], rows)).toEqual({ fit: ["b"], left: [] });
  });
});
