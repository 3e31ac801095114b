import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Refused, send } from "../src/api/client";

const changed = () => Promise.reject(new TypeError("network changed"));
const answer = () => Promise.resolve(new Response('{"name":"admin"}', { status: 200 }));

describe("requests", () => {
  const fetched = vi.fn<() => Promise<Response>>();
  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("fetch", fetched);
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
    fetched.mockReset();
  });

  it("that only read are sent again after a change of the network", async () => {
    fetched.mockImplementationOnce(changed).mockImplementationOnce(changed).mockImplementation(answer);
    const found = send({ method: "GET", path: "/2/session" });
    await vi.runAllTimersAsync();
    expect(await found).toEqual({ name: "admin" });
    expect(fetched).toHaveBeenCalledTimes(3);
  });

  it("that only read are sent again after a change while their answer came", async () => {
    const cut = () => Promise.resolve({ text: changed } as unknown as Response);
    fetched.mockImplementationOnce(cut).mockImplementation(answer);
    const found = send({ method: "GET", path: "/2/session" });
    await vi.runAllTimersAsync();
    expect(await found).toEqual({ name: "admin" });
    expect(fetched).toHaveBeenCalledTimes(2);
  });

  it("end with the reason if the server stays away", async () => {
    fetched.mockImplementation(changed);
    const found = send({ method: "GET", path: "/2/session" }).catch((error: unknown) => error);
    await vi.runAllTimersAsync();
    expect(await found).toBeInstanceOf(Refused);
    expect(fetched).toHaveBeenCalledTimes(3);
  });

  it("that change something are sent once: the server may have carried them out", async () => {
    fetched.mockImplementation(changed);
    await expect(send({ method: "POST", path: "/2/session" })).rejects.toBeInstanceOf(Refused);
    expect(fetched).toHaveBeenCalledTimes(1);
  });
});
