/** Backups: the incremental ones of all instances and of one, and exports; with what can be done about them. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { reason } from "../api/client";
import { useAnswer, useChanges } from "../api/objects";
import { query } from "../api/queries";
import { may } from "../core/access";
import { fixedOf, hasWords, seriesOf } from "../core/backups";
import type { Listing, Point, Series } from "../core/backups";
import { ago, clock, compare, plural, size } from "../core/format";
import { href, setParameter, usePlace } from "../core/route";
import type { AnyRow } from "../core/state";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { Badge, Empty, ObjectLink, PageTitle, Problem, useNow } from "../ui/bits";
import type { Tone } from "../ui/bits";
import { FormButton } from "../ui/form";
import type { Form } from "../ui/form";
import { Loading } from "../ui/listpage";
import { useTable } from "../ui/rows";
import { Schedules } from "./schedules";

/** The answer has all nodes' directories: it is requested at most so often while jobs change them. */
const AGAIN_MS = 2000;
const SHOWN = 100;

const save = (instance: string): Form => ({
  operation: "post_instances_name_backups", label: t.backups.save, what: t.backups.saveWhat, fixed: { instance }, first: ["node", "target", "full"],
});

function restore(series: Series, point: string): Form {
  return {
    operation: "put_instances_name_backups_name_restore", label: t.backups.restore, what: t.backups.restoreWhat(point), fixed: { ...fixedOf(series), point },
    first: ["disk"], isDangerous: true,
  };
}

const drill = (series: Series, point: string): Form => ({
  operation: "put_instances_name_backups_name_drill", label: t.backups.drill, what: t.backups.drillWhat(point), fixed: { ...fixedOf(series), point },
  first: ["expect", "agent", "memory", "timeout"],
});

const prune = (series: Series): Form => ({
  operation: "put_instances_name_backups_prune", label: t.backups.prune, what: t.backups.pruneWhat, fixed: fixedOf(series),
  first: ["keep_last", "keep_daily", "keep_weekly", "keep_monthly"],
});

const check = (series: Series): Form => ({
  operation: "put_instances_name_backups_check", label: t.backups.check, what: t.backups.checkWhat, fixed: fixedOf(series), first: [],
});

function useBackups(path: string, operation: string) {
  const session = useStore((state) => state.session);
  const version = useChanges(AGAIN_MS, (state) => state.backups);
  const answer = useAnswer<Listing>(may(session, operation) ? { method: "GET", path } : null, version);
  const series = useMemo(() => (answer.value ? seriesOf(answer.value.points) : null), [answer.value]);
  return { answer, series };
}

export function Backups() {
  const text = usePlace().query.get("q") ?? "";
  const { answer, series } = useBackups("/2/backups", "get_backups");
  const session = useStore((state) => state.session);
  const found = useMemo(() => (series ?? []).filter((one) => hasWords(one, text)), [series, text]);
  return (
    <div class="page">
      <PageTitle text={t.nav.exports}><span class="count">{answer.value ? answer.value.points.length.toLocaleString("en") : ""}</span></PageTitle>
      <Schedules />
      <div class="toolbar">
        <h2>{t.backups.title}</h2>
        <input type="search" aria-label={t.backups.find} placeholder={t.backups.find} value={text} onInput={(event) => setParameter("q", event.currentTarget.value)} />
      </div>
      {answer.problem && <Problem text={answer.problem} onAgain={answer.again} />}
      {!series && !answer.problem && <Loading />}
      {answer.value && <Missing listing={answer.value} onAgain={answer.again} />}
      {series?.length === 0 && <Empty icon="exports" title={t.backups.none}>{t.backups.noneWhat}</Empty>}
      {series && series.length > 0 && found.length === 0 && <p class="nothing">{t.table.none}</p>}
      {found.slice(0, SHOWN).map((one) => <OneSeries key={one.key} series={one} isAlone={found.length === 1} />)}
      {found.length > SHOWN && <p class="faint">{t.backups.more(found.length - SHOWN)}</p>}
      {may(session, "put_query") && <Exports />}
    </div>
  );
}

/** The backups of one instance, on its page. */
export function InstanceBackups({ name }: { name: string }) {
  const session = useStore((state) => state.session);
  const { answer, series } = useBackups(`/2/instances/${name}/backups`, "get_instances_name_backups");
  if (!may(session, "get_instances_name_backups")) return null;
  return (
    <section class="card" aria-busy={!series && !answer.problem}>
      <header><h3>{t.nav.exports}</h3><FormButton form={save(name)} name={name} /></header>
      {answer.problem && <Problem text={answer.problem} onAgain={answer.again} />}
      {!series && !answer.problem && <p class="faint" role="status">{t.backups.asking}</p>}
      {answer.value && <Missing listing={answer.value} onAgain={answer.again} />}
      {series?.length === 0 && <p class="faint">{t.backups.noneOf}</p>}
      {series?.map((one) => (
        <div class="series" key={one.key}>
          <p><ObjectLink kind="node" name={one.node} whole /> <code>{one.target}</code> <small>{size(one.stored)}</small></p>
          <Points series={one} mayRestore />
          <Acts series={one} />
        </div>
      ))}
    </section>
  );
}

/** Nodes whose backups are not in the answer. */
function Missing({ listing, onAgain }: { listing: Listing; onAgain: () => void }) {
  const { silent, offline } = listing;
  if (silent.length + offline.length === 0) return null;
  return (
    <p class="banner warn" role="status">
      <span>
        {silent.length > 0 && <>{t.backups.silent} {silent.join(", ")}. </>}
        {offline.length > 0 && <>{t.backups.offline} {offline.join(", ")}.</>}
      </span>
      {silent.length > 0 && <button class="small" onClick={onAgain}>{t.error.again}</button>}
    </p>
  );
}

