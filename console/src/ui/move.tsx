/** The move of one instance to one node: the plan and its checks first, then one click. */
import { useState } from "preact/hooks";
import { submit } from "../actions/actions";
import type { OperationId } from "../actions/actions";
import { commandOf, curlOf } from "../actions/commands";
import { reason } from "../api/client";
import type { Request } from "../api/client";
import { useTrial } from "../api/trial";
import { short } from "../core/format";
import type { AnyRow } from "../core/state";
import { t } from "../texts/en";
import { Badge, Icon, Problem } from "./bits";
import { AsCommand, Dialog } from "./dialog";

/** Templates whose disks are only on the instance's node, so that they must be copied. */
const LOCAL = ["file", "plain"];

/** A running guest migrates; one that does not run moves with its disks if these are local, and is failed over otherwise. */
export function moveOf(row: AnyRow, target: string): { id: OperationId; request: Request } {
  const way = row["status"] === "running" ? "migrate" : LOCAL.includes(String(row["disk_template"])) ? "move" : "failover";
  const name = String(row["name"]);
  return {
    id: `put_instances_name_${way}`,
    request: {
      method: "PUT", path: `/2/instances/${encodeURIComponent(name)}/${way}`,
      // The nodes of mirrored disks are fixed: such an instance can move only to its secondary node.
      body: row["disk_template"] === "drbd" ? {} : { target_node: target },
    },
  };
}

export function MoveDialog({ row, target, onClose }: { row: AnyRow; target: string; onClose: () => void }) {
  const { id, request } = moveOf(row, target);
  const secondaries = (row["snodes"] as string[] | undefined) ?? [];
  const isWrongNode = row["disk_template"] === "drbd" && !secondaries.includes(target);
  const trial = useTrial(isWrongNode ? null : { ...request, body: { ...(request.body as object), dry_run: true } });
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const run = () => {
    setBusy(true);
    submit(request).then(onClose, (error: unknown) => { setProblem(reason(error)); setBusy(false); });
  };
  const isGood = !isWrongNode && !trial.isBusy && !trial.problem;
  const name = String(row["name"]);
  return (
    <Dialog title={`${t.map.move} ${short(name)} ${t.map.to} ${short(target)}`} onClose={onClose}>
      <p>{id === "put_instances_name_migrate" ? t.acts.migrateWhat : id === "put_instances_name_move" ? t.map.moveWhat : t.map.failoverWhat}</p>
      <p class="plan"><code>{short(row["pnode"])}</code><Icon name="arrow" /><code>{short(target)}</code></p>
      <div aria-live="polite">
        {isWrongNode && <Problem text={`${t.map.mirrored} ${secondaries.map(short).join(", ") || "–"}.`} />}
        {trial.isBusy && <p class="faint">{t.create.checking}</p>}
        {trial.problem && <Problem text={trial.problem} />}
        {isGood && <p><Badge tone="good">{t.acts.dryRunGood}</Badge></p>}
        {trial.messages.length > 0 && <ul class="why">{trial.messages.map((one) => <li key={one}>{one}</li>)}</ul>}
      </div>
      {problem && <Problem text={problem} />}
      <AsCommand command={commandOf(id, { instance: name, ...(request.body as object) })} curl={curlOf(request, location.origin)} />
      <footer>
        <button onClick={onClose}>{t.acts.cancel}</button>
        <button class="primary" disabled={!isGood || isBusy} onClick={run}>{t.map.move}</button>
      </footer>
    </Dialog>
  );
}
