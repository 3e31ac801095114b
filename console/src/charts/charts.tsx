/** Processor, memory, disk and network of an instance or a node over the last hour, day or month. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useHistory } from "../api/history";
import { clock } from "../core/format";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import type { Plot } from "./plot";
import { aligned, CHARTS, RANGE_NAMES, RANGES, shown, shownFigures, summary, tableRows } from "./series";
import type { Chart, History, Range } from "./series";
import "./charts.css";

const TABLE_ROWS = 24;

export function Charts({ kind, name }: { kind: "instance" | "node"; name: string }) {
  const operation = kind === "instance" ? "get_instances_name_history" : "get_nodes_name_history";
  const may = useStore((state) => state.session?.operations.includes(operation) ?? false);
  return may ? <Allowed kind={kind} name={name} /> : null;
}

function Allowed({ kind, name }: { kind: "instance" | "node"; name: string }) {
  const [range, setRange] = useState<Range>("hour");
  const { history, problem } = useHistory(kind, name, range);
  const charts = history ? CHARTS.filter((chart) => shownFigures(chart, history).length > 0) : [];
  return (
    <section class="card charts" aria-label={t.charts.title}>
      <header>
        <h3>{t.charts.title}</h3>
        <div class="ranges" role="group" aria-label={t.charts.range}>
          {RANGE_NAMES.map((one) => (
            <button key={one} class="small" aria-pressed={one === range} onClick={() => setRange(one)}>{t.charts.ranges[one]}</button>
          ))}
        </div>
      </header>
      {problem && <p class="faint">{problem}</p>}
      {history && history.silent.length > 0 && <p class="faint">{t.charts.silent(history.silent.join(", "))}</p>}
      {history && charts.length === 0 && <p class="faint">{t.charts.none}</p>}
      <div class="plots">
        {history && charts.map((chart) => <Drawn key={`${chart.id} ${range}`} chart={chart} history={history} range={range} />)}
      </div>
      {history && charts.length > 0 && <AsTable charts={charts} history={history} />}
    </section>
  );
}

/** A number that changes with the colours of the page. */
function useColours(): number {
  const [count, setCount] = useState(0);
  useEffect(() => {
    const changed = (): void => setCount((before) => before + 1);
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    const chosen = new MutationObserver(changed);
    system.addEventListener("change", changed);
    chosen.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => { system.removeEventListener("change", changed); chosen.disconnect(); };
  }, []);
  return count;
}

function Drawn({ chart, history, range }: { chart: Chart; history: History; range: Range }) {
  const box = useRef<HTMLDivElement>(null);
  const drawn = useRef<Plot | null>(null);
  const colours = useColours();
  const figures = shownFigures(chart, history);
  const names = figures.join(" ");
  const data = useMemo(() => aligned(history, figures), [history, names]);
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    let isOver = false;
    const sized = new ResizeObserver(() => { if (box.current) drawn.current?.resize(box.current.clientWidth); });
    void import("./plot").then(({ plot }) => {
      if (isOver || !box.current) return;
      const labels = figures.map((figure) => t.charts.figures[figure] ?? figure);
      drawn.current = plot(box.current, { labels, unit: chart.unit, span: RANGES[range].span });
      drawn.current.set(latest.current);
      sized.observe(box.current);
    });
    return () => { isOver = true; sized.disconnect(); drawn.current?.destroy(); drawn.current = null; };
  }, [names, colours, range]);
  useEffect(() => drawn.current?.set(data), [data]);
  return (
    <figure>
      <figcaption>
        <strong>{t.charts.titles[chart.id]}</strong>
        {figures.map((figure) => {
          const found = summary(history.figures[figure] ?? []);
          const text = t.charts.summary(shown(found.latest, chart.unit), shown(found.mean, chart.unit), shown(found.greatest, chart.unit));
          return <small key={figure}>{figures.length > 1 ? `${t.charts.figures[figure] ?? figure}: ` : ""}{text}</small>;
        })}
      </figcaption>
      <div class="plot" ref={box} aria-hidden="true" />
    </figure>
  );
}

/** The same as numbers, for people who cannot see the charts. */
function AsTable({ charts, history }: { charts: readonly Chart[]; history: History }) {
  const [open, setOpen] = useState(false);
  const columns = charts.flatMap((chart) => shownFigures(chart, history).map((figure) => ({ figure, chart })));
  return (
    <details onToggle={(event) => setOpen((event.currentTarget as HTMLDetailsElement).open)}>
      <summary>{t.charts.asTable}</summary>
      {open && (
        <div class="numbers" tabIndex={0} role="region" aria-label={t.charts.asTable}>
          <table>
            <thead><tr><th scope="col">{t.charts.from}</th>{columns.map(({ figure, chart }) => (
              <th key={figure} scope="col">{t.charts.titles[chart.id]}: {t.charts.figures[figure] ?? figure}</th>
            ))}</tr></thead>
            <tbody>{tableRows(history, columns.map((one) => one.figure), TABLE_ROWS).map((row) => (
              <tr key={row.time}><th scope="row">{clock(row.time)}</th>{row.values.map((value, at) => (
                <td key={at}>{shown(value, columns[at]?.chart.unit ?? "requests")}</td>
              ))}</tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </details>
  );
}
