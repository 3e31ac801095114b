import { describe, expect, it } from "vitest";
import { aligned, CHARTS, joined, marks, shown, shownFigures, summary, tableRows } from "../src/charts/series";
import type { Chart, History } from "../src/charts/series";

const history = (first: number, cpu: readonly (number | null)[], step = 5): History => ({
  step, times: cpu.map((_, at) => first + at * step), figures: { cpu }, silent: [],
});
const chart = (id: string): Chart => CHARTS.find((one) => one.id === id) as Chart;

describe("a history", () => {
  it("grows at its end, and loses what is older than the range", () => {
    const grown = joined(history(100, [1, 2, 3, 4]), history(115, [40, 5]), 15);
    expect(grown.times).toEqual([110, 115, 120]);
    expect(grown.figures["cpu"]).toEqual([3, 40, 5]);
  });

  it("stays as it is without new values, and begins again with another step", () => {
    const old = history(100, [1, 2]);
    expect(joined(old, { ...history(0, []), silent: ["node1"] }, 3600)).toEqual({ ...old, silent: ["node1"] });
    expect(joined(old, history(120, [9], 60), 3600)).toEqual(history(120, [9], 60));
    expect(joined(history(0, []), old, 3600)).toEqual(old);
    expect(joined(history(100, [1]), history(9000, [2]), 3600).times).toEqual([9000]);
  });

  it("gets figures that are new, and keeps the times of those that end", () => {
    const added: History = { step: 5, times: [110], figures: { net_in: [7] }, silent: [] };
    const grown = joined(history(100, [1, 2]), added, 3600);
    expect(grown.figures).toEqual({ cpu: [1, 2, null], net_in: [null, null, 7] });
  });

  it("has a gap in the line where steps are missing", () => {
    const gap: History = { step: 5, times: [100, 105, 200], figures: { cpu: [1, 2, 3] }, silent: [] };
    expect(aligned(gap, ["cpu", "absent"])).toEqual([[100, 105, 110, 200], [1, 2, null, 3], [null, null, null, null]]);
    expect(aligned(history(0, []), ["cpu"])).toEqual([[], []]);
  });

  it("shows only figures that are known", () => {
    const found: History = { step: 5, times: [1], figures: { memory: [5], guest_memory: [null], disk_read: [null] }, silent: [] };
    expect(shownFigures(chart("memory"), found)).toEqual(["memory"]);
    expect(shownFigures(chart("disk"), found)).toEqual([]);
  });
});

describe("numbers", () => {
  it("are summed up in words", () => {
    expect(summary([1, null, 3])).toEqual({ latest: 3, mean: 2, greatest: 3 });
    expect(summary([1, null])).toEqual({ latest: null, mean: 1, greatest: 1 });
    expect(summary([])).toEqual({ latest: null, mean: null, greatest: null });
  });

  it("have units", () => {
    expect(shown(0.123, "processors")).toBe("12.3 %");
    expect(shown(1536, "mib")).toBe("1.5 GiB");
    expect(shown(1023, "bytes")).toBe("1023 B/s");
    expect(shown(1536, "bytes")).toBe("1.5 KiB/s");
    expect(shown(200 * 1024 * 1024, "bytes")).toBe("200 MiB/s");
    expect(shown(12.34, "requests")).toBe("12.3/s");
    expect(shown(null, "mib")).toBe("–");
    expect(shown(undefined, "bytes")).toBe("–");
  });

  it("fit into a short table, the latest first", () => {
    const rows = tableRows(history(100, [1, 3, 5, 7, 9]), ["cpu"], 2);
    expect(rows).toEqual([{ time: 110, values: [7] }, { time: 100, values: [2] }]);
    expect(tableRows(history(0, []), ["cpu"], 24)).toEqual([]);
    expect(tableRows(history(0, Array(720).fill(1)), ["cpu"], 24)).toHaveLength(24);
  });

  it("have marks at round values", () => {
    expect(marks("processors")).toContain(0.5);
    expect(marks("mib")).toContain(1024);
    expect(marks("bytes").every((one, at, all) => at === 0 || one > (all[at - 1] as number))).toBe(true);
  });
});
