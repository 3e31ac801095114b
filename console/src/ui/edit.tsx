/** Editing in place: the settings of an object as fields, beside the difference, its effect and its commands. */
import { useEffect, useId, useMemo, useState } from "preact/hooks";
import { INSTANCE_ACTS, submit } from "../actions/actions";
import type { OperationId } from "../actions/actions";
import { commandOf, curlOf } from "../actions/commands";
import { reason, send } from "../api/client";
import type { Request } from "../api/client";
import { useAnswer } from "../api/objects";
import { useTrial } from "../api/trial";
import { may } from "../core/access";
import { failureOf } from "../core/failure";
import { bodyOf, boundsOf, changesOf, effectOf, keyOf, meanwhileOf, originOf, shown, tagChanges, textIn, valueOf, waitsForStart } from "../core/edits";
import type { Change, Entered, Guest, Setting, Settings } from "../core/edits";
import { FINAL } from "../core/reducer";
import type { AnyRow } from "../core/state";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { Badge, JobStatus, ObjectLink, Problem } from "./bits";
import { ActButton, AsCommand } from "./dialog";
import { Loading } from "./listpage";
import { useTable } from "./rows";

export type Editable = "instance" | "node" | "group" | "network" | "cluster";

/** The operations that change an object of each kind. */
export const EDITS: Readonly<Record<Editable, { readonly modify: OperationId; readonly method: Request["method"]; readonly addTags: OperationId; readonly removeTags: OperationId }>> = {
  instance: { modify: "put_instances_name_modify", method: "PUT", addTags: "put_instances_name_tags", removeTags: "delete_instances_name_tags" },
  node: { modify: "post_nodes_name_modify", method: "POST", addTags: "put_nodes_name_tags", removeTags: "delete_nodes_name_tags" },
  group: { modify: "put_groups_name_modify", method: "PUT", addTags: "put_groups_name_tags", removeTags: "delete_groups_name_tags" },
  network: { modify: "put_networks_name_modify", method: "PUT", addTags: "put_networks_name_tags", removeTags: "delete_networks_name_tags" },
  cluster: { modify: "put_cluster_modify", method: "PUT", addTags: "put_tags", removeTags: "delete_tags" },
};

interface Step {
  readonly operation: OperationId;
  readonly request: Request;
  readonly values: AnyRow;
}

interface Props {
  readonly kind: Editable;
  readonly name: string;
  /** Changes when the object may have changed. */
  readonly version: unknown;
  readonly isRunning: boolean;
  readonly onClose: () => void;
}

const pathOf = (kind: Editable, name: string, rest: string) => (kind === "cluster" ? `/2/${rest}` : `/2/${kind}s/${encodeURIComponent(name)}/${rest}`);

export function Edit(props: Props) {
  const answer = useAnswer<Settings>({ method: "GET", path: pathOf(props.kind, props.name, "settings") }, props.version);
  if (!answer.value) return <section class="card">{answer.problem ? <Problem text={answer.problem} onAgain={answer.again} /> : <Loading />}</section>;
  return <Form {...props} now={answer.value} onAgain={answer.again} />;
}

