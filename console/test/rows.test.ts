import { describe, expect, it } from "vitest";
import { ago, duration, naturalKey, percent, secondsOf, short, size } from "../src/core/format";
import { href, placeOf } from "../src/core/route";
import { columnsOf } from "../src/ui/columns";
import { exported } from "../src/ui/export";
import { sorted, sortOf } from "../src/ui/rows";
import { fitting } from "../src/ui/table";
import { choicesFor } from "../src/ui/filterfield";
import { findings, totals } from "../src/pages/health";
import type { FieldInfo } from "../src/api/queries";

Object.assign(globalThis, { document: { querySelectorAll: () => [] } });

const field = (name: string, kind: FieldInfo["kind"]): FieldInfo => ({ name, kind, title: name, doc: `doc of ${name}` });

describe("rows", () => {
  it("sort by number within names, and put missing values last", () => {
    const rows = [{ name: "web10" }, { name: "web2" }, {}, { name: "Web1" }];
    expect(sorted(rows, sortOf(null, "name")).map((row) => row.name)).toEqual(["Web1", "web2", "web10", undefined]);
    expect(sortOf("-id", "name")).toEqual({ field: "id", isDown: true });
    expect(naturalKey("a9") < naturalKey("a10")).toBe(true);
  });

  it("are exported as CSV that a spreadsheet does not run, and as JSON", () => {
    const columns = columnsOf("instance", ["name", "os"], []);
    const rows = [{ name: "=cmd()", os: 'a,"b"' }, { name: "web1" }];
    expect(exported(rows, columns, "csv")).toBe('name,os\r\n\'=cmd(),"a,""b"""\r\nweb1,\r\n');
    expect(JSON.parse(exported(rows, columns, "json"))).toEqual([{ name: "=cmd()", os: 'a,"b"' }, { name: "web1", os: null }]);
  });

  it("lose the least important columns where there is no room", () => {
    const columns = columnsOf("instance", ["name", "os", "status"], []);
    expect(fitting(columns, 2000)).toHaveLength(3);
    expect(fitting(columns, 330).map((one) => one.field)).toEqual(["name", "status"]);
    expect(fitting(columns, 10).map((one) => one.field)).toEqual(["name"]);
  });
});

describe("values", () => {
  it("have units that people read", () => {
    expect([size(512), size(1024), size(1536), size(150 * 1024), size(undefined)]).toEqual(["512 MiB", "1 GiB", "1.5 GiB", "150 GiB", "–"]);
    expect([duration(0.02), duration(61), duration(600), duration(7200), duration(400000)]).toEqual(["20 ms", "61 s", "10 min", "2 h", "5 d"]);
    expect(ago([10, 0], 25000)).toBe("15 s ago");
    expect(secondsOf([1, 500000])).toBe(1.5);
    expect(percent(1, 0)).toBe(0);
    expect(short("node1.example.com")).toBe("node1");
  });
});

describe("the completion", () => {
  const fields = [field("status", "text"), field("os", "text")];
  const rows = [{ status: "running" }, { status: "running" }, { status: "ADMIN_down" }, { os: "a b" }];
  const texts = (text: string) => choicesFor(text, fields, rows).map((one) => one.text);

  it("offers fields, then operators, then values by their number", () => {
    expect(texts("sta")).toEqual(["status"]);
    expect(texts("status ")).toContain("==");
    expect(texts("status == ")).toEqual(["running", "ADMIN_down"]);
    expect(texts("status == r")).toEqual(["running"]);
    expect(texts("os == ")).toEqual(['"a b"']);
    expect(texts("not (sta")).toEqual(["status"]);
    expect(texts("")).toEqual([]);
  });
});

describe("addresses", () => {
  it("have the names of objects in them, encoded", () => {
    expect(href(["instances", "a/b c"], { q: "x == 1" })).toBe("/ui/instances/a%2Fb%20c?q=x+%3D%3D+1");
    const place = placeOf({ pathname: "/ui/instances/a%2Fb%20c", search: "?q=x+%3D%3D+1" });
    expect(place.path).toEqual(["instances", "a/b c"]);
    expect(place.query.get("q")).toBe("x == 1");
    expect(placeOf({ pathname: "/ui/", search: "" }).path).toEqual([]);
  });
});

describe("the health", () => {
  const nodes = [{ name: "n1", mtotal: 100, mfree: 40, mnode: 10, ctotal: 4 }, { name: "n2", offline: true, mtotal: 100, mfree: 100 }, { name: "n3" }];
  const instances = [{ status: "ERROR_nodeoffline", admin_state: "up", "be/vcpus": 2 }, { status: "running", admin_state: "up", "be/vcpus": 1 }];

  it("says what needs attention, each with its page", () => {
    expect(findings(nodes, instances, null, null).map((one) => one.text)).toEqual([
      "1 of 3 nodes is offline", "1 node does not answer", "1 instance is not in the requested state",
    ]);
    expect(findings([nodes[0] ?? {}], [], null, null)).toEqual([]);
  });

  it("says which groups would not survive the loss of a node, and what verify and recovery found", () => {
    const group = (name: string, nodes: number, ...n1_violations: string[]) => ({ name, nodes, n1_violations });
    const survey = { groups: [group("a", 3), group("b", 3, "n1"), group("empty", 0)], verify: { ended: 1, errors: 2, warnings: 1, findings: [] } };
    const recovery = { nodes: [], instances: [{ name: "i", state: "queued", why: "" }], alarms: ["x"], limits: [] };
    expect(findings([], [], survey as never, recovery).map((one) => one.text)).toEqual([
      "1 instance waits for recovery", "1 alarm of automatic recovery", "2 errors found by verify", "N+1 holds in 1 of 2 groups",
    ]);
  });

  it("counts only nodes that are in service", () => {
    expect(totals(nodes, instances)).toEqual({
      memory: { whole: 100, free: 40, host: 10 }, disk: { whole: 0, free: 0 }, cpus: { whole: 4, allocated: 3 },
    });
  });
});
