/** The cluster in one sentence, then what it has, what needs attention, and what it does and did. */
import { useMemo } from "preact/hooks";
import { useAnswer, useChanges } from "../api/objects";
import { may } from "../core/access";
import { ago, duration, plural, secondsOf, size } from "../core/format";
import { FINAL, isChange, summaryOf } from "../core/reducer";
import { href } from "../core/route";
import { useStore } from "../core/store";
import type { AnyRow } from "../core/state";
import { t } from "../texts/en";
import { Badge, Icon, JobProgress, JobStatus, Meter, ObjectLink, PageTitle, Problem, useNow } from "../ui/bits";
import { ActButton } from "../ui/dialog";
import { Loading } from "../ui/listpage";
import { useTable } from "../ui/rows";
import { CLUSTER_ACTS } from "../actions/actions";
import { findings, redundancy, totals } from "./health";
import type { Recovery, Survey, Verified } from "./health";

const RECENT = 10;
const SHOWN = 20;
/** A survey is work for the master: it is requested at most so often while the cluster changes. */
const SURVEY_MS = 5000;

export function Overview() {
  const nodes = useTable("node");
  const instances = useTable("instance");
  const jobs = useTable("job");
  const session = useStore((state) => state.session);
  const name = useStore((state) => state.cluster?.["name"]);
  const changes = useChanges(SURVEY_MS);
  const survey = useAnswer<Survey>(may(session, "get_overview") ? { method: "GET", path: "/2/overview" } : null, changes);
  const recovery = useAnswer<Recovery>(may(session, "get_ha_status") ? { method: "GET", path: "/2/ha-status" } : null, changes).value;
  const nodeRows = useMemo(() => [...nodes.rows.values()], [nodes.rows]);
  const instanceRows = useMemo(() => [...instances.rows.values()], [instances.rows]);
  const problem = nodes.problem ?? instances.problem;
  if (problem && !nodes.isLoaded) return <div class="page"><Problem text={problem} /></div>;
  if (!nodes.isLoaded || !instances.isLoaded) return <div class="page"><PageTitle text={t.overview.title} /><Loading /></div>;
  return (
    <div class="page overview">
      <PageTitle text={name ? String(name) : t.overview.title} />
      <Health nodes={nodeRows} instances={instanceRows} survey={survey.value} recovery={recovery} />
      {may(session, "get_nodes") && <Capacity nodes={nodeRows} instances={instanceRows} survey={survey.value} />}
      <div class="halves">
        <div>
          <Running jobs={jobs.rows} />
          {survey.problem && <Problem text={survey.problem} />}
          {survey.value && <Redundancy survey={survey.value} />}
          {survey.value && <Verification verify={survey.value.verify} />}
          {recovery && <RecoveryCard recovery={recovery} />}
        </div>
        <Recent jobs={jobs.rows} />
      </div>
    </div>
  );
}

function Health({ nodes, instances, survey, recovery }: {
  nodes: readonly AnyRow[]; instances: readonly AnyRow[]; survey: Survey | null; recovery: Recovery | null;
}) {
  const found = useMemo(() => findings(nodes, instances, survey, recovery), [nodes, instances, survey, recovery]);
  const worst = found.some((one) => one.tone === "bad") ? "bad" : found.length ? "warn" : "good";
  const running = instances.filter((row) => row["status"] === "running").length;
  return (
    <section class={`health ${worst}`} aria-labelledby="health">
      <Icon name={worst === "good" ? "check" : "alert"} />
      <div>
        <h2 id="health">
          {found.length === 0 ? t.overview.good : found.map((one, at) => (
            <span key={one.text}>{at > 0 && " · "}<a href={one.href}>{one.text}</a></span>
          ))}
        </h2>
        <p>{running.toLocaleString("en")} of {plural(instances.length, "instance")} running{nodes.length > 0 && ` on ${plural(nodes.length, "node")}`}.
          {survey && redundancy(survey).holds === redundancy(survey).all && ` ${t.overview.redundant}`}</p>
      </div>
    </section>
  );
}

