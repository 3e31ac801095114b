import { describe, expect, it } from "vitest";
import { compileFilter, fieldsOf, parseFilter, searchOf } from "../src/core/filter";
import vectors from "./filters.json";

// tests/unit/protocols/test_console_filters.py holds the server's parser to the same table.
describe("the filter language", () => {
  for (const [text, expected] of vectors as [string, unknown][])
    it(`parses ${text} as the server does`, () => {
      if (expected === null) expect(() => parseFilter(text)).toThrow();
      else expect(parseFilter(text)).toEqual(expected);
    });

  const passes = (text: string, row: Record<string, unknown>) => compileFilter(parseFilter(text))(row);

  it("compares numbers, and sizes in MiB", () => {
    expect(passes("be/maxmem >= 2g", { "be/maxmem": 2048 })).toBe(true);
    expect(passes("be/maxmem > 2g", { "be/maxmem": 2048 })).toBe(false);
    expect(passes("be/vcpus < 10", { "be/vcpus": 9 })).toBe(true);
  });

  it("lets a missing value pass no comparison", () => {
    expect(passes("mfree > 1", {})).toBe(false);
    expect(passes("mfree != 1", {})).toBe(false);
    expect(passes("not mfree", {})).toBe(true);
  });

  it("looks into lists", () => {
    expect(passes("prod in tags", { tags: ["blue", "prod"] })).toBe(true);
    expect(passes("tags == prod", { tags: ["blue", "prod"] })).toBe(true);
    expect(passes("tags", { tags: [] })).toBe(false);
  });

  it("accepts a host's first label", () => {
    expect(passes("pnode == node1", { pnode: "node1.example.com" })).toBe(true);
    expect(passes("pnode == node", { pnode: "node1.example.com" })).toBe(false);
  });

  it("matches patterns of both kinds", () => {
    expect(passes("name =* web?.*", { name: "web1.example.com" })).toBe(true);
    expect(passes("name =* web", { name: "web1" })).toBe(false);
    expect(passes("name =~ m/WEB/i", { name: "web1" })).toBe(true);
  });

  it("names the fields that it reads", () => {
    expect(fieldsOf(parseFilter("a == 1 and not (b or x in c)"))).toEqual(["a", "b", "c"]);
  });

  it("takes plain words for a search, and fields for a filter", () => {
    const known = new Set(["name", "offline"]);
    expect(searchOf("web prod", known)?.test({ name: "web1", tags: ["prod"] })).toBe(true);
    expect(searchOf("web prod", known)?.test({ name: "web1", tags: [] })).toBe(false);
    expect(searchOf("offline", known)?.fields).toEqual(["offline"]);
    expect(() => searchOf("offlin == 1", known)).toThrow('unknown field "offlin"');
    expect(searchOf("  ", known)).toBeNull();
  });
});
