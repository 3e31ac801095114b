import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { isChange, objectsOf, reduce, spoken, summaryOf } from "../src/core/reducer";
import type { Action, StreamEvent } from "../src/core/reducer";
import { initialState } from "../src/core/state";
import type { AnyRow, Kind, State } from "../src/core/state";

/** A stream as the server sent it: two instances start, one gets a tag, one is removed. */
function recorded(): StreamEvent[] {
  const text = readFileSync(new URL("./recorded/events.txt", import.meta.url), "utf8");
  return text.split("\n\n").filter((block) => block.includes("event: ")).map((block) => {
    const part = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1] ?? null;
    return { number: part("id"), kind: part("event") ?? "", content: JSON.parse(part("data") ?? "{}") as AnyRow };
  });
}

const run = (state: State, ...actions: Action[]) => actions.reduce(reduce, state);
const rows = (kind: Kind, ...found: AnyRow[]): Action => ({ type: "rows", kind, keys: null, rows: found });
const events = (...found: StreamEvent[]): Action => ({ type: "events", events: found });
const event = (kind: string, content: AnyRow, number: string | null = null): StreamEvent => ({ kind, content, number });

function loaded(): State {
  return run(
    initialState(),
    rows("instance", { name: "web1.example.com", pnode: "node1", snodes: [] }, { name: "web2.example.com", pnode: "node2", snodes: ["node1"] }, { name: "web8.example.com", pnode: "node2" }),
    rows("node", { name: "node1" }, { name: "node2" }),
    rows("job"),
  );
}

describe("the reducer with a recorded stream", () => {
  const state = run(loaded(), events(...recorded()));

  it("continues from the last number", () => {
    expect(state.last).toBe("2-99-2");
  });

  it("shows the jobs at once, and requests their rows", () => {
    expect(state.tables.job.rows.get("19")?.["status"]).toBe("success");
    expect([...state.tables.job.stale]).toEqual(["19", "20", "21", "22"]);
  });

  it("requests what has changed, with the nodes of changed instances", () => {
    expect([...state.tables.instance.stale].sort()).toEqual(["web1.example.com", "web2.example.com", "web8.example.com"]);
    expect([...state.tables.node.stale].sort()).toEqual(["node1", "node2"]);
  });

  it("removes what is removed at once", () => {
    expect(state.tables.instance.rows.has("web8.example.com")).toBe(false);
  });

  it("gives the same state whether the stream is cut anywhere or not", () => {
    const all = recorded();
    for (let cut = 1; cut < all.length; cut += 1)
      expect(run(loaded(), events(...all.slice(0, cut)), events(...all.slice(cut)))).toEqual(state);
  });
});