function Form({ kind, name, isRunning, onClose, now, onAgain }: Props & { now: Settings; onAgain: () => void }) {
  const session = useStore((state) => state.session);
  const [began, setBegan] = useState(now);
  const [entered, setEntered] = useState<Entered>(new Map());
  const [tags, setTags] = useState(now.tags.join(", "));
  const [text, setText] = useState("");
  const [isOwnOnly, setOwnOnly] = useState(false);
  const [extra, setExtra] = useState<readonly Setting[]>([]);
  const [isHot, setHot] = useState(true);
  const [steps, setSteps] = useState<readonly Step[] | null>(null);
  const [refusal, setRefusal] = useState<string | null>(null);
  const [isAnew, setAnew] = useState(false);
  useEffect(() => {
    if (!isAnew) return;
    setAnew(false); setBegan(now); setEntered(new Map()); setExtra([]); setTags(now.tags.join(", ")); setSteps(null);
  }, [now]);
  const settings = useMemo(() => ({ ...began, settings: [...began.settings, ...extra] }), [began, extra]);
  const guest = kind === "instance" ? { isRunning, isHot } : null;
  const changes = useMemo(() => changesOf(settings.settings, entered), [settings, entered]);
  const difference = tagChanges(began.tags, tags);
  const differs = began.serial_no === now.serial_no ? [] : meanwhileOf(began, now, entered);
  // A change of what is no setting, for example by automatic recovery, concerns nobody who edits.
  const meanwhile = differs.length === 0 && began.tags.join() === now.tags.join() ? null : differs;
  const serial = meanwhile === null ? now.serial_no : began.serial_no;
  const set = (setting: Setting, value: string | null | undefined) => setEntered((before) => {
    const next = new Map(before);
    if (value === undefined) next.delete(keyOf(setting.path));
    else next.set(keyOf(setting.path), value);
    return next;
  });
  const mayModify = may(session, EDITS[kind].modify);
  const mayTag = may(session, EDITS[kind].addTags) && may(session, EDITS[kind].removeTags);
  const canHot = changes.some((one) => one.setting.applies === "hotplug") && isRunning;
  const planned = stepsOf(kind, name, { ...settings, serial_no: serial }, changes, difference, canHot && isHot);
  /** Nothing was changed. If the object is another one by now, the form comes back with what was entered, and shows the new values. */
  const onRefused = async (problem: string) => {
    const latest = await send<Settings>({ method: "GET", path: pathOf(kind, name, "settings") });
    if (latest.serial_no === serial) return;
    onAgain();
    setRefusal(problem);
    setSteps(null);
  };
  // What was read before the jobs ended may lack their changes.
  const begin = () => { setAnew(true); onAgain(); };
  if (steps) return <Applying kind={kind} name={name} steps={steps} changes={changes} guest={guest} onAgain={begin} onRefused={onRefused} onClose={onClose} />;
  const words = text.toLowerCase();
  const visible = settings.settings.filter((one) =>
    (!isOwnOnly || (one.source ?? "own") === "own" || entered.has(keyOf(one.path))) && `${one.title} ${one.name} ${one.doc ?? ""}`.toLowerCase().includes(words));
  const titles = [...new Set(visible.map((one) => one.title))];
  return (
    <section class="card edit" aria-label={`${t.edit.title}: ${name}`}>
      <header><h2>{t.edit.title}</h2><button onClick={onClose}>{t.acts.close}</button></header>
      <div class="with-panel">
        <div class="edit-fields">
          <div class="toolbar">
            <input type="search" aria-label={t.edit.find} placeholder={t.edit.find} value={text} onInput={(event) => setText(event.currentTarget.value)} />
            <label class="check"><input type="checkbox" checked={isOwnOnly} onChange={(event) => setOwnOnly(event.currentTarget.checked)} /><span>{t.edit.onlyOwn}</span></label>
          </div>
          {mayTag && (
            <label class="field"><span>{t.edit.tags}</span>
              <input autocomplete="off" spellcheck={false} value={tags} onInput={(event) => setTags(event.currentTarget.value)} /><small>{t.edit.tagsHint}</small></label>
          )}
          {mayModify && titles.map((title, index) => (
            <details class="edit-section" key={title} open={index === 0 || words !== "" || isOwnOnly}>
              <summary><h3>{title}</h3></summary>
              <div class="edit-list">{visible.filter((one) => one.title === title).map((one) => (
                <Field key={keyOf(one.path)} setting={one} entered={entered.get(keyOf(one.path))} onEntered={(value) => set(one, value)} />
              ))}</div>
              {(began.open ?? []).map((part) => settings.settings.find((one) => one.title === title && (one.path[0] === part || one.path[0] === "os_name")) && (
                <Further key={part} onAdd={(added, value) => {
                  const setting: Setting = { path: [part, added], title, name: added, value: "", source: "", reset: null };
                  if (!settings.settings.some((one) => keyOf(one.path) === keyOf(setting.path))) setExtra([...extra, setting]);
                  set(setting, value);
                }} />
              ))}
            </details>
          ))}
        </div>
        <aside>
          <Preview changes={changes} difference={difference} guest={guest} steps={planned} meanwhile={meanwhile}
            isHot={isHot} onHot={canHot ? setHot : null} onTakeOver={() => { setBegan(now); setRefusal(null); }}
            refusal={refusal} onSubmit={() => { setRefusal(null); setSteps(planned); }} />
        </aside>
      </div>
    </section>
  );
}

