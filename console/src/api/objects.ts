/** One answer of the server for a page, requested again when the page says that it may have changed. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { State } from "../core/state";
import { useStore } from "../core/store";
import { address, reason, Refused, send } from "./client";
import type { Request } from "./client";

export interface Answered<T> {
  readonly value: T | null;
  readonly problem: string | null;
  readonly isGone: boolean;
  readonly again: () => void;
}

const AGAIN_MS = 1000;

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

/** Return the answer of a request (null: none). A new `version` requests it again, and shows the old one meanwhile. */
export function useAnswer<T>(request: Request | null, version: unknown = 0): Answered<T> {
  const [count, setCount] = useState(0);
  const [found, setFound] = useState<{ of: string; value: T | null; problem: string | null; isGone: boolean }>({
    of: "", value: null, problem: null, isGone: false,
  });
  const of = request ? address(request) : "";
  useEffect(() => {
    if (!request) return undefined;
    let isOver = false;
    send<T>(request, count === 0 && version !== 0).then(
      (value) => { if (!isOver) setFound({ of, value, problem: null, isGone: false }); },
      (error: unknown) => {
        if (isOver) return;
        const isGone = error instanceof Refused && error.status === 404;
        setFound((before) => ({ of, value: before.of === of ? before.value : null, problem: reason(error), isGone }));
      },
    );
    return () => { isOver = true; };
  }, [of, version, count]);
  const again = useCallback(() => setCount((before) => before + 1), []);
  const current = found.of === of ? found : { value: null, problem: null, isGone: false };
  return { value: current.value, problem: current.problem, isGone: current.isGone, again };
}
