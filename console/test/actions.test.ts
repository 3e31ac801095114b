import { describe, expect, it } from "vitest";
import { commandOf, curlOf, quoted } from "../src/actions/commands";
import vectors from "./commands.json";

// tests/unit/cli/test_console_commands.py lets the commands' own parsers read the same lines.
describe("an action as a command", () => {
  for (const [operation, values, line] of vectors as [string, Record<string, unknown>, string | null][])
    it(`${operation}: ${line ?? "has no command"}`, () => {
      expect(commandOf(operation, values)).toBe(line);
    });

  it("quotes for a shell", () => {
    expect(quoted("web1.example.com")).toBe("web1.example.com");
    expect(quoted("a b")).toBe("'a b'");
    expect(quoted("it's; rm -rf /")).toBe("'it'\\''s; rm -rf /'");
    expect(quoted("")).toBe("''");
  });

  it("is a curl line as well", () => {
    const request = { method: "PUT" as const, path: "/2/instances/web1/migrate", query: { "dry-run": 1 }, body: { mode: "live" } };
    expect(curlOf(request, "https://cluster:5080")).toBe(
      `curl --cacert rapi.pem -u USER -X PUT -H 'Content-Type: application/json' -d '{"mode":"live"}' 'https://cluster:5080/2/instances/web1/migrate?dry-run=1'`,
    );
  });
});