function stepsOf(kind: Editable, name: string, settings: Settings, changes: readonly Change[], tags: { added: string[]; removed: string[] }, isHot: boolean): Step[] {
  const of = kind === "cluster" ? {} : { [kind]: name };
  const edit = EDITS[kind];
  const steps: Step[] = [];
  // The first step is refused if the object has changed since the form began; after it, the object is another one anyway.
  const expected = settings.serial_no;
  if (changes.length) {
    const body = { ...bodyOf(settings, changes), ...(isHot ? { hotplug_if_possible: true } : {}), expected_serial: expected };
    steps.push({ operation: edit.modify, request: { method: edit.method, path: pathOf(kind, name, "modify"), body }, values: { ...of, ...body } });
  }
  const taggings = [["PUT", edit.addTags, tags.added], ["DELETE", edit.removeTags, tags.removed]] as const;
  for (const [method, operation, tag] of taggings) {
    const query = { tag, ...(steps.length ? {} : { "expected-serial": expected }) };
    if (tag.length) steps.push({ operation, request: { method, path: pathOf(kind, name, "tags"), query }, values: { ...of, tags: tag } });
  }
  return steps;
}

function Field({ setting, entered, onEntered }: { setting: Setting; entered: string | null | undefined; onEntered: (value: string | null | undefined) => void }) {
  const id = useId();
  const isOwn = (setting.source ?? "own") === "own";
  const isReset = entered === null;
  const text = isReset ? textIn(setting, setting.inherited) : entered ?? textIn(setting, setting.value);
  const problem = entered === undefined || isReset ? null : valueOf(setting, entered).problem;
  const isChanged = entered !== undefined;
  const choices = setting.form === "flag" ? [true, false] : setting.choices ?? [];
  const put = (value: string) => onEntered(value === textIn(setting, setting.value) ? undefined : value);
  const hint = [setting.doc, boundsOf(setting), setting.applies && setting.applies !== "now" ? t.edit.effects[setting.applies] : ""].filter(Boolean).join(" · ");
  return (
    <div class={`edit-field${isChanged ? " changed" : ""}`}>
      <label for={id}>{setting.name}</label>
      {choices.length ? (
        <select id={id} aria-describedby={`${id}-hint`} value={text} onChange={(event) => put(event.currentTarget.value)}>
          {!choices.some((one) => String(one) === text) && <option value={text}>{text}</option>}
          {choices.map((one) => <option key={String(one)} value={String(one)}>{shown(setting, one)}</option>)}
        </select>
      ) : (
        <input id={id} aria-describedby={`${id}-hint`} aria-invalid={problem ? true : undefined} autocomplete="off" spellcheck={false} autocapitalize="none"
          inputMode={setting.form === "integer" ? "numeric" : undefined} value={text} onInput={(event) => put(event.currentTarget.value)} />
      )}
      <span class="origin">
        <small>{isReset ? t.edit.origins[setting.inherited_from ?? ""] ?? "" : originOf(setting)}</small>
        {isChanged ? <button type="button" class="small plain" onClick={() => onEntered(undefined)}>{t.acts.undo}</button>
          : isOwn && setting.reset !== undefined && setting.inherited_from
            ? <button type="button" class="small plain" title={t.edit.inherit} onClick={() => onEntered(null)}>{t.edit.use} {shown(setting, setting.inherited)}</button> : null}
      </span>
      <small id={`${id}-hint`} class="hint">{problem ? <span class="bad-text">{problem}</span> : hint}</small>
    </div>
  );
}

