/** The live event stream: one connection, resumed by number after each loss. */
import type { StreamEvent } from "../core/reducer";
import { store } from "../core/store";
import { send } from "./client";

const KINDS = ["job", "instance", "node", "group", "network", "cluster", "reset", "complete"];
const GATHER_MS = 40;
const AGAIN_MS = [250, 500, 1000, 2000, 4000];

export class Stream {
  #source: EventSource | null = null;
  #gathered: StreamEvent[] = [];
  #timer = 0;
  #failures = 0;
  #retry = 0;

  constructor() {
    addEventListener("online", () => this.start());
    addEventListener("offline", () => store.dispatch({ type: "link", link: "offline" }));
  }

  /** Follow the events, if the user may. */
  start(): void {
    const session = store.state.session;
    if (!session) return;
    if (session.rights.includes("read")) this.#open();
    else store.dispatch({ type: "link", link: "closed" });
  }

  stop(): void {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#retry);
  }

  #open(): void {
    this.stop();
    const last = store.state.last;
    const source = new EventSource(`/2/events${last ? `?after=${last}` : ""}`);
    this.#source = source;
    source.addEventListener("open", () => {
      this.#failures = 0;
      // Without a number to continue from, what happened in between is not known.
      const isGap = last === null && store.state.link !== "starting";
      store.dispatch({ type: "link", link: "live" });
      if (isGap) store.dispatch({ type: "events", events: [{ number: null, kind: "reset", content: {} }] });
    });
    source.addEventListener("error", () => this.#lost());
    for (const kind of KINDS) source.addEventListener(kind, (event) => this.#take(kind, event as MessageEvent<string>));
  }

  #take(kind: string, event: MessageEvent<string>): void {
    this.#gathered.push({ number: event.lastEventId || null, kind, content: JSON.parse(event.data) as StreamEvent["content"] });
    this.#timer ||= window.setTimeout(() => {
      const events = this.#gathered;
      this.#gathered = [];
      this.#timer = 0;
      store.dispatch({ type: "events", events });
    }, GATHER_MS);
  }

  #lost(): void {
    this.stop();
    if (!store.state.session) return;
    store.dispatch({ type: "link", link: navigator.onLine ? "lost" : "offline" });
    const wait = AGAIN_MS[Math.min(this.#failures, AGAIN_MS.length - 1)] ?? 0;
    this.#failures += 1;
    this.#retry = window.setTimeout(() => void this.#again(), wait);
  }

  /** The stream does not say why it ended; the session may have. */
  async #again(): Promise<void> {
    try {
      const session = await send({ method: "GET", path: "/2/session" }, true);
      if (session === null) {
        store.dispatch({ type: "signed-out" });
        return;
      }
    } catch {
      this.#lost();
      return;
    }
    this.#open();
  }
}
