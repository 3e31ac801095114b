/** One job: its state, its messages as they come, what it waits for, and what it returned. */
import { useEffect, useState } from "preact/hooks";
import { may, submit } from "../actions/actions";
import { commandOf, curlOf } from "../actions/commands";
import { useAnswer } from "../api/objects";
import { reason } from "../api/client";
import type { Request } from "../api/client";
import { failureOf } from "../core/failure";
import { clock, duration, secondsOf } from "../core/format";
import { FINAL, objectsOf, spoken, summaryOf } from "../core/reducer";
import type { AnyRow } from "../core/state";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { JobStatus, Meter, ObjectLink, PageTitle, Problem, useNow } from "../ui/bits";
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
        {!isOver && may(session, "delete_jobs_id") && <button class="danger-text" onClick={() => setOpen(true)}>{t.jobs.cancel}</button>}
      </PageTitle>
      <Facts job={job} id={id} source={row?.["source"]} />
      {progress && (
        <section class="card">
          <Meter label={progress.text} whole={100} parts={[{ name: progress.text, value: progress.percent ?? 0, tone: "used" }]} />
          <p>{progress.text} {progress.percent !== null && `${Math.round(progress.percent)} %`} {progress.leftS !== null && `· ${duration(progress.leftS)} left`}</p>
        </section>
      )}
      {waits !== undefined && waits !== null && <p class="banner warn">{t.job["waiting"]}: {String(waits)}</p>}
      <Log job={job} />
      {isOpen && <CancelJob id={id} onClose={() => setOpen(false)} />}
    </div>
  );
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
