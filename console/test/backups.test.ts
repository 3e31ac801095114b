import { describe, expect, it } from "vitest";
import { fixedOf, hasWords, seriesOf } from "../src/core/backups";
import type { Point } from "../src/core/backups";

const point = (instance: string, backup: string, node = "node1", more: Partial<Point> = {}): Point => ({
  node, target: "/srv/ganeti/backup", instance, backup, ctime: 1, parent: null, consistency: "crash", disk_size: 1024, stored: 10,
  proof: "unproven", checked: null, drilled: null, failure: null, problem: null, ...more,
});

describe("backups by instance and directory", () => {
  const series = seriesOf([
    point("web10", "20261127-180500"), point("web2", "20261127-180500"), point("web2", "20261128-180500"),
    point("web2", "20261126-180500", "node2", { problem: "is torn", stored: null }),
  ]);

  it("are in the order of the names, the newest backup first", () => {
    expect(series.map((one) => [one.instance, one.node])).toEqual([["web2", "node1"], ["web2", "node2"], ["web10", "node1"]]);
    expect(series[0]?.points.map((one) => one.backup)).toEqual(["20261128-180500", "20261127-180500"]);
  });

  it("have sums, without what cannot be read", () => {
    expect(series.map((one) => [one.stored, one.problems])).toEqual([[20, 0], [0, 1], [10, 0]]);
  });

  it("name the directory in requests only where there are several", () => {
    expect(series.map(fixedOf)).toEqual([
      { instance: "web2", node: "node1", target: "/srv/ganeti/backup" }, { instance: "web2", node: "node2", target: "/srv/ganeti/backup" }, { instance: "web10" },
    ]);
  });

  it("are found by words of any of their texts", () => {
    expect(series.filter((one) => hasWords(one, "WEB2 node2"))).toHaveLength(1);
    expect(series.filter((one) => hasWords(one, ""))).toHaveLength(3);
  });
});