describe("the reducer", () => {
  it("counts the jobs after which backups may be others", () => {
    const done = (summary: string, more: AnyRow = {}) => event("job", { id: 7, status: "success", summary: [summary], ...more });
    const after = (...found: StreamEvent[]) => run(loaded(), events(...found)).backups;
    expect(after(done("BACKUP_SAVE(web1.example.com)"), done("BACKUP_PRUNE(web1.example.com)"), done("BACKUP_REMOVE(web1.example.com)"))).toBe(3);
    expect(after(done("BACKUP_SAVE(web1.example.com)", { status: "error" }))).toBe(1);
    expect(after(done("BACKUP_SAVE(web1.example.com)", { status: "running" }), done("BACKUP_PREPARE(web1.example.com)"), done("BACKUP_PRUNE(web1.example.com)", { dry_run: true }))).toBe(0);
    expect(after(event("reset", {}))).toBe(1);
  });

  it("counts the jobs after which schedules and images may be others", () => {
    const done = (summary: string) => event("job", { id: 7, status: "success", summary: [summary] });
    const after = (...found: StreamEvent[]) => run(loaded(), events(...found));
    expect(after(done("BACKUP_SCHEDULE_ADD(nightly)"), done("BACKUP_SCHEDULE_RUN(nightly)")).backups).toBe(2);
    expect(after(done("IMAGE_IMPORT(box)"), done("INSTANCE_CREATE(web1.example.com)"), done("INSTANCE_STARTUP(web1.example.com)")).images).toBe(2);
  });

  it("counts a job about backups to its instance", () => {
    expect(objectsOf({ summary: ["BACKUP_SAVE(web1.example.com)"] })).toEqual([["instance", "web1.example.com"]]);
    expect(objectsOf({ summary: ["GROUP_SET_PARAMS(default)"] })).toEqual([["group", "default"]]);
    expect(objectsOf({ summary: ["NETWORK_CONNECT(lab)"] })).toEqual([["network", "lab"]]);
  });

  it("requests all loaded tables after a reset, and keeps their rows meanwhile", () => {
    const state = run(loaded(), events(event("instance", { name: "web1.example.com" })), events(event("reset", {})));
    expect(state.tables.instance.isDue).toBe(true);
    expect(state.tables.instance.stale.size).toBe(0);
    expect(state.tables.instance.rows.size).toBe(3);
    expect(state.tables.group.isDue).toBe(false);
    expect(state.isClusterDue).toBe(true);
  });

  it("drops a requested object that has no row", () => {
    const state = run(loaded(), { type: "rows", kind: "instance", keys: ["web1.example.com"], rows: [] });
    expect([...state.tables.instance.rows.keys()]).toEqual(["web2.example.com", "web8.example.com"]);
  });

  it("requests again what changes while the first answer is on its way, which may be older", () => {
    const first = run(initialState(), { type: "wanted", kind: "job", fields: ["id"] }, { type: "requested", kind: "job", keys: null });
    const done = events(event("job", { id: 7, status: "success", summary: [] }));
    const state = run(first, done, rows("job", { id: 7, status: "running" }));
    expect([...state.tables.job.stale]).toEqual(["7"]);
    expect(run(initialState(), done).tables.job.stale.size).toBe(0);
    expect(run(state, done).tables.job.rows.get("7")?.["status"]).toBe("success");
  });

  it("keeps an object stale that changes while it is requested", () => {
    const key = "web1.example.com";
    const changed = event("instance", { name: key });
    const state = run(loaded(), events(changed), { type: "requested", kind: "instance", keys: [key] }, events(changed), {
      type: "rows", kind: "instance", keys: [key], rows: [{ name: key }],
    });
    expect(state.tables.instance.stale.has(key)).toBe(true);
  });

  it("requests again what could not be loaded", () => {
    const one = run(loaded(), { type: "not-loaded", kind: "instance", keys: ["web1.example.com"], problem: "no" });
    expect(one.tables.instance.stale.has("web1.example.com")).toBe(true);
    const all = run(loaded(), { type: "not-loaded", kind: "instance", keys: null, problem: "no" });
    expect(all.tables.instance).toMatchObject({ isDue: true, problem: "no" });
  });

  it("requests a table again only for fields that it lacks", () => {
    const state = loaded();
    expect(run(state, { type: "wanted", kind: "node", fields: ["name"] })).toBe(state);
    const more = run(state, { type: "wanted", kind: "node", fields: ["bootid"] });
    expect(more.tables.node).toMatchObject({ isDue: true });
    expect(more.tables.node.fields).toContain("bootid");
  });

  it("counts a resumed stream, and says nothing of the first connection", () => {
    const first = run(initialState(), { type: "link", link: "live" });
    expect(first.resumed).toBe(0);
    expect(run(first, { type: "link", link: "lost" }, { type: "link", link: "live" }).resumed).toBe(1);
  });

  it("reports the end of a job of this page, once, and no other job", () => {
    const content = { id: 7, status: "success", summary: ["INSTANCE_STARTUP(web1)"] };
    const state = run(loaded(), { type: "submitted", job: 7 }, events(event("job", content), event("job", { ...content, id: 8 }), event("job", content)));
    expect(state.notices).toEqual([{ id: 1, tone: "good", text: "Instance web1: start: done", job: 7 }]);
  });

  it("shows how far a job is until it ends", () => {
    const content = { id: 7, status: "running", summary: ["INSTANCE_MOVE(web1)"], progress: { text: "disk 0", percent: 37, rate: 1024, left_s: 23 } };
    const state = run(loaded(), events(event("job", content)));
    expect(state.progress.get("7")).toEqual({ text: "disk 0", percent: 37, rate: 1024, leftS: 23 });
    expect(run(state, events(event("job", { id: 7, status: "success", summary: [] }))).progress.size).toBe(0);
  });

  it("says of a dry run that it was only a check", () => {
    const content = { id: 7, status: "error", summary: ["INSTANCE_STARTUP(web1)"], dry_run: true };
    const state = run(loaded(), { type: "submitted", job: 7 }, events(event("job", content, "5-1-1")));
    expect(state.notices[0]?.text).toBe("Instance web1: start: the check found a problem");
    expect(isChange(content)).toBe(false);
    for (const one of ["CLUSTER_VERIFY", "OS_DIAGNOSE", "BACKUP_CHECK(web1)"]) expect(isChange({ summary: [one] })).toBe(false);
    expect(isChange({ summary: ["BACKUP_SAVE(web1)"] })).toBe(true);
    expect(isChange({ summary: ["INSTANCE_STARTUP(web1)"], dry_run: false })).toBe(true);
  });

  it("shows progress until the job ends", () => {
    const going = run(loaded(), events(event("job", { id: 7, progress: { percent: 40, text: "copying", left_s: 9 } })));
    expect(going.progress.get("7")).toEqual({ percent: 40, text: "copying", rate: null, leftS: 9 });
    expect(run(going, events(event("job", { id: 7, status: "success", summary: [] }))).progress.size).toBe(0);
  });

  it("forgets everything at sign-out", () => {
    const state = run(loaded(), events(event("node", { name: "node1" }, "1-2-3")), { type: "signed-out" });
    expect(state).toEqual({ ...initialState(), session: null });
  });

  it("keeps the last notices only", () => {
    const many = Array.from({ length: 9 }, (_, at): Action => ({ type: "notice", tone: "info", text: String(at) }));
    expect(run(initialState(), ...many).notices.map((one) => one.text)).toEqual(["5", "6", "7", "8"]);
  });
});

describe("summaries of jobs", () => {
  it("are said as people say them", () => {
    expect(spoken("INSTANCE_SET_PARAMS(web1)")).toBe("Instance web1: set params");
    expect(spoken("CLUSTER_VERIFY")).toBe("Cluster: verify");
    expect(spoken("CLUSTER_VERIFY_GROUP(825a930f-bd47-4d06-a1b2-0123456789ab)")).toBe("Cluster: verify group");
    expect(spoken("strange")).toBe("strange");
    expect(summaryOf({ summary: ["INSTANCE_STARTUP(a)", "INSTANCE_SHUTDOWN(b)"] })).toBe("Instance a: start, Instance b: shut down");
  });

  it("name their objects", () => {
    expect(objectsOf({ summary: ["INSTANCE_CREATE(web1.example.com)", "TAGS_SET", "NODE_ADD(node2)"] })).toEqual([
      ["instance", "web1.example.com"], ["node", "node2"],
    ]);
  });
});
