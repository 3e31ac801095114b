/** The plot of one chart: uPlot, which is loaded when the first chart is shown. */
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { marks, shown } from "./series";
import type { Unit } from "./series";

export interface Plotted {
  readonly labels: readonly string[];
  readonly unit: Unit;
  readonly span: number;
}

export interface Plot {
  set(data: readonly (readonly (number | null)[])[]): void;
  resize(width: number): void;
  destroy(): void;
}

const HEIGHT = 170;
const AXIS_WIDTH = 84;
/** The second line is dashed, so that nobody needs to see the colours. */
const LINES = [{ token: "--bar", dash: [] as number[] }, { token: "--bar-warn", dash: [5, 3] }];

const pad = (value: number): string => String(value).padStart(2, "0");

function moment(seconds: number, span: number): string {
  const date = new Date(seconds * 1000);
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  return span > 86_400 ? date.toLocaleDateString(undefined, { month: "short", day: "numeric" }) : time;
}

/** Draw a chart into an element, in the colours that its style has now. */
export function plot(into: HTMLElement, what: Plotted): Plot {
  const style = getComputedStyle(into);
  const colour = (token: string): string => style.getPropertyValue(token).trim();
  const axis = {
    stroke: colour("--faint"), font: `11px ${style.fontFamily}`,
    grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 },
  };
  const made = new uPlot({
    width: Math.max(into.clientWidth, 200), height: HEIGHT,
    cursor: { y: false, drag: { x: false, y: false } },
    legend: { live: true },
    scales: {
      x: { time: true, range: (_self, _least, most) => [most - what.span, most] },
      y: { range: (_self, _least, most) => [0, most > 0 ? most * 1.1 : 1] },
    },
    axes: [
      { ...axis, values: (_self, splits) => splits.map((one) => moment(one, what.span)) },
      { ...axis, size: AXIS_WIDTH, incrs: marks(what.unit), values: (_self, splits) => splits.map((one) => shown(one, what.unit)) },
    ],
    series: [
      { value: (_self, seconds) => (seconds === null ? "–" : new Date(seconds * 1000).toLocaleString(undefined, { hour12: false })) },
      ...what.labels.map((label, at) => {
        const line = LINES[at % LINES.length] as (typeof LINES)[number];
        return {
          label, stroke: colour(line.token), width: 1.5, dash: line.dash, points: { show: false }, spanGaps: false,
          ...(at === 0 ? { fill: `color-mix(in srgb, ${colour(line.token)} 14%, transparent)` } : {}),
          value: (_self: uPlot, value: number | null) => shown(value, what.unit),
        };
      }),
    ],
  }, [[], ...what.labels.map(() => [])] as unknown as uPlot.AlignedData, into);
  return {
    set: (data) => made.setData(data as unknown as uPlot.AlignedData),
    resize: (width) => made.setSize({ width: Math.max(width, 200), height: HEIGHT }),
    destroy: () => made.destroy(),
  };
}
