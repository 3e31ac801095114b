/** The one store: its state changes only by actions, and its listeners are called once for each change. */
import { useEffect, useReducer, useRef } from "preact/hooks";
import { reduce } from "./reducer";
import type { Action } from "./reducer";
import { initialState } from "./state";
import type { State } from "./state";

export class Store {
  #state: State = initialState();
  readonly #listeners = new Set<() => void>();

  get state(): State {
    return this.#state;
  }

  dispatch(action: Action): void {
    const next = reduce(this.#state, action);
    if (next === this.#state) return;
    this.#state = next;
    for (const listener of [...this.#listeners]) listener();
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

export const store = new Store();

/** Return what `select` returns of the state, and render again whenever it is another value. */
export function useStore<T>(select: (state: State) => T): T {
  const [, render] = useReducer((count: number) => count + 1, 0);
  const selected = select(store.state);
  const current = useRef({ select, selected });
  current.current = { select, selected };
  useEffect(() => {
    const follow = () => {
      const { select, selected } = current.current;
      if (!Object.is(select(store.state), selected)) render(0);
    };
    follow(); // effects run after the picture is drawn: the state may have changed since
    return store.subscribe(follow);
  }, []);
  return selected;
}
