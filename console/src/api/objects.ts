/** One answer of the server for a page, requested again when the page says that it may have changed. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { State } from "../core/state";
import { useStore } from "../core/store";
import { address, NO_ANSWER, reason, Refused, send } from "./client";
import type { Request } from "./client";

export interface Answered<T> {
  readonly value: T | null;
  readonly problem: string | null;
  readonly isGone: boolean;
  readonly again: () => void;
}

const AGAIN_MS = 1000;
const NO_ANSWER_MS = 5000;

/** Return a number that changes after events, or after those that change what `select` returns, at most once in `ms`:
 * for answers that have no events of their own. */
export function useChanges(ms = AGAIN_MS, select: (state: State) => unknown = (state) => state.last): number {
  const last = useStore(select);
  const [count, setCount] = useState(0);
  const timer = useRef(0);
  const seen = useRef(last);
  useEffect(() => {
    if (seen.current === last) return;
    seen.current = last;
    timer.current ||= window.setTimeout(() => { timer.current = 0; setCount((before) => before + 1); }, ms);
  }, [last]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return count;
}

/** Return the answer of a request (null: none). A new `version` requests it again, and shows the old one meanwhile.
 * A server that does not answer is asked again, because no event may follow that changes the version. */
export function useAnswer<T>(request: Request | null, version: unknown = 0): Answered<T> {
  const [turn, setTurn] = useState({ isQuiet: false });
  const last = useRef(turn);
  const [found, setFound] = useState<{ of: string; value: T | null; problem: string | null; isGone: boolean }>({
    of: "", value: null, problem: null, isGone: false,
  });
  const of = request ? address(request) : "";
  useEffect(() => {
    if (!request) return undefined;
    let isOver = false;
    let timer = 0;
    const isQuiet = turn === last.current ? version !== 0 : turn.isQuiet;
    last.current = turn;
    send<T>(request, isQuiet).then(
      (value) => { if (!isOver) setFound({ of, value, problem: null, isGone: false }); },
      (error: unknown) => {
        if (isOver) return;
        const status = error instanceof Refused ? error.status : null;
        if (status === NO_ANSWER) timer = window.setTimeout(() => setTurn({ isQuiet: true }), NO_ANSWER_MS);
        setFound((before) => ({ of, value: before.of === of ? before.value : null, problem: reason(error), isGone: status === 404 }));
      },
    );
    return () => { isOver = true; clearTimeout(timer); };
  }, [of, version, turn]);
  const again = useCallback(() => setTurn({ isQuiet: false }), []);
  const current = found.of === of ? found : { value: null, problem: null, isGone: false };
  return { value: current.value, problem: current.problem, isGone: current.isGone, again };
}