/** A parameter with a name that is not known yet. */
function Further({ onAdd }: { onAdd: (name: string, value: string) => void }) {
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const add = () => { onAdd(name.trim(), value); setName(""); setValue(""); };
  return (
    <div class="row-fields">
      <label class="field"><span>{t.edit.addName}</span><input autocomplete="off" spellcheck={false} value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>
      <label class="field"><span>{t.edit.addValue}</span><input autocomplete="off" spellcheck={false} value={value} onInput={(event) => setValue(event.currentTarget.value)} /></label>
      <button type="button" disabled={!name.trim() || !value} onClick={add}>{t.form.add}</button>
    </div>
  );
}

function Preview({ changes, difference, guest, steps, meanwhile, refusal, isHot, onHot, onTakeOver, onSubmit }: {
  changes: readonly Change[]; difference: { added: string[]; removed: string[] }; guest: Guest | null; steps: readonly Step[];
  meanwhile: ReturnType<typeof meanwhileOf> | null; refusal: string | null; isHot: boolean; onHot: ((value: boolean) => void) | null;
  onTakeOver: () => void; onSubmit: () => void;
}) {
  const isWrong = changes.some((one) => one.problem);
  const modify = changes.length && !isWrong ? steps.find((one) => one.request.body !== undefined) : undefined;
  const trial = useTrial(modify ? { ...modify.request, body: { ...(modify.request.body as object), dry_run: true } } : null);
  const waiting = changes.filter((one) => waitsForStart(one.setting, guest)).length;
  const count = changes.length + difference.added.length + difference.removed.length;
  return (
    <section class="card preview" aria-live="polite" aria-busy={trial.isBusy}>
      <header><h3>{t.edit.preview}{count > 0 && ` (${count})`}</h3>{trial.isBusy && <small>{t.edit.checking}</small>}</header>
      {refusal && <Problem text={refusal} />}
      {meanwhile && (
        <div class="banner warn" role="alert"><div>
          <p>{meanwhile.length ? t.edit.meanwhile(meanwhile.length) : t.edit.meanwhileOther}</p>
          <ul class="differences">{meanwhile.slice(0, 12).map((one) => (
            <li key={keyOf(one.setting.path)}><code>{one.setting.name}</code> <del>{one.before}</del> → <ins>{one.now}</ins>{one.isEntered && <strong> {t.edit.conflict}</strong>}</li>
          ))}</ul>
          <button type="button" onClick={onTakeOver}>{t.edit.takeOver}</button>
        </div></div>
      )}
      {count === 0 && <p class="faint">{t.edit.noChanges}</p>}
      <ul class="changes">
        {changes.map((one) => (
          <li key={keyOf(one.setting.path)}>
            <div><code>{one.setting.name}</code> <del>{one.before}</del> → <ins>{one.after}</ins></div>
            {one.problem ? <small class="bad-text">{one.problem}</small> : <small>{effectOf(one.setting, guest)}</small>}
            {one.warning && <small class="warn-text">{one.warning}</small>}
          </li>
        ))}
        {difference.added.map((tag) => <li key={`+${tag}`}><div><code>{t.edit.tags}</code> + <ins>{tag}</ins></div><small>{t.edit.now}</small></li>)}
        {difference.removed.map((tag) => <li key={`-${tag}`}><div><code>{t.edit.tags}</code> − <del>{tag}</del></div><small>{t.edit.now}</small></li>)}
      </ul>
      {onHot && <label class="check"><input type="checkbox" checked={isHot} onChange={(event) => onHot(event.currentTarget.checked)} /><span>{t.edit.hotplug}</span></label>}
      {count > 0 && guest && <p class={waiting ? "banner warn" : "faint"}><span>{waiting ? t.edit.restart(waiting) : t.edit.noRestart}</span></p>}
      {isWrong && <p class="bad-text">{t.edit.wrong}</p>}
      {trial.problem && <Problem text={trial.problem} />}
      {modify && trial.isGood && <p><Badge tone="good">{t.edit.checked}</Badge></p>}
      {trial.messages.length > 0 && !trial.problem && <ul class="faint">{trial.messages.map((one) => <li key={one}>{one}</li>)}</ul>}
      {steps.map((one) => <AsCommand key={one.operation} command={commandOf(one.operation, one.values)} curl={curlOf(one.request, location.origin)} />)}
      <footer><button type="button" class="primary" disabled={count === 0 || isWrong || meanwhile !== null || (modify !== undefined && !trial.isGood)} onClick={onSubmit}>{t.edit.submit}</button></footer>
    </section>
  );
}

