import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { beginUpload, continueUpload, pauseUpload, removeUpload } from "../src/api/upload";
import type { Upload } from "../src/core/images";
import { store } from "../src/core/store";

const MIB = 1024 * 1024;
const SIZE = 2 * MIB + 7;
const file = () => new File([new Uint8Array(SIZE)], "box.qcow2", { lastModified: 7 });

/** The server's side of one upload; `failures` are what the next requests with a piece get instead of an answer. */
class Server {
  offset = 0;
  pieces: string[] = [];
  failures: (number | "lost" | "lost answer")[] = [];
  isGone = false;

  readonly fetch = async (url: string, options: RequestInit): Promise<Response> => {
    const { method, headers, body } = options;
    if (method === "POST") return this.answer();
    if (this.isGone) return Response.json({ explain: "it does not exist" }, { status: 404 });
    if (method === "DELETE") this.isGone = true;
    if (method === "PUT") {
      const range = (headers as Record<string, string>)["Content-Range"] ?? "";
      this.pieces.push(range);
      const failure = this.failures.shift();
      if (typeof failure === "number") return Response.json({ explain: "refused" }, { status: failure });
      if (failure === "lost") throw new TypeError("connection lost");
      const [, first, last] = /^bytes (\d+)-(\d+)\//.exec(range) ?? [];
      if (Number(first) !== this.offset) return Response.json({ explain: "another offset" }, { status: 409 });
      expect((body as Blob).size).toBe(Number(last) - Number(first) + 1);
      this.offset = Number(last) + 1;
      if (failure === "lost answer") throw new TypeError("connection lost");
    }
    expect(url).toMatch(/^\/2\/image-uploads/);
    return this.answer();
  };

  answer(): Response {
    const upload: Upload = { id: "a1", name: "box", size: SIZE, offset: this.offset, state: "receiving", begun: 1, job: this.offset === SIZE ? 17 : null };
    return Response.json(upload);
  }
}

describe("an upload", () => {
  let server: Server;
  const kept = new Map<string, string>();
  beforeEach(() => {
    server = new Server();
    vi.useFakeTimers();
    vi.stubGlobal("fetch", server.fetch);
    vi.stubGlobal("addEventListener", () => undefined);
    vi.stubGlobal("removeEventListener", () => undefined);
    vi.stubGlobal("localStorage", { getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, value: string) => kept.set(key, value), removeItem: (key: string) => kept.delete(key) });
  });
  afterEach(() => {
    pauseUpload("a1");
    vi.useRealTimers();
    vi.unstubAllGlobals();
    store.dispatch({ type: "signed-out" });
    kept.clear();
  });
  const shown = () => store.state.uploads.get("a1");

  it("is sent in pieces, and its job is watched", async () => {
    await beginUpload(file(), { name: "box" });
    await vi.runAllTimersAsync();
    expect(server.offset).toBe(SIZE);
    expect(server.pieces[0]).toBe(`bytes 0-${MIB - 1}/${SIZE}`);
    expect(store.state.own.has("17")).toBe(true);
    expect(shown()).toBeUndefined();
    expect(kept.size).toBe(0);
  });

  it("continues where the server is after lost requests, lost answers and refusals that pass", async () => {
    server.failures = ["lost", "lost answer", 503, 507, 409];
    await beginUpload(file(), { name: "box" });
    await vi.advanceTimersByTimeAsync(500);
    expect(shown()?.problem).toContain("does not answer");
    await vi.runAllTimersAsync();
    expect(server.offset).toBe(SIZE);
  });

  it("ends with the reason if it cannot continue", async () => {
    server.failures = [400];
    await beginUpload(file(), { name: "box" });
    await vi.runAllTimersAsync();
    expect(shown()).toMatchObject({ isSending: false, problem: "refused" });
    expect(server.pieces).toHaveLength(1);
  });

  it("is paused and continued with the same file only", async () => {
    server.failures = ["lost"];
    const upload = await beginUpload(file(), { name: "box" });
    await vi.advanceTimersByTimeAsync(500);
    pauseUpload("a1");
    await vi.runAllTimersAsync();
    expect(shown()).toMatchObject({ isSending: false, offset: 0 });
    expect(continueUpload(upload, new File([new Uint8Array(SIZE)], "box.qcow2", { lastModified: 8 }))).toContain("has changed");
    expect(continueUpload(upload, new File(["x"], "box.qcow2", { lastModified: 7 }))).toContain("another length");
    expect(continueUpload(upload, file())).toBeNull();
    await vi.runAllTimersAsync();
    expect(server.offset).toBe(SIZE);
  });

  it("is forgotten once it is removed", async () => {
    server.failures = ["lost"];
    await beginUpload(file(), { name: "box" });
    await vi.advanceTimersByTimeAsync(500);
    await removeUpload("a1");
    await vi.runAllTimersAsync();
    expect(server.isGone).toBe(true);
    expect(shown()).toBeUndefined();
    expect(kept.size).toBe(0);
  });
});
