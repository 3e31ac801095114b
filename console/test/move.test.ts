import { expect, test } from "vitest";
import { moveOf } from "../src/ui/move";

test.each([
  [{ status: "running", disk_template: "file" }, "migrate", { target_node: "node2" }],
  [{ status: "running", disk_template: "drbd" }, "migrate", {}],
  [{ status: "ADMIN_down", disk_template: "plain" }, "move", { target_node: "node2" }],
  [{ status: "ADMIN_down", disk_template: "sharedfile" }, "failover", { target_node: "node2" }],
  [{ status: "ERROR_down", disk_template: "drbd" }, "failover", {}],
])("%o goes to another node by %s", (row, way, body) => {
  const { id, request } = moveOf({ name: "web1", ...row }, "node2");
  expect([id, request.path, request.body]).toEqual([`put_instances_name_${way}`, `/2/instances/web1/${way}`, body]);
});
