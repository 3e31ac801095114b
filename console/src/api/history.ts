/** The history of an instance or a node: requested once, then only what was added, while the page is visible. */
import { useEffect, useState } from "preact/hooks";
import { joined, RANGES } from "../charts/series";
import type { History, Range } from "../charts/series";
import { reason, send } from "./client";

const LONGEST_PAUSE_S = 60;

export interface Followed {
  readonly history: History | null;
  readonly problem: string | null;
}

function requested(kind: "instance" | "node", name: string, range: Range, start: number, isQuiet: boolean): Promise<History> {
  const query = { start: Math.floor(start), step: RANGES[range].step };
  return send<History>({ method: "GET", path: `/2/${kind}s/${name}/history`, query }, isQuiet);
}

/** Return the history of an object in a range, which grows. */
export function useHistory(kind: "instance" | "node", name: string, range: Range): Followed {
  const of = `${kind} ${name} ${range}`;
  const [found, setFound] = useState<Followed & { of: string }>({ of, history: null, problem: null });
  useEffect(() => {
    const { step, span } = RANGES[range];
    let known: History | null = null;
    let timer = 0;
    let isOver = false;
    const ask = async (): Promise<void> => {
      if (!document.hidden) {
        const last = known?.times[known.times.length - 1];
        try {
          const start = last === undefined ? Date.now() / 1000 - span : last;
          const added = await requested(kind, name, range, start, known !== null);
          if (isOver) return;
          known = known === null ? added : joined(known, added, span);
          setFound({ of, history: known, problem: null });
        } catch (error) {
          if (isOver) return;
          setFound({ of, history: known, problem: reason(error) });
        }
      }
      timer = window.setTimeout(() => void ask(), Math.min(step, LONGEST_PAUSE_S) * 1000);
    };
    void ask();
    return () => { isOver = true; window.clearTimeout(timer); };
  }, [of]);
  return found.of === of ? found : { history: null, problem: null };
}