/** The jobs of the changes, one after the other, with their ends. */
function Applying({ kind, name, steps, changes, guest, onAgain, onRefused, onClose }: {
  kind: Editable; name: string; steps: readonly Step[]; changes: readonly Change[]; guest: Guest | null; onAgain: () => void;
  onRefused: (problem: string) => Promise<void>; onClose: () => void;
}) {
  const jobs = useTable("job").rows;
  const [sent, setSent] = useState<readonly number[]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  const last = sent.length ? String(jobs.get(String(sent[sent.length - 1]))?.["status"] ?? "") : "success";
  const isStopped = problem !== null || last === "error" || last === "canceled";
  useEffect(() => {
    const step = steps[sent.length];
    if (last !== "success" || !step || problem) return;
    submit(step.request).then((job) => setSent((before) => [...before, job]), (error: unknown) => setProblem(reason(error)));
  }, [last, sent.length]);
  useEffect(() => {
    const job = sent[sent.length - 1];
    if (last !== "error" || job === undefined) return;
    send<AnyRow>({ method: "GET", path: `/2/jobs/${job}` }, true).then(
      (found) => setProblem(failureOf((found["opresult"] as unknown[] | undefined)?.find(Array.isArray))),
      (error: unknown) => setProblem(reason(error)),
    );
  }, [last]);
  // The first step has failed: nothing was changed yet.
  useEffect(() => {
    if (problem && (sent.length === 0 || (sent.length === 1 && last === "error"))) void onRefused(problem).catch(() => undefined);
  }, [problem]);
  const isOver = isStopped || (sent.length === steps.length && FINAL.has(last));
  const waiting = changes.filter((one) => waitsForStart(one.setting, guest)).length;
  const restart = INSTANCE_ACTS.find((act) => act.id === "reboot");
  return (
    <section class="card edit" aria-label={`${t.edit.title}: ${name}`} aria-live="polite">
      <header><h2>{t.edit.results}</h2></header>
      <ul class="lines">{steps.map((step, index) => (
        <li key={step.operation}>
          <JobStatus status={sent[index] === undefined ? (problem && index === sent.length ? "error" : "queued") : jobs.get(String(sent[index]))?.["status"] ?? "queued"} />
          <span class="what"><code>{commandOf(step.operation, step.values) ?? step.operation}</code></span>
          <small>{sent[index] !== undefined && <ObjectLink kind="job" name={sent[index]} whole />}</small>
        </li>
      ))}</ul>
      {problem && <><Problem text={problem} /><p>{t.edit.refused}</p></>}
      {isOver && !isStopped && waiting > 0 && (
        <p class="banner warn"><span>{t.edit.restart(waiting)}</span>{kind === "instance" && restart && <ActButton act={restart} name={name} isSmall />}</p>
      )}
      <footer class="page-actions"><button type="button" onClick={onAgain} disabled={!isOver}>{t.edit.again}</button><button type="button" class="primary" onClick={onClose}>{t.acts.close}</button></footer>
    </section>
  );
}
