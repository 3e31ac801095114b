/** The WebSocket of a console: a new ticket for each connection, and a new connection after a migration. */
import { reason, Refused, send } from "../api/client";

export type Kind = "serial" | "vnc";
export type ConsoleState = "connecting" | "open" | "waiting" | "ended";

interface Ticket {
  readonly path: string;
}

/** Close codes of the server after which connecting again is pointless. */
const FINAL_CODES: Readonly<Record<number, string>> = {
  4001: "The session has ended. Sign in again.",
  4002: "The console was idle for too long.",
};
const AGAIN_MS = [300, 1000, 2000, 4000];

/** Return the address of a console, which can be used once and soon; Refused. */
export async function consoleAddress(name: string, kind: Kind): Promise<string> {
  const ticket = await send<Ticket>({ method: "POST", path: `/2/instances/${encodeURIComponent(name)}/console-ticket`, body: { kind } });
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${ticket.path}`;
}

/** Keeps one console connected until it is stopped. `connect` opens one connection and resolves with its close code. */
export class Connector {
  #isStopped = false;
  #timer = 0;
  #wake: (() => void) | null = null;

  constructor(
    private readonly name: string,
    private readonly kind: Kind,
    private readonly connect: (address: string, opened: () => void) => Promise<number>,
    private readonly report: (state: ConsoleState, text: string) => void,
  ) {}

  async run(): Promise<void> {
    let failures = 0;
    while (!this.#isStopped) {
      this.report("connecting", "");
      try {
        const address = await consoleAddress(this.name, this.kind);
        if (this.#isStopped) return;
        const code = await this.connect(address, () => { failures = 0; this.report("open", ""); });
        const why = FINAL_CODES[code];
        if (why) return this.#end(why);
        if (!this.#isStopped) this.report("waiting", "");
      } catch (error) {
        if (error instanceof Refused && error.status === 403) return this.#end(reason(error));
        if (!this.#isStopped) this.report("waiting", reason(error));
      }
      await this.#pause(AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)] ?? 0);
      failures += 1;
    }
    return undefined;
  }

  /** End the loop, and the pause in it. */
  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    this.#wake?.();
  }

  #end(why: string): void {
    this.#isStopped = true;
    this.report("ended", why);
  }

  #pause(ms: number): Promise<void> {
    if (this.#isStopped) return Promise.resolve();
    return new Promise((resolve) => {
      this.#wake = resolve;
      this.#timer = window.setTimeout(resolve, ms);
    });
  }
}
