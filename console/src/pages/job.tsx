/** One job: its state, its messages as they come, what it waits for, and what it returned. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { submit } from "../actions/actions";
import { commandOf, curlOf } from "../actions/commands";
import { useAnswer } from "../api/objects";
import { reason, send } from "../api/client";
import type { Request } from "../api/client";
import { may } from "../core/access";
import { failureOf } from "../core/failure";
import { clock, duration, secondsOf } from "../core/format";
import { FINAL, objectsOf, spoken, summaryOf } from "../core/reducer";
import type { AnyRow } from "../core/state";
import { href } from "../core/route";
import { store, useStore } from "../core/store";
import { t } from "../texts/en";
import { JobProgress, JobStatus, ObjectLink, PageTitle, Problem, useNow } from "../ui/bits";
import { AsCommand, Dialog } from "../ui/dialog";
import { Loading } from "../ui/listpage";
import { useTable } from "../ui/rows";
import { Values } from "../ui/values";

const LOOK_MS = 1000;

type LogEntry = readonly [number, unknown, string, unknown];

export function Job({ id }: { id: string }) {
  const row = useTable("job").rows.get(id);
  const session = useStore((state) => state.session);
  const progress = useStore((state) => state.progress.get(id));
  const [look, setLook] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const answer = useAnswer<AnyRow>({ method: "GET", path: `/2/jobs/${id}` }, `${String(row?.["status"])} ${look}`);
  const job = answer.value;
  const status = String(row?.["status"] ?? job?.["status"] ?? "");
  const isOver = FINAL.has(status);
  useEffect(() => {
    if (isOver) return undefined;
    // Messages of a running job are no events, so the page of the one job looks for them.
    const timer = setInterval(() => setLook((count) => count + 1), LOOK_MS);
    return () => clearInterval(timer);
  }, [isOver]);
  if (answer.isGone) return <div class="page"><Problem text={t.jobs.gone} /></div>;
  if (!job) return <div class="page"><PageTitle text={`Job ${id}`} />{answer.problem ? <Problem text={answer.problem} onAgain={answer.again} /> : <Loading />}</div>;
  const waits = row?.["waiting_for"];
  return (
    <div class="page">
      <PageTitle text={summaryOf(job)}>
        <JobStatus status={status} />
        {!isOver && may(session, "put_jobs_id_priority") && <Priority id={id} priority={Number(row?.["priority"] ?? 0)} />}
        {!isOver && may(session, "delete_jobs_id") && <button class="danger-text" onClick={() => setOpen(true)}>{t.jobs.cancel}</button>}
      </PageTitle>
      <Facts job={job} id={id} source={row?.["source"]} />
      {progress && <section class="card"><JobProgress id={id} /></section>}
      {waits !== undefined && waits !== null && <p class="banner warn"><span>{withJobs(String(waits))}</span></p>}
      <Related job={job} id={id} />
      <Log job={job} />
      {isOpen && <CancelJob id={id} onClose={() => setOpen(false)} />}
    </div>
  );
}

/** A text with links to the jobs that it names. */
function withJobs(text: string): ComponentChildren {
  return text.split(/(jobs? \d+(?:, \d+)*)/).map((part, at) => at % 2 === 0 ? part
    : part.split(/(\d+)/).map((word, index) => index % 2 === 0 ? word : <ObjectLink key={word} kind="job" name={word} whole />));
}

const PRIORITIES: Readonly<Record<string, number>> = { high: -10, normal: 0, low: 10 };

function Priority({ id, priority }: { id: string; priority: number }) {
  const change = (value: number) =>
    send<[boolean, string]>({ method: "PUT", path: `/2/jobs/${id}/priority`, body: { priority: value } }).then(
      ([isDone, why]) => { if (!isDone) store.dispatch({ type: "notice", tone: "bad", text: why }); },
      (error: unknown) => store.dispatch({ type: "notice", tone: "bad", text: reason(error) }),
    );
  const known = Object.values(PRIORITIES).includes(priority);
  return (
    <label class="inline"><span>{t.jobs.priority}</span>
      <select value={priority} onChange={(event) => void change(Number(event.currentTarget.value))}>
        {!known && <option value={priority}>{priority}</option>}
        {Object.entries(PRIORITIES).map(([name, value]) => <option key={name} value={value}>{t.jobs.priorities[name]}</option>)}
      </select>
    </label>
  );
}

const DEPTH = 6;

/** The jobs before and after a job, and those that it has submitted, as a tree. */
function Related({ job, id }: { job: AnyRow; id: string }) {
  const jobs = useTable("job").rows;
  const before = (one: string): string[] => ((jobs.get(one)?.["depends"] as number[] | undefined) ?? []).map(String);
  const after = useMemo(() => {
    const found = new Map<string, string[]>();
    for (const [key, row] of jobs)
      for (const other of (row["depends"] as number[] | undefined) ?? []) found.set(String(other), [...(found.get(String(other)) ?? []), key]);
    return found;
  }, [jobs]);
  const started = submittedBy(job);
  const parts: [string, (one: string) => readonly string[]][] = [[t.jobs.before, before], [t.jobs.after, (one) => after.get(one) ?? []]];
  const shown = parts.filter(([, next]) => next(id).length > 0);
  if (shown.length === 0 && started.length === 0) return null;
  return (
    <section class="card">
      {shown.map(([title, next]) => <div key={title}><h3>{title}</h3><JobTree ids={next(id)} next={next} depth={0} /></div>)}
      {started.length > 0 && <div><h3>{t.jobs.submittedJobs}</h3><JobTree ids={started} next={() => []} depth={0} /></div>}
    </section>
  );
}

