/** The instances of a node as squares: one path for all squares of a tone, so that thousands cost no more elements than a few. */
import type { AnyRow } from "../core/state";
import { instanceTone } from "./bits";

const SQUARE = 9;
const STEP = 11;
const PER_LINE = 14;

export function Squares({ instances }: { instances: readonly AnyRow[] }) {
  const lines = Math.max(1, Math.ceil(instances.length / PER_LINE));
  return (
    <svg class="squares" viewBox={`0 0 ${PER_LINE * STEP} ${lines * STEP}`} width={PER_LINE * STEP} height={lines * STEP} aria-hidden="true">
      {Object.entries(paths(instances)).map(([tone, path]) => <path key={tone} class={tone} d={path} />)}
    </svg>
  );
}

function paths(instances: readonly AnyRow[]): Record<string, string> {
  const found: Record<string, string> = {};
  instances.forEach((row, index) => {
    const tone = instanceTone(row["status"]);
    const [x, y] = [(index % PER_LINE) * STEP, Math.floor(index / PER_LINE) * STEP];
    found[tone] = `${found[tone] ?? ""}M${x} ${y}h${SQUARE}v${SQUARE}h-${SQUARE}z`;
  });
  return found;
}
