/** What the cluster would do if nodes failed: ask, wait, and play the result. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { reason, send } from "../api/client";
import { useAnswer } from "../api/objects";
import { clock, compare, duration, plural, short } from "../core/format";
import { setParameter, usePlace } from "../core/route";
import { groupsOf } from "../core/topology";
import { commandOf, figureOf, firstMoment, momentOf, requestOf, saidBy } from "../core/whatif";
import type { Question, Report, Simulation } from "../core/whatif";
import { t } from "../texts/en";
import { Badge, Empty, Meter, PageTitle, Problem } from "../ui/bits";
import type { Tone } from "../ui/bits";
import { Loading } from "../ui/listpage";
import { useTable } from "../ui/rows";
import { Squares } from "../ui/squares";

/** A simulation has no events: while one runs, it is requested so often. */
const AGAIN_MS = 1000;
const PLAY_S = 20;
const FRAME_MS = 100;
const SAID = 8;
const STILL = 50;
const MOST_SEEDS = 20;
const TONES: Readonly<Record<string, Tone>> = { running: "info", done: "good", failed: "bad" };
const PATH = "/2/whatif";
const RUN = "run";

export function WhatIf() {
  const { query } = usePlace();
  const [version, setVersion] = useState(0);
  const again = () => setVersion((before) => before + 1);
  const answer = useAnswer<Simulation[]>({ method: "GET", path: PATH }, version);
  const all = answer.value ?? [];
  const chosen = all.find((one) => one.id === query.get(RUN)) ?? all.at(-1);
  const isWaiting = all.some((one) => one.state === "running");
  useEffect(() => {
    if (!isWaiting) return undefined;
    const timer = setInterval(() => { if (!document.hidden) again(); }, AGAIN_MS);
    return () => clearInterval(timer);
  }, [isWaiting]);
  return (
    <div class="page">
      <PageTitle text={t.nav.whatif} />
      <p class="faint">{t.whatif.what}</p>
      <Ask first={query.get("nodes") ?? ""} onBegun={(one) => { setParameter(RUN, one.id); again(); }} />
      {answer.problem && <Problem text={answer.problem} onAgain={answer.again} />}
      {!answer.value && !answer.problem && <Loading />}
      {answer.value && all.length === 0 && <Empty icon="whatif" title={t.whatif.empty}>{t.whatif.emptyWhat}</Empty>}
      {all.length > 0 && <List all={all} chosen={chosen?.id} onChange={again} />}
      {chosen?.state === "done" && <Result key={chosen.id} id={chosen.id} />}
    </div>
  );
}

