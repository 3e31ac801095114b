/** Schedules of backups: what each saves, when, and what has become of it. */
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Act } from "../actions/actions";
import { useAnswer, useChanges } from "../api/objects";
import { may } from "../core/access";
import { ago, clock, plural } from "../core/format";
import { keptBy, selectionOf, sortedSchedules } from "../core/schedules";
import type { Run, Schedule } from "../core/schedules";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { Badge, ObjectLink, Problem, useNow } from "../ui/bits";
import type { Tone } from "../ui/bits";
import { ActButton } from "../ui/dialog";
import { FormButton } from "../ui/form";
import type { Form } from "../ui/form";
import { Loading } from "../ui/listpage";

const AGAIN_MS = 2000;
const RUNNING_MS = 10_000;
const SHOWN = 50;
const PATH = "/2/backup-schedules";
const FIRST = ["calendar", "time_zone", "all_instances", "instances", "instance_tags", "groups", "keep_daily", "keep_weekly", "drill", "node"];
const TONES: Readonly<Record<string, Tone>> = { old: "bad", failing: "bad", waiting: "quiet", good: "good" };

const add: Form = { operation: "post_backup_schedules", label: t.schedules.add, what: t.schedules.addWhat, fixed: {}, first: ["name", ...FIRST] };

const modify = (name: string): Form => ({
  operation: "put_backup_schedules_name", label: t.schedules.modify, what: t.schedules.modifyWhat, fixed: { schedule: name }, first: FIRST,
});

const run: Act = {
  id: "run", label: t.schedules.run, explanation: t.schedules.runWhat, operation: "put_backup_schedules_name_run",
  request: (name) => ({ method: "PUT", path: `${PATH}/${name}/run`, body: {} }), values: (name) => ({ schedule: name }),
};

const pausing = (isPaused: boolean): Act => ({
  id: isPaused ? "pause" : "resume", label: isPaused ? t.schedules.pause : t.schedules.resume,
  explanation: isPaused ? t.schedules.pauseWhat : t.schedules.resumeWhat, operation: "put_backup_schedules_name",
  request: (name) => ({ method: "PUT", path: `${PATH}/${name}`, body: { is_paused: isPaused } }), values: (name) => ({ schedule: name, is_paused: isPaused }),
});

const remove: Act = {
  id: "remove", label: t.acts.remove, explanation: t.schedules.removeWhat, operation: "delete_backup_schedules_name", tone: "danger",
  request: (name) => ({ method: "DELETE", path: `${PATH}/${name}` }), values: (name) => ({ schedule: name }),
};

export function Schedules() {
  const session = useStore((state) => state.session);
  const version = useChanges(AGAIN_MS, (state) => state.backups);
  const [looks, setLooks] = useState(0);
  const isOpen = may(session, "get_backup-schedules");
  const answer = useAnswer<Schedule[]>(isOpen ? { method: "GET", path: PATH, query: { bulk: 1 } } : null, version + looks);
  const schedules = useMemo(() => answer.value && sortedSchedules(answer.value), [answer.value]);
  // The master records how a run has ended after the event of its job, and sends none for the record.
  const isRunning = schedules?.some((one) => one.running > 0) ?? false;
  useEffect(() => {
    const timer = isRunning ? setTimeout(() => setLooks((before) => before + 1), RUNNING_MS) : undefined;
    return () => clearTimeout(timer);
  }, [answer.value, answer.problem]);
  if (!isOpen) return null;
  return (
    <>
      <div class="toolbar"><h2>{t.schedules.title}</h2><span class="page-actions"><FormButton form={add} name="" /></span></div>
      {answer.problem && <Problem text={answer.problem} onAgain={answer.again} />}
      {!schedules && !answer.problem && <Loading />}
      {schedules?.length === 0 && <p class="faint">{t.schedules.none}</p>}
      {schedules?.map((one) => <OneSchedule key={one.name} schedule={one} isAlone={schedules.length === 1} />)}
    </>
  );
}

function OneSchedule({ schedule, isAlone }: { schedule: Schedule; isAlone: boolean }) {
  const now = useNow(10);
  const { name, paused, failing, old, running, next } = schedule;
  const due = next === null ? "" : next * 1000 > now ? `${t.schedules.next} ${clock(next)}` : t.schedules.due;
  return (
    <details class="card series" open={isAlone || failing + old > 0} data-schedule={name}>
      <summary>
        <strong>{name}</strong>
        <span class="what"><small>{schedule.calendar}{schedule.time_zone && schedule.time_zone !== "UTC" ? ` ${schedule.time_zone}` : ""}</small></span>
        {paused && <Badge tone="warn">{t.schedules.paused}</Badge>}
        {failing > 0 && <Badge tone="bad">{t.backups.problems(failing)}</Badge>}
        {old > 0 && <Badge tone="bad">{t.schedules.old(old)}</Badge>}
        {running > 0 && <Badge tone="info">{t.schedules.running(running)}</Badge>}
        <small>{plural(schedule.instance_count, "instance")}{due && !paused ? ` · ${due}` : ""}</small>
      </summary>
      <dl class="columns">
        <div><dt>{t.schedules.saves}</dt><dd>{selectionOf(schedule).map(([kind, names]) => `${t.schedules.selections[kind] ?? kind} ${names.join(", ")}`.trim()).join("; ")}</dd></div>
        <div><dt>{t.schedules.keeps}</dt><dd>{keptBy(schedule) || t.schedules.all}</dd></div>
        <div><dt>{t.schedules.drills}</dt><dd>{schedule.drill || t.schedules.never}</dd></div>
        <div><dt>{t.schedules.place}</dt><dd>{schedule.node ? <ObjectLink kind="node" name={schedule.node} whole /> : t.schedules.primary} {schedule.target ?? ""}</dd></div>
        {schedule.window && <div><dt>{t.schedules.window}</dt><dd>{schedule.window}</dd></div>}
      </dl>
      {schedule.runs.length > 0 && <Runs name={name} runs={schedule.runs} now={now} />}
      <div class="page-actions">
        <ActButton act={run} name={name} />
        <ActButton act={pausing(!paused)} name={name} />
        <FormButton form={modify(name)} name={name} />
        <ActButton act={remove} name={name} />
      </div>
    </details>
  );
}

function Runs({ name, runs, now }: { name: string; runs: readonly Run[]; now: number }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`${t.schedules.title}: ${name}`}>
      <table>
        <thead><tr>{t.schedules.heads.map((head) => <th key={head} scope="col">{head}</th>)}</tr></thead>
        <tbody>{runs.slice(0, SHOWN).map((one) => (
          <tr key={one.instance}>
            <th scope="row"><ObjectLink kind="instance" name={one.instance} whole /></th>
            <td><Badge tone={TONES[one.state] ?? "quiet"}>{t.schedules.states[one.state] ?? one.state}</Badge></td>
            <td>{one.backup ?? "–"}{one.last !== null && <small>{ago(one.last, now)}</small>}</td>
            <td class="when">{one.due === null ? "–" : clock(one.due)}</td>
            <td class="what">
              {one.job !== null && <><ObjectLink kind="job" name={one.job} whole />{one.running && ` ${t.job["running"] ?? ""}`}</>}
              {one.error && <small>{one.error}</small>}
            </td>
          </tr>
        ))}</tbody>
      </table>
      {runs.length > SHOWN && <p class="faint">{t.overview.more(runs.length - SHOWN)}</p>}
    </div>
  );
}
