import { describe, expect, it } from "vitest";
import { bodyOf, boundsOf, changesOf, effectOf, keyOf, meanwhileOf, mibOf, originOf, tagChanges, valueOf, waitsForStart } from "../src/core/edits";
import type { Setting, Settings } from "../src/core/edits";

const be = (name: string, more: Partial<Setting> = {}): Setting => ({
  path: ["custom_beparams", name], title: "Backend parameters", name, form: "integer", value: 1, source: "default", inherited: 1,
  inherited_from: "default", reset: null, applies: "start", ...more,
});
const vcpus = be("vcpus", { minimum: 1, policy: [1, 8] });
const maxmem = be("maxmem", { form: "size", value: 512, source: "own", inherited: 128, inherited_from: "cluster" });
const balance = be("auto_balance", { form: "flag", value: true, applies: "now" });
const ip: Setting = { path: ["nics", 0, "ip"], title: "NIC", name: "ip", value: "192.0.2.5", reset: null, applies: "hotplug" };
const link: Setting = { path: ["nics", 0, "link"], title: "NIC", name: "link", value: "br0", source: "cluster", inherited: "br0", inherited_from: "cluster", reset: null, applies: "hotplug" };
const bounds: Setting = { path: ["custom_ipolicy", "minmax", 0, "max", "cpu-count"], title: "P", name: "max cpu-count", form: "integer", value: 8, source: "cluster" };
const gateway: Setting = { path: ["gateway"], title: "Network", name: "gateway", value: "192.0.2.1", reset: "none" };
const all: Settings = {
  kind: "instance", name: "web1", serial_no: 3, tags: ["a"], settings: [vcpus, maxmem, balance, ip, link, bounds, gateway],
  bases: [{ path: ["custom_ipolicy", "minmax"], value: [{ min: { "cpu-count": 1 }, max: { "cpu-count": 8 } }] }],
};
const entered = (...pairs: [Setting, string | null][]) => new Map(pairs.map(([one, text]) => [keyOf(one.path), text]));
const changes = (...pairs: [Setting, string | null][]) => changesOf(all.settings, entered(...pairs));

describe("changes", () => {
  it("are only what differs", () => {
    expect(changes()).toEqual([]);
    expect(changes([maxmem, "512"], [maxmem, "0.5g"])).toEqual([]);
    expect(changes([vcpus, null])).toEqual([]);
    const [one] = changes([maxmem, "1g"]);
    expect([one?.before, one?.after, one?.sent]).toEqual(["512 MiB", "1 GiB", 1024]);
  });

  it("make an inherited value the object's own", () => {
    expect(changes([vcpus, "1"]).map((one) => one.sent)).toEqual([1]);
  });

  it("remove an own value, and say what is effective then", () => {
    const [one] = changes([maxmem, null]);
    expect([one?.isReset, one?.sent, one?.after]).toEqual([true, null, "128 MiB (from the cluster)"]);
    expect(changes([gateway, ""])[0]?.sent).toBe("none");
    expect(changes([ip, ""])[0]?.sent).toBe(null);
  });

  it("have problems and warnings", () => {
    expect(changes([vcpus, "0"])[0]?.problem).toBe("at least 1");
    expect(changes([vcpus, "x"])[0]?.problem).toBe("Enter a number.");
    expect(changes([vcpus, "1.5"])[0]?.problem).toBe("Enter a whole number.");
    expect(changes([maxmem, "64x"])[0]?.problem).toContain("Enter a size");
    expect(changes([vcpus, "9"])[0]?.warning).toContain("the master will refuse");
    expect(changes([vcpus, "8"])[0]?.warning).toBe(null);
  });
});

describe("a request", () => {
  it("has each value at its path", () => {
    expect(bodyOf(all, changes([vcpus, "2"], [maxmem, null], [balance, "false"]))).toEqual({ custom_beparams: { vcpus: 2, maxmem: null, auto_balance: false } });
  });

  it("changes an interface once", () => {
    expect(bodyOf(all, changes([ip, "192.0.2.6"], [link, "br1"]))).toEqual({ nics: [["modify", 0, { ip: "192.0.2.6", link: "br1" }]] });
  });

  it("sends the bounds of a policy as a whole, and keeps the present ones", () => {
    expect(bodyOf(all, changes([bounds, "4"]))).toEqual({ custom_ipolicy: { minmax: [{ min: { "cpu-count": 1 }, max: { "cpu-count": 4 } }] } });
    expect((all.bases?.[0]?.value as { max: object }[])[0]?.max).toEqual({ "cpu-count": 8 });
  });
});

describe("effects", () => {
  it("depend on the guest", () => {
    expect(effectOf(balance, { isRunning: true, isHot: false })).toBe("at once");
    expect(effectOf(vcpus, { isRunning: true, isHot: true })).toBe("at the next start");
    expect(effectOf(ip, { isRunning: true, isHot: true })).toBe("at once where possible, otherwise at the next start");
    expect(effectOf(ip, { isRunning: true, isHot: false })).toBe("at the next start");
    expect(effectOf(vcpus, { isRunning: false, isHot: true })).toBe("when it is started");
    expect(effectOf(vcpus, null)).toBe("for each running instance, at its next start");
    expect([vcpus, ip, balance].map((one) => waitsForStart(one, { isRunning: true, isHot: true }))).toEqual([true, false, false]);
    expect(waitsForStart(ip, { isRunning: true, isHot: false })).toBe(true);
    expect(waitsForStart(vcpus, { isRunning: false, isHot: false })).toBe(false);
  });
});

describe("others' changes", () => {
  it("are found, with conflicts", () => {
    const now: Settings = { ...all, serial_no: 4, settings: [{ ...vcpus, value: 4, source: "own" }, { ...maxmem, value: 600 }, balance, ip, link, bounds, gateway] };
    const found = meanwhileOf(all, now, entered([vcpus, "2"]));
    expect(found.map((one) => [one.setting.name, one.before, one.now, one.isEntered])).toEqual([["vcpus", "1", "4", true], ["maxmem", "512 MiB", "600 MiB", false]]);
    expect(meanwhileOf(all, { ...all, serial_no: 9 }, new Map())).toEqual([]);
  });
});

it("shows bounds and origins beside the field", () => {
  expect(boundsOf(vcpus)).toBe("the policy allows 1 to 8");
  expect(boundsOf(be("p", { minimum: 0, maximum: 100 }))).toBe("0 to 100");
  expect(boundsOf(be("p", { minimum: 1 }))).toBe("at least 1");
  expect(boundsOf(be("p"))).toBe("");
  expect([vcpus, maxmem, link, gateway].map(originOf)).toEqual(["default", "own value", "from the cluster", ""]);
});

it("reads sizes, choices and tags", () => {
  expect(["512", "512m", "1.5 GiB", "2t", "4g", "x", "-1"].map(mibOf)).toEqual([512, 512, 1536, 2097152, 4096, null, null]);
  expect(valueOf(be("speed", { choices: [9600, 19200] }), "9600").value).toBe(9600);
  expect(valueOf(balance, "false").value).toBe(false);
  expect(tagChanges(["a", "b"], "b, c c")).toEqual({ added: ["c"], removed: ["a"] });
});