function Ask({ first, onBegun }: { first: string; onBegun: (one: Simulation) => void }) {
  const rows = useTable("node").rows;
  const names = useMemo(() => [...rows.keys()].map(String).sort(compare), [rows]);
  const [nodes, setNodes] = useState<readonly string[]>(first ? first.split(",") : []);
  const [typed, setTyped] = useState("");
  const [back, setBack] = useState("");
  const [seeds, setSeeds] = useState(1);
  const [isProtected, setProtected] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const [isSent, setSent] = useState(false);
  const left = names.filter((name) => !nodes.includes(name));
  const match = left.find((name) => name === typed || short(name) === typed);
  const add = (name: string) => { setNodes([...nodes, name]); setTyped(""); };
  const question: Question = { nodes, back, isProtected, seeds };
  const begin = () => {
    setSent(true);
    setProblem(null);
    send<Simulation>({ method: "POST", path: PATH, body: requestOf(question) }).then(onBegun, (error: unknown) => setProblem(reason(error))).finally(() => setSent(false));
  };
  return (
    <form class="card" onSubmit={(event) => { event.preventDefault(); if (match) add(match); else if (nodes.length > 0 && !isSent) begin(); }}>
      <div class="toolbar">
        <label class="field"><span>{t.whatif.nodes}</span>
          <input list="nodes-left" autocomplete="off" spellcheck={false} placeholder={t.whatif.node} value={typed} onInput={(event) => {
            const text = event.currentTarget.value;
            if (left.includes(text)) add(text); else setTyped(text);
          }} />
          <datalist id="nodes-left">{left.map((name) => <option key={name} value={name} />)}</datalist></label>
        <label class="field"><span>{t.whatif.back}</span>
          <input autocomplete="off" spellcheck={false} value={back} title={t.whatif.backHint} placeholder={t.whatif.backHint} onInput={(event) => setBack(event.currentTarget.value)} /></label>
        <label class="field"><span>{t.whatif.seeds}</span>
          <input type="number" min={1} max={MOST_SEEDS} value={seeds} title={t.whatif.seedsHint} onInput={(event) => setSeeds(Math.min(MOST_SEEDS, Math.max(1, Number(event.currentTarget.value) || 1)))} /></label>
        <label class="check" title={t.whatif.protectedHint}><input type="checkbox" checked={isProtected} onChange={(event) => setProtected(event.currentTarget.checked)} /><span>{t.whatif.isProtected}</span></label>
      </div>
      <ul class="chips" aria-label={t.whatif.nodes}>
        {nodes.length === 0 && <li class="faint">{t.whatif.none}</li>}
        {nodes.map((name) => <li key={name}><button type="button" class="chip" aria-label={t.whatif.remove(name)} onClick={() => setNodes(nodes.filter((one) => one !== name))}>{short(name)} ×</button></li>)}
      </ul>
      {problem && <Problem text={problem} />}
      <div class="page-actions">
        <button class="primary" disabled={isSent || (nodes.length === 0 && !match)}>{match ? t.whatif.add : t.whatif.start}</button>
        {nodes.length > 0 && <code>{commandOf(question)}</code>}
      </div>
    </form>
  );
}

