import { describe, expect, it } from "vitest";
import { mismatchOf, nameFor, pieceOf, rateOf, sampled, shortDigest, standingOf, waitOf } from "../src/core/images";
import type { Sample, Sending, Upload } from "../src/core/images";
import { reduce } from "../src/core/reducer";
import { initialState } from "../src/core/state";

const MIB = 1024 * 1024;
const upload = (more: Partial<Upload> = {}): Upload => ({ id: "a1", name: "box", size: 100 * MIB, offset: 0, state: "receiving", begun: 1, job: null, ...more });
const sending = (more: Partial<Sending> = {}): Sending => ({ id: "a1", offset: 25 * MIB, isSending: true, rate: 5 * MIB, problem: null, ...more });

describe("the progress of an upload", () => {
  it("has percent, rate and the time that is left", () => {
    expect(standingOf(upload(), sending())).toEqual({ percent: 25, rate: 5 * MIB, leftS: 15 });
  });

  it("has no time before a rate is known, and none while nothing is sent", () => {
    expect(standingOf(upload({ offset: 10 * MIB }), undefined)).toEqual({ percent: 10, rate: null, leftS: null });
    expect(standingOf(upload(), sending({ rate: null })).leftS).toBeNull();
    expect(standingOf(upload(), sending({ isSending: false })).leftS).toBeNull();
  });

  it("is the further one of what the server and the page know", () => {
    expect(standingOf(upload({ offset: 50 * MIB }), sending()).percent).toBe(50);
  });

  it("is measured over the last seconds only", () => {
    let samples: readonly Sample[] = [{ at: 0, offset: 0 }];
    expect(rateOf(samples)).toBeNull();
    samples = sampled(samples, { at: 1000, offset: MIB });
    expect(rateOf(samples)).toBe(MIB);
    samples = sampled(sampled(samples, { at: 30_000, offset: 2 * MIB }), { at: 31_000, offset: 12 * MIB });
    expect(rateOf(samples)).toBe(10 * MIB);
  });

  it("is seen every two seconds, within bounds", () => {
    expect(pieceOf(null)).toBe(MIB);
    expect(pieceOf(5 * MIB)).toBe(10 * MIB);
    expect(pieceOf(1000 * MIB)).toBe(64 * MIB);
  });

  it("waits longer after each failure, up to half a minute", () => {
    expect([1, 2, 3, 9].map(waitOf)).toEqual([1, 2, 4, 30]);
  });

  it("is part of the state until the upload is gone", () => {
    const begun = reduce(initialState(), { type: "upload", upload: sending() });
    expect(begun.uploads.get("a1")?.offset).toBe(25 * MIB);
    expect(reduce(begun, { type: "upload-gone", id: "a1" }).uploads.size).toBe(0);
  });
});

describe("the file with which an upload continues", () => {
  const known = { file: "a.qcow2", size: 100 * MIB, modified: 7 };
  const file = (more: object = {}) => ({ name: "a.qcow2", size: 100 * MIB, lastModified: 7, ...more });

  it("must be the one that was begun", () => {
    expect(mismatchOf(upload(), known, file())).toBeNull();
    expect(mismatchOf(upload(), known, file({ lastModified: 8 }))).toBe("changed");
    expect(mismatchOf(upload(), known, file({ name: "b.qcow2" }))).toBe("changed");
    expect(mismatchOf(upload(), known, file({ size: 1 }))).toBe("size");
  });

  it("is known by its length only if another browser has begun", () => {
    expect(mismatchOf(upload(), null, file({ name: "b.qcow2" }))).toBeNull();
    expect(mismatchOf(upload(), null, file({ size: 1 }))).toBe("size");
  });
});

describe("an image", () => {
  it("gets a name from its file", () => {
    expect(nameFor("debian-12-nocloud-amd64.qcow2")).toBe("debian-12-nocloud-amd64");
    expect(nameFor("My box (1).img")).toBe("My-box-1-");
    expect(nameFor("..hidden.raw")).toBe("hidden");
  });

  it("has a digest to compare", () => {
    expect(shortDigest("0123456789abcdef")).toBe("0123456789ab…");
    expect(shortDigest(undefined)).toBe("–");
  });
});