function Capacity({ nodes, instances, survey }: { nodes: readonly AnyRow[]; instances: readonly AnyRow[]; survey: Survey | null }) {
  const sum = useMemo(() => totals(nodes, instances), [nodes, instances]);
  const statuses = useMemo(() => {
    const counts = new Map<string, number>();
    for (const row of instances) counts.set(String(row["status"] ?? "unknown"), (counts.get(String(row["status"] ?? "unknown")) ?? 0) + 1);
    return [...counts].sort((one, other) => other[1] - one[1]);
  }, [instances]);
  const reserved = survey?.memory.reserved ?? 0;
  const standard = survey?.standard;
  return (
    <section class="cards" aria-label={t.overview.capacity}>
      <Card title={t.overview.memory} free={size(Math.max(0, sum.memory.free - reserved))} whole={size(sum.memory.whole)} label={t.overview.free}>
        <Meter label={t.overview.memory} whole={sum.memory.whole} parts={[
          { name: t.overview.host, value: sum.memory.host, tone: "host" },
          { name: t.overview.used, value: sum.memory.whole - sum.memory.free - sum.memory.host, tone: "used" },
          { name: t.overview.reserved, value: reserved, tone: "reserved" },
        ]} />
        {survey && <small>{size(Math.round(reserved))} {t.overview.reserved}</small>}
      </Card>
      <Card title={t.overview.disk} free={size(sum.disk.free)} whole={size(sum.disk.whole)} label={t.overview.free}>
        <Meter label={t.overview.disk} whole={sum.disk.whole} parts={[{ name: t.overview.used, value: sum.disk.whole - sum.disk.free, tone: "used" }]} />
      </Card>
      <Card title={t.overview.cpus} free={String(sum.cpus.allocated)} whole={sum.cpus.whole.toLocaleString("en")} label={t.overview.allocated}>
        <Meter label={t.overview.cpus} whole={Math.max(sum.cpus.whole, sum.cpus.allocated)} parts={[{ name: t.overview.allocated, value: sum.cpus.allocated, tone: "used" }]} />
        {survey && <small>{t.overview.virtual(survey.cpus.virtual)}</small>}
      </Card>
      {standard && (
        <section class="card">
          <h3>{t.overview.room}</h3>
          <p class="figure"><strong>{standard.fits.toLocaleString("en")}{standard.is_limit ? "+" : ""}</strong> <span>{t.overview.fits}</span></p>
          <small>{size(standard.memory)}, {standard.vcpus} CPU, {size(standard.disk)} {standard.template}{standard.limited_by && `; ${t.overview.limitedBy} ${t.overview.lacks[standard.limited_by] ?? standard.limited_by}`}</small>
        </section>
      )}
      <section class="card">
        <h3>{t.overview.guests}</h3>
        <p class="figure"><strong>{instances.length.toLocaleString("en")}</strong></p>
        <ul class="breakdown">
          {statuses.slice(0, 4).map(([status, count]) => (
            <li key={status}>
              <a href={href(["instances"], { q: `status == ${status}` })}>
                <Badge tone={status === "running" ? "good" : status.startsWith("ERROR") ? "bad" : "quiet"}>{t.status[status] ?? status}</Badge>
                <span>{count.toLocaleString("en")}</span>
              </a>
            </li>
          ))}
        </ul>
      </section>
    </section>
  );
}

function Card({ title, free, whole, label, children }: {
  title: string; free: string; whole: string; label: string; children: preact.ComponentChildren;
}) {
  return (
    <section class="card">
      <h3>{title}</h3>
      <p class="figure"><strong>{free}</strong> <span>{label} of {whole}</span></p>
      {children}
    </section>
  );
}