function OneSeries({ series, isAlone }: { series: Series; isAlone: boolean }) {
  const now = useNow(10);
  const instances = useTable("instance");
  const isGone = instances.isLoaded && !instances.rows.has(series.instance);
  const [latest] = series.points;
  return (
    <details class="card series" open={isAlone}>
      <summary>
        <strong>{series.instance}</strong>
        <span class="what"><small>{series.node} {series.target}</small></span>
        {isGone && <Badge tone="quiet">{t.backups.gone}</Badge>}
        {series.problems > 0 && <Badge tone="bad">{t.backups.problems(series.problems)}</Badge>}
        <small>{plural(series.points.length, "backup")} · {size(series.stored)}{latest?.ctime ? ` · ${ago(latest.ctime, now)}` : ""}</small>
      </summary>
      {isGone ? <p class="faint">{t.backups.goneWhat}</p> : <p><a href={href(["instances", series.instance])}>{t.backups.page}</a></p>}
      <Points series={series} mayRestore={!isGone} />
      <div class="page-actions">
        {!isGone && <FormButton form={save(series.instance)} name={series.instance} />}
        <Acts series={series} />
      </div>
    </details>
  );
}

function Acts({ series }: { series: Series }) {
  return <div class="page-actions">{[check(series), prune(series)].map((form) => <FormButton key={form.operation} form={form} name={series.instance} />)}</div>;
}

function Points({ series, mayRestore }: { series: Series; mayRestore: boolean }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`${t.backups.title}: ${series.instance}`}>
      <table>
        <thead><tr>{t.backups.heads.map((head) => <th key={head} scope="col">{head}</th>)}<th><span class="unseen">{t.table.more}</span></th></tr></thead>
        <tbody>{series.points.map((point) => (
          <tr key={point.backup}>
            <th scope="row">{point.backup}</th>
            {point.problem !== null ? <td colSpan={5} class="what"><Badge tone="bad">{t.backups.unusable}</Badge> <span class="what">{point.problem}</span></td> : <Values point={point} />}
            <td class="number">
              {point.problem === null && <FormButton form={drill(series, point.backup)} name={series.instance} isSmall />}
              {mayRestore && point.problem === null && <> <FormButton form={restore(series, point.backup)} name={series.instance} isSmall /></>}
            </td>
          </tr>
        ))}</tbody>
      </table>
    </div>
  );
}

const PROOF_TONES: Readonly<Record<string, Tone>> = { good: "good", failed: "bad" };

/** What a check or a drill of a backup has shown, and when. */
function Proof({ point }: { point: Point }) {
  const proof = String(point.proof);
  const last = point.drilled ?? point.checked;
  return (
    <>
      <Badge tone={PROOF_TONES[proof] ?? "quiet"}>{t.backups.proofs[proof] ?? proof}</Badge>
      {point.failure && <small>{point.failure}</small>}
      {last !== null && <small>{point.drilled === null ? t.backups.checked : t.backups.drilled} {clock(last)}</small>}
    </>
  );
}

function Values({ point }: { point: Point }) {
  return (
    <>
      <td class="when">{clock(point.ctime)}</td>
      <td>{t.backups.consistency[String(point.consistency)] ?? point.consistency ?? "–"}</td>
      <td class="number">{size(point.stored)}</td>
      <td>{point.parent ?? t.backups.full}</td>
      <td class="what"><Proof point={point} /></td>
    </>
  );
}

const exportForms = (instance: string): Form[] => [
  { operation: "put_instances_name_verify_export", label: t.backups.check, what: t.backups.checkExportWhat, fixed: { instance }, first: [] },
  { operation: "delete_instances_name_export", label: t.acts.remove, what: t.backups.removeExportWhat, fixed: { instance }, first: [], isDangerous: true },
];

/** The exports of all nodes; a node without an answer has a row without a name. */
function Exports() {
  const version = useChanges(AGAIN_MS, (state) => state.backups);
  const [rows, setRows] = useState<readonly AnyRow[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    query("export", ["export", "node"], null, version > 0).then(
      (found) => { setRows(found); setProblem(null); },
      (error: unknown) => setProblem(reason(error)),
    );
  }, [version]);
  const found = useMemo(() => (rows ?? []).filter((row) => row["export"] !== undefined).sort((one, other) => compare(one["export"], other["export"])), [rows]);
  const missing = (rows ?? []).filter((row) => row["export"] === undefined).map((row) => String(row["node"]));
  return (
    <>
      <h2>{t.backups.exports}</h2>
      {problem && <Problem text={problem} />}
      {!rows && !problem && <Loading />}
      {missing.length > 0 && <p class="banner warn" role="status"><span>{t.backups.silentOrOffline} {missing.join(", ")}.</span></p>}
      {rows && found.length === 0 && <p class="faint">{t.backups.noExports}</p>}
      {found.length > 0 && (
        <div class="card scroll" tabIndex={0} role="region" aria-label={t.backups.exports}>
          <table>
            <thead><tr>{t.backups.exportHeads.map((head) => <th key={head} scope="col">{head}</th>)}<th><span class="unseen">{t.table.more}</span></th></tr></thead>
            <tbody>{found.map((row) => (
              <tr key={`${String(row["export"])} ${String(row["node"])}`}>
                <th scope="row">{String(row["export"])}</th>
                <td><ObjectLink kind="node" name={row["node"]} whole /></td>
                <td class="number">{exportForms(String(row["export"])).map((form) => <span key={form.operation}>{" "}<FormButton form={form} name={String(row["export"])} isSmall /></span>)}</td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </>
  );
}
