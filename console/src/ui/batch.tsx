/** The confirmation of one action for several objects, and one list of what became of each. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { submit } from "../actions/actions";
import type { Act } from "../actions/actions";
import { commandOf, curlOf } from "../actions/commands";
import { reason } from "../api/client";
import { answered, fitting, isOver, linesOf, sentOf, startBatch, stopped } from "../core/batch";
import type { Batch, Outcome, Sent } from "../core/batch";
import { tagsIn } from "../core/edits";
import { plural } from "../core/format";
import type { Key, Kind } from "../core/state";
import { t } from "../texts/en";
import { Badge, Meter, ObjectLink } from "./bits";
import type { Tone } from "./bits";
import { AsCommand, Dialog } from "./dialog";
import { useTable } from "./rows";

/** Requests at the same time: enough to keep the master busy, few enough to leave it room for others. */
const AT_ONCE = 6;
const PART = 24;
const NAMED = 12;
const SHOWN = 200;

export function ConfirmMany({ act, kind, names, hidden, onClose, onDone }: {
  act: Act; kind: Kind; names: readonly Key[]; hidden: number; onClose: () => void; onDone: () => void;
}) {
  const rows = useTable(kind).rows;
  // What was confirmed is what is done, whatever changes meanwhile.
  const [{ fit, left }] = useState(() => fitting(act.fits, names, rows));
  const [typed, setTyped] = useState("");
  const [text, setText] = useState("");
  const [batch, setBatch] = useState<Batch | null>(null);
  const words = tagsIn(text);
  const word = fit.length === 1 ? String(fit[0]) : String(fit.length);
  const isReady = fit.length > 0 && (!act.isDestructive || typed === word) && (!act.ask || words.length > 0);
  const title = `${act.label}: ${plural(fit.length, t.kinds[kind] ?? t.acts.object)}`;
  if (batch) return <Results act={act} kind={kind} batch={batch} words={words} title={title} onBatch={setBatch} onClose={() => { onClose(); onDone(); }} />;
  const commands = fit.slice(0, 3).map((name) => commandOf(act.operation, act.values(name, words)));
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); if (isReady) setBatch(startBatch(fit)); }}>
        <p>{act.explanation}</p>
        <p class="names">{fit.slice(0, NAMED).join(", ")}{fit.length > NAMED ? ` ${t.batch.andMore(fit.length - NAMED)}` : ""}</p>
        {left.length > 0 && <p class="banner"><span>{t.batch.leftOut(left.length)} {left.slice(0, 3).join(", ")}{left.length > 3 ? " …" : ""}</span></p>}
        {hidden > 0 && <p class="banner warn"><span>{t.batch.hidden(hidden)}</span></p>}
        {act.ask && (
          <label class="field"><span>{act.ask.label}</span>
            <input autocomplete="off" spellcheck={false} autofocus value={text} onInput={(event) => setText(event.currentTarget.value)} /><small>{act.ask.hint}</small></label>
        )}
        {act.isDestructive && fit.length > 0 && (
          <label class="field"><span>{fit.length === 1 ? t.acts.typeName : t.batch.typeNumber}: <code>{word}</code></span>
            <input autocomplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} /></label>
        )}
        {fit.length > 0 && <AsCommand command={commands.join("; ") + (fit.length > 3 ? "; …" : "")} curl={curlOf(act.request(String(fit[0]), words), location.origin)} />}
        <footer>
          <button type="button" onClick={onClose}>{t.acts.cancel}</button>
          <button class={act.tone === "danger" ? "danger" : "primary"} disabled={!isReady}>{act.label}</button>
        </footer>
      </form>
    </Dialog>
  );
}

const TONES: Readonly<Record<Outcome, Tone>> = { waits: "quiet", runs: "info", good: "good", bad: "bad", canceled: "quiet" };

function Results({ act, kind, batch, words, title, onBatch, onClose }: {
  act: Act; kind: Kind; batch: Batch; words: readonly string[]; title: string; onBatch: (change: (before: Batch | null) => Batch | null) => void; onClose: () => void;
}) {
  const jobs = useTable("job").rows;
  const isStopped = useRef(false);
  const { lines, counts } = useMemo(() => linesOf(batch, jobs), [batch, jobs]);
  useEffect(() => {
    void sendAll(act, batch.names, words, () => isStopped.current, (found) => onBatch((before) => before && answered(before, found)));
  }, []);
  const isAllSent = batch.isStopped || batch.sent.size === batch.names.length;
  const ended = counts.good + counts.bad + counts.canceled;
  const stop = () => { isStopped.current = true; onBatch((before) => before && stopped(before)); };
  return (
    <Dialog title={title} onClose={() => { stop(); onClose(); }} wide>
      <p role="status">{isOver(batch, jobs) ? t.batch.over : t.batch.underWay}: {(["good", "bad", "runs", "waits", "canceled"] as const).filter((one) => counts[one] > 0)
        .map((one) => `${counts[one].toLocaleString("en")} ${t.batch.outcomes[one]}`).join(", ")}</p>
      <Meter label={title} whole={batch.names.length} parts={[
        { name: t.batch.outcomes.good, value: counts.good, tone: "used" }, { name: t.batch.outcomes.bad, value: counts.bad, tone: "bad" },
        { name: t.batch.outcomes.canceled, value: ended - counts.good - counts.bad, tone: "host" },
      ]} />
      <ul class="lines results" tabIndex={0} aria-label={title}>
        {lines.slice(0, SHOWN).map((line) => (
          <li key={line.name}>
            <Badge tone={TONES[line.outcome]}>{t.batch.outcomes[line.outcome]}</Badge>
            <span class="what"><ObjectLink kind={kind} name={line.name} whole />{line.why && <small>{line.why}</small>}</span>
            <small>{line.job === null ? "" : <ObjectLink kind="job" name={line.job} whole />}</small>
          </li>
        ))}
      </ul>
      {lines.length > SHOWN && <p class="faint">{t.batch.andMore(lines.length - SHOWN)}</p>}
      <footer>
        {!isAllSent && <button type="button" onClick={stop}>{t.batch.stop}</button>}
        <button type="button" class="primary" onClick={() => { stop(); onClose(); }}>{t.acts.close}</button>
      </footer>
    </Dialog>
  );
}

/** Send the requests, some at a time, and report their answers in parts, so that 20,000 do not draw the page 20,000 times. */
async function sendAll(act: Act, names: readonly Key[], words: readonly string[], isStopped: () => boolean, onAnswers: (found: [Key, Sent][]) => void): Promise<void> {
  let next = 0;
  let found: [Key, Sent][] = [];
  const flush = () => { if (found.length) onAnswers(found); found = []; };
  const timer = setInterval(flush, 250);
  const work = async () => {
    while (next < names.length && !isStopped()) {
      const name = names[next++] as Key;
      try {
        found.push([name, sentOf(await submit(act.request(name, words), true))]);
      } catch (error) {
        found.push([name, { state: "refused", why: reason(error) }]);
      }
      if (found.length >= PART) flush();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  clearInterval(timer);
  flush();
}