function JobTree({ ids, next, depth }: { ids: readonly string[]; next: (id: string) => readonly string[]; depth: number }) {
  const jobs = useTable("job").rows;
  return (
    <ul class="tree">
      {ids.map((id) => {
        const row = jobs.get(id);
        const more = depth < DEPTH ? next(id) : [];
        return (
          <li key={id}>
            {row && <JobStatus status={row["status"]} />} <a href={href(["jobs", id])}>{id}: {row ? summaryOf(row) : t.jobs.archived}</a>
            {more.length > 0 && <JobTree ids={more} next={next} depth={depth + 1} />}
          </li>
        );
      })}
    </ul>
  );
}

/** The jobs that a job's opcodes have submitted: results such as `{"jobs": [[true, 7], …]}`. */
export function submittedBy(job: AnyRow): string[] {
  return ((job["opresult"] as unknown[] | undefined) ?? []).flatMap((result) => {
    const all = (result as { jobs?: unknown } | null)?.jobs;
    return Array.isArray(all) ? (all as [boolean, unknown][]).filter(([isDone]) => isDone === true).map(([, id]) => String(id)) : [];
  });
}

function Facts({ job, id, source }: { job: AnyRow; id: string; source: unknown }) {
  const now = useNow(1);
  const begun = secondsOf(job["start_ts"]);
  const end = secondsOf(job["end_ts"]);
  return (
    <dl class="facts">
      <div><dt>Job</dt><dd>{id}</dd></div>
      <div><dt>{t.overview.by}</dt><dd>{String(source ?? "–").replace(/^rest:/, "")}</dd></div>
      <div><dt>{t.jobs.submitted}</dt><dd>{clock(job["received_ts"])}</dd></div>
      {begun !== null && <div><dt>{end === null ? t.jobs.started : t.jobs.ended}</dt><dd>{clock(end ?? begun)} ({duration(Math.max(0, (end ?? now / 1000) - begun))})</dd></div>}
      {objectsOf(job).map(([kind, name]) => (
        <div key={kind + name}><dt>{kind[0]?.toUpperCase()}{kind.slice(1)}</dt><dd><ObjectLink kind={kind} name={name} whole /></dd></div>
      ))}
    </dl>
  );
}

function Log({ job }: { job: AnyRow }) {
  const logs = (job["oplog"] as LogEntry[][] | undefined) ?? [];
  const statuses = (job["opstatus"] as string[] | undefined) ?? [];
  const results = (job["opresult"] as unknown[] | undefined) ?? [];
  const ops = (job["ops"] as AnyRow[] | undefined) ?? [];
  return (
    <>
      {ops.map((op, index) => (
        <section class="card" key={index}>
          <header><h3>{spoken(String(op["OP_ID"] ?? "").replace(/^OP_/, ""))}</h3><JobStatus status={statuses[index]} /></header>
          {statuses[index] === "error" && <Problem text={failureOf(results[index])} />}
          {(logs[index] ?? []).length === 0 ? <p class="faint">{t.jobs.noLog}</p> : (
            <ol class="log">
              {(logs[index] ?? []).map(([serial, time, , content]) => (
                <li key={serial}><time>{clock(time)}</time><span>{typeof content === "string" ? content : JSON.stringify(content)}</span></li>
              ))}
            </ol>
          )}
          <details><summary>{t.jobs.operations}</summary><Values value={given(op)} /></details>
          {statuses[index] === "success" && results[index] !== null && results[index] !== undefined && results[index] !== true && (
            <details><summary>{t.jobs.result}</summary><Values value={results[index]} /></details>
          )}
        </section>
      ))}
    </>
  );
}

/** What the request said: without what is empty. */
function given(op: AnyRow): AnyRow {
  const isSaid = (value: unknown) =>
    value !== null && value !== undefined && value !== false && !(typeof value === "object" && Object.keys(value as object).length === 0);
  return Object.fromEntries(Object.entries(op).filter(([name, value]) => name !== "OP_ID" && name !== "debug_level" && isSaid(value)));
}

function CancelJob({ id, onClose }: { id: string; onClose: () => void }) {
  const [problem, setProblem] = useState<string | null>(null);
  const request: Request = { method: "DELETE", path: `/2/jobs/${id}` };
  const run = () =>
    submit(request).then(
      (answer: unknown) => {
        const [isDone, why] = Array.isArray(answer) ? (answer as [boolean, string]) : [true, ""];
        if (isDone) onClose();
        else setProblem(why);
      },
      (error: unknown) => setProblem(reason(error)),
    );
  return (
    <Dialog title={`${t.jobs.cancel}: job ${id}`} onClose={onClose}>
      <p>{t.jobs.cancelWhat}</p>
      {problem && <Problem text={problem} />}
      <AsCommand command={commandOf("delete_jobs_id", { job: id })} curl={curlOf(request, location.origin)} />
      <footer>
        <button onClick={onClose}>{t.acts.close}</button>
        <button class="danger" onClick={() => void run()}>{t.jobs.cancel}</button>
      </footer>
    </Dialog>
  );
}
