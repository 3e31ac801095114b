/** The cluster in one sentence, then what it has, does and did. */
import { useMemo } from "preact/hooks";
import { ago, duration, plural, secondsOf, size } from "../core/format";
import { FINAL, summaryOf } from "../core/reducer";
import { href } from "../core/route";
import { useStore } from "../core/store";
import type { AnyRow } from "../core/state";
import { t } from "../texts/en";
import { Badge, Icon, JobStatus, Meter, PageTitle, Problem, useNow } from "../ui/bits";
import { Loading } from "../ui/listpage";
import { useTable } from "../ui/rows";
import { findings, totals } from "./health";

const RECENT = 10;

export function Overview() {
  const nodes = useTable("node");
  const instances = useTable("instance");
  const jobs = useTable("job");
  const name = useStore((state) => state.cluster?.["name"]);
  const nodeRows = useMemo(() => [...nodes.rows.values()], [nodes.rows]);
  const instanceRows = useMemo(() => [...instances.rows.values()], [instances.rows]);
  const problem = nodes.problem ?? instances.problem;
  if (problem && !nodes.isLoaded) return <div class="page"><Problem text={problem} /></div>;
  if (!nodes.isLoaded || !instances.isLoaded) return <div class="page"><PageTitle text={t.overview.title} /><Loading /></div>;
  return (
    <div class="page overview">
      <PageTitle text={name ? String(name) : t.overview.title} />
      <Health nodes={nodeRows} instances={instanceRows} />
      <Capacity nodes={nodeRows} instances={instanceRows} />
      <div class="halves">
        <Running jobs={jobs.rows} />
        <Recent jobs={jobs.rows} />
      </div>
    </div>
  );
}

function Health({ nodes, instances }: { nodes: readonly AnyRow[]; instances: readonly AnyRow[] }) {
  const found = useMemo(() => findings(nodes, instances), [nodes, instances]);
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
        <p>{plural(running, "instance")} of {instances.length.toLocaleString("en")} run on {plural(nodes.length, "node")}.</p>
      </div>
    </section>
  );
}

function Capacity({ nodes, instances }: { nodes: readonly AnyRow[]; instances: readonly AnyRow[] }) {
  const sum = useMemo(() => totals(nodes, instances), [nodes, instances]);
  const statuses = useMemo(() => {
    const counts = new Map<string, number>();
    for (const row of instances) counts.set(String(row["status"] ?? "unknown"), (counts.get(String(row["status"] ?? "unknown")) ?? 0) + 1);
    return [...counts].sort((one, other) => other[1] - one[1]);
  }, [instances]);
  return (
    <section class="cards" aria-label={t.overview.capacity}>
      <Card title={t.overview.memory} free={size(sum.memory.free)} whole={size(sum.memory.whole)} label={t.overview.free}>
        <Meter label={t.overview.memory} whole={sum.memory.whole} parts={[
          { name: t.overview.host, value: sum.memory.host, tone: "host" },
          { name: t.overview.used, value: sum.memory.whole - sum.memory.free - sum.memory.host, tone: "used" },
        ]} />
      </Card>
      <Card title={t.overview.disk} free={size(sum.disk.free)} whole={size(sum.disk.whole)} label={t.overview.free}>
        <Meter label={t.overview.disk} whole={sum.disk.whole} parts={[{ name: t.overview.used, value: sum.disk.whole - sum.disk.free, tone: "used" }]} />
      </Card>
      <Card title={t.overview.cpus} free={String(sum.cpus.allocated)} whole={sum.cpus.whole.toLocaleString("en")} label={t.overview.allocated}>
        <Meter label={t.overview.cpus} whole={Math.max(sum.cpus.whole, sum.cpus.allocated)} parts={[{ name: t.overview.allocated, value: sum.cpus.allocated, tone: "used" }]} />
      </Card>
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

type Jobs = ReadonlyMap<string, AnyRow>;

function Running({ jobs }: { jobs: Jobs }) {
  const progress = useStore((state) => state.progress);
  const now = useNow(1);
  const running = useMemo(() => [...jobs.values()].filter((job) => !FINAL.has(String(job["status"]))).slice(-RECENT), [jobs]);
  return (
    <section class="card">
      <header><h3>{t.overview.runningJobs}</h3><a href={href(["jobs"])}>{t.overview.allJobs}</a></header>
      {running.length === 0 ? <p class="faint">{t.overview.noJobs}</p> : (
        <ul class="lines">
          {running.map((job) => {
            const done = progress.get(String(job["id"]));
            const since = secondsOf(job["start_ts"]) ?? secondsOf(job["received_ts"]);
            return (
              <li key={String(job["id"])}>
                <JobStatus status={job["status"]} />
                <span class="what"><a href={href(["jobs", String(job["id"])])}>{summaryOf(job)}</a>
                  {done?.percent != null && <Meter label={done.text} whole={100} parts={[{ name: done.text, value: done.percent, tone: "used" }]} />}
                </span>
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
    () => [...jobs.values()].filter((job) => FINAL.has(String(job["status"])))
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