function List({ all, chosen, onChange }: { all: readonly Simulation[]; chosen: string | undefined; onChange: () => void }) {
  const [problem, setProblem] = useState<string | null>(null);
  const remove = (id: string) => { send({ method: "DELETE", path: `${PATH}/${id}` }).catch((error: unknown) => setProblem(reason(error))).finally(onChange); };
  return (
    <section class="card">
      <header><h3>{t.whatif.title}</h3></header>
      {problem && <Problem text={problem} />}
      <ul class="lines">
        {[...all].reverse().map((one) => (
          <li key={one.id} aria-current={one.id === chosen ? "true" : undefined}>
            <Badge tone={TONES[one.state] ?? "quiet"}>{t.whatif.states[one.state] ?? one.state}</Badge>
            <span class="what">
              <span>{one.name || one.id} <small>{clock(one.began)}</small></span>
              {one.state === "running" && <><Meter label={t.whatif.seeds} whole={one.seeds} parts={[{ name: t.whatif.states["done"] ?? "", value: one.done, tone: "used" }]} /><small role="status">{t.whatif.runs(one.done, one.seeds)}</small></>}
              {one.error && <small>{one.error}</small>}
            </span>
            <span class="page-actions">
              {one.state === "done" && one.id !== chosen && <button class="small" onClick={() => setParameter(RUN, one.id)}>{t.whatif.show}</button>}
              <button class="small" onClick={() => remove(one.id)}>{one.state === "running" ? t.whatif.end : t.whatif.discard}</button>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Result({ id }: { id: string }) {
  const answer = useAnswer<{ report: Report | null }>({ method: "GET", path: `${PATH}/${id}` });
  const report = answer.value?.report;
  if (answer.problem) return <Problem text={answer.problem} onAgain={answer.again} />;
  if (!report) return <Loading />;
  const { run } = report;
  const shown = (name: string) => (name.endsWith(" s") ? (value: number) => (value ? duration(value) : "0 s") : String);
  return (
    <>
      <section class="card">
        <header><h3>{report.steps.join("; ")}</h3><a class="button" target="_blank" rel="noopener" href={`${PATH}/${id}/report`}>{t.whatif.report}</a></header>
        <dl class="facts">
          {Object.entries(t.whatif.figures).map(([name, label]) => <div key={name}><dt>{label}</dt><dd>{figureOf(report, name, shown(name))}</dd></div>)}
        </dl>
        {run.first_misfit && <p class="banner warn"><span>{t.whatif.misfit} {run.first_misfit.what}. {run.first_misfit.why}</span></p>}
        {report.seeds.length > 1 && <p class="faint">{t.whatif.worst(run.seed)}</p>}
        {report.notes.map((note) => <p class="faint" key={note}>{note}</p>)}
        {run.still_down.length > 0 && (
          <details><summary>{t.whatif.still}: {plural(run.still_down.length, "instance")}</summary>
            <ul class="lines">{run.still_down.slice(0, STILL).map((one) => <li key={one.instance}><Badge tone="bad">{t.status["ERROR_down"] ?? ""}</Badge><span class="what"><span>{one.instance}</span><small>{one.why}</small></span></li>)}</ul>
          </details>
        )}
      </section>
      <Replay report={report} />
    </>
  );
}

/** The map at each moment of the run. */
function Replay({ report: { run } }: { report: Report }) {
  const nodes = useTable("node").rows;
  const instances = useTable("instance").rows;
  const first = firstMoment(run);
  const [at, setAt] = useState(first);
  const [isPlaying, setPlaying] = useState(false);
  useEffect(() => {
    if (!isPlaying) return undefined;
    const step = ((run.ended - first) * FRAME_MS) / 1000 / PLAY_S;
    const timer = setInterval(() => setAt((before) => Math.min(run.ended, before + step)), FRAME_MS);
    return () => clearInterval(timer);
  }, [isPlaying, run, first]);
  useEffect(() => { if (at >= run.ended) setPlaying(false); }, [at, run]);
  const groups = useMemo(() => {
    const moment = momentOf(run, at, nodes.values(), instances.values());
    return groupsOf(moment.nodes, moment.instances);
  }, [run, at, nodes, instances]);
  const play = () => { if (at >= run.ended) setAt(first); setPlaying(!isPlaying); };
  return (
    <section class="card">
      <header><h3>{t.whatif.moment}</h3><span>{duration(at)} {t.whatif.of} {duration(run.ended)}</span></header>
      <div class="replay">
        <button onClick={play}>{isPlaying ? t.whatif.pause : t.whatif.play}</button>
        <input type="range" aria-label={t.whatif.time} aria-valuetext={duration(at)} min={first} max={run.ended} step="any" value={at} onInput={(event) => { setPlaying(false); setAt(Number(event.currentTarget.value)); }} />
      </div>
      {[...groups].map(([group, racks]) => (
        <div key={group}>
          <h4>{t.map.group} {group}</h4>
          <div class="racks">{racks.map((rack) => (
            <div key={rack.name} class={rack.name ? "rack" : "rack unnamed"}>
              {rack.name && <h4>{t.map.rack} {rack.name}</h4>}
              <div class="tiles">{rack.tiles.map((tile) => (
                <div key={tile.name} class={`card tile ${tile.node["offline"] ? "off" : "low"}`} title={tile.name}>
                  <span class="tile-head"><strong>{short(tile.name)}</strong><span>{plural(tile.instances.length, "instance")}</span></span>
                  <Squares instances={tile.instances} />
                </div>
              ))}</div>
            </div>
          ))}</div>
        </div>
      ))}
      <h4>{t.whatif.said}</h4>
      <ul class="lines" aria-live="off">{saidBy(run, at, SAID).map((one, index) => <li key={index}><small>{duration(one.at)}</small><span class="what">{one.text}</span></li>)}</ul>
    </section>
  );
}
