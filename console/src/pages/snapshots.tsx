/** The snapshots of an instance's disks, on its page. */
import { useAnswer } from "../api/objects";
import { may } from "../core/access";
import { clock, size } from "../core/format";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { Problem } from "../ui/bits";
import { FormButton } from "../ui/form";
import type { Form } from "../ui/form";

interface Snapshot {
  readonly name: string;
  readonly ctime: number;
  /** MiB of the disks. */
  readonly size: number;
  /** MiB of the guest's memory, if it was saved. */
  readonly memory: number | null;
  readonly consistency: string;
}

const take = (instance: string): Form => ({
  operation: "post_instances_name_snapshots", label: t.snapshots.take, what: t.snapshots.takeWhat, fixed: { instance }, first: ["snapshot", "memory"],
});

const rollback = (instance: string, { name, memory }: Snapshot): Form => ({
  operation: "put_instances_name_snapshots_name_rollback", label: t.snapshots.rollback,
  what: memory === null ? t.snapshots.rollbackWhat(name) : t.snapshots.continueWhat(name),
  fixed: { instance, snapshot: name }, first: memory === null ? ["stop"] : ["stop", "no_memory"], isDangerous: true,
});

const remove = (instance: string, snapshot: string): Form => ({
  operation: "delete_instances_name_snapshots_name", label: t.acts.remove, what: t.snapshots.removeWhat(snapshot), fixed: { instance, snapshot }, first: [],
});

/** `version` changes with the instance, which a snapshot changes, too. */
export function Snapshots({ name, version }: { name: string; version: unknown }) {
  const session = useStore((state) => state.session);
  const isOpen = may(session, "get_instances_name_snapshots");
  const answer = useAnswer<Snapshot[]>(isOpen ? { method: "GET", path: `/2/instances/${name}/snapshots` } : null, version);
  if (!isOpen) return null;
  const all = [...(answer.value ?? [])].reverse();
  return (
    <section class="card" aria-label={t.snapshots.title}>
      <header><h3>{t.snapshots.title}</h3><FormButton form={take(name)} name={name} /></header>
      {answer.problem && <Problem text={answer.problem} onAgain={answer.again} />}
      {answer.value?.length === 0 && <p class="faint">{t.snapshots.none}</p>}
      <ul class="lines">{all.map((one) => (
        <li key={one.name}>
          <span>{one.name}</span>
          <span class="what"><small>{clock(one.ctime)} · {size(one.size)}{one.memory === null ? "" : ` + ${size(one.memory)}`} · {t.backups.consistency[one.consistency] ?? one.consistency}</small></span>
          <span class="page-actions">{[rollback(name, one), remove(name, one.name)].map((form) => <FormButton key={form.operation} form={form} name={one.name} isSmall />)}</span>
        </li>
      ))}</ul>
    </section>
  );
}