/** The groups that do not survive the loss of one of their nodes. */
function Redundancy({ survey }: { survey: Survey }) {
  const weak = survey.groups.filter((one) => one.n1_violations.length > 0);
  const { holds, all } = redundancy(survey);
  if (weak.length === 0) return null;
  return (
    <section class="card">
      <header><h3>{t.overview.n1}</h3><small>{t.overview.holdsIn(holds, all)}</small></header>
      <ul class="lines">
        {weak.map((one) => (
          <li key={one.name}>
            <Badge tone="warn"><ObjectLink kind="group" name={one.name} whole /></Badge>
            <span class="what">{t.overview.cannotLose} {one.n1_violations.slice(0, SHOWN).map((node, at) => <span key={node}>{at > 0 && ", "}<ObjectLink kind="node" name={node} /></span>)}
              {one.n1_violations.length > SHOWN && ` + ${one.n1_violations.length - SHOWN}`}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Verification({ verify }: { verify: Verified | null }) {
  const now = useNow(10);
  return (
    <section class="card" id="verify">
      <header><h3>{t.overview.verify}</h3>
        <span class="page-actions"><small>{verify ? ago(verify.ended, now) : t.overview.never}</small>
          {CLUSTER_ACTS.map((act) => <ActButton key={act.id} act={act} name="" isSmall />)}</span>
      </header>
      {verify?.findings.length === 0 && <p><Badge tone="good">{t.overview.noFindings}</Badge></p>}
      {verify && verify.findings.length > 0 && (
        <ul class="lines">
          {verify.findings.slice(0, SHOWN).map((one, index) => (
            <li key={index}>
              <Badge tone={one.severity === "error" ? "bad" : "warn"}>{one.severity}</Badge>
              <span class="what">{one.kind} {one.name}: {one.text}</span>
              <small><a href={href(["jobs", one.job])}>{t.jobs.one} {one.job}</a></small>
            </li>
          ))}
        </ul>
      )}
      {verify && verify.errors + verify.warnings > SHOWN && <small>{t.overview.more(verify.errors + verify.warnings - SHOWN)}</small>}
    </section>
  );
}

const CALM = new Set(["healthy", "protected"]);

/** Automatic recovery: alarms, and nodes and instances about which it does something. */
function RecoveryCard({ recovery }: { recovery: Recovery }) {
  if (recovery.instances.length === 0 && recovery.alarms.length === 0) return null;
  const busy = [...recovery.nodes.map((one) => ({ kind: "node", ...one })), ...recovery.instances.map((one) => ({ kind: "instance", why_unarmed: "", ...one }))]
    .filter((one) => !CALM.has(one.state) || one.why);
  return (
    <section class="card" id="recovery">
      <header><h3>{t.overview.recovery}</h3><small>{plural(recovery.instances.length, "instance")} {t.overview.protected}</small></header>
      <ul class="lines">
        {recovery.alarms.map((one) => <li key={one}><Badge tone="bad">{t.overview.alarm}</Badge><span class="what">{one}</span></li>)}
        {busy.slice(0, SHOWN).map((one) => (
          <li key={one.kind + one.name}>
            <Badge tone={one.state === "given up" || one.state === "stuck" ? "bad" : "warn"}>{one.state}</Badge>
            <span class="what"><ObjectLink kind={one.kind} name={one.name} whole />{one.why && <small>{one.why}</small>}</span>
          </li>
        ))}
      </ul>
      {busy.length + recovery.alarms.length === 0 && <p><Badge tone="good">{t.overview.calm}</Badge></p>}
      {recovery.limits.map((one) => <small key={one}>{one}</small>)}
    </section>
  );
}

type Jobs = ReadonlyMap<string, AnyRow>;

function Running({ jobs }: { jobs: Jobs }) {
  const now = useNow(1);
  const running = useMemo(() => [...jobs.values()].filter((job) => !FINAL.has(String(job["status"])) && job["dry_run"] !== true).slice(-RECENT), [jobs]);
  return (
    <section class="card">
      <header><h3>{t.overview.runningJobs}</h3><a href={href(["jobs"])}>{t.overview.allJobs}</a></header>
      {running.length === 0 ? <p class="faint">{t.overview.noJobs}</p> : (
        <ul class="lines">
          {running.map((job) => {
            const since = secondsOf(job["start_ts"]) ?? secondsOf(job["received_ts"]);
            return (
              <li key={String(job["id"])}>
                <JobStatus status={job["status"]} />
                <span class="what"><a href={href(["jobs", String(job["id"])])}>{summaryOf(job)}</a><JobProgress id={String(job["id"])} /></span>
                <small>{since ? duration(Math.max(0, now / 1000 - since)) : ""}</small>
              </li>
            );
          })}
        </ul>
      )}
    </section>
  );
}

function Recent({ jobs }: { jobs: Jobs }) {
  const now = useNow(10);
  const recent = useMemo(
    () => [...jobs.values()].filter((job) => FINAL.has(String(job["status"])) && isChange(job))
      .sort((one, other) => Number(other["id"]) - Number(one["id"])).slice(0, RECENT),
    [jobs],
  );
  return (
    <section class="card">
      <header><h3>{t.overview.recent}</h3></header>
      {recent.length === 0 ? <p class="faint">{t.overview.noRecent}</p> : (
        <ul class="lines">
          {recent.map((job) => (
            <li key={String(job["id"])}>
              <JobStatus status={job["status"]} />
              <span class="what"><a href={href(["jobs", String(job["id"])])}>{summaryOf(job)}</a></span>
              <small>{String(job["source"] ?? "").replace(/^rest:/, "")} · {ago(job["end_ts"], now)}</small>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
