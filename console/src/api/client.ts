/** Requests to the REST interface: the only module of the page that fetches. */
import { store } from "../core/store";

/** Waits before a request that only reads is sent again. */
const READ_AGAIN_MS = [200, 1000];

/** The status of a request that the server did not answer. */
export const NO_ANSWER = 0;

/** A refusal of the server: what is wrong, and what to do about it. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export interface Request {
  readonly method: "GET" | "PUT" | "POST" | "DELETE";
  readonly path: string;
  /** A list is a parameter that is repeated. */
  readonly query?: Readonly<Record<string, string | number | readonly string[]>>;
  readonly body?: unknown;
  /** A piece of a file instead of a body, and its `Content-Range`. */
  readonly bytes?: { readonly data: Blob; readonly range: string };
  readonly signal?: AbortSignal;
}

/** Path and query of a request. */
export function address(request: Request): string {
  const query = Object.entries(request.query ?? {}).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, String(one)]));
  return request.path + (query.length ? `?${new URLSearchParams(query as [string, string][]).toString()}` : "");
}

/** Send a request and return the decoded answer; Refused. `isQuiet`: no person caused it. */
export async function send<T>(request: Request, isQuiet = false): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  const session = store.state.session;
  if (request.method !== "GET" && session) headers["X-Csrf-Token"] = session.csrf;
  if (request.body !== undefined) headers["Content-Type"] = "application/json";
  if (request.bytes) Object.assign(headers, { "Content-Type": "application/octet-stream", "Content-Range": request.bytes.range });
  if (isQuiet) headers["X-Background"] = "1";
  const { response, text } = await fetched(address(request), {
    method: request.method, headers, credentials: "same-origin",
    ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
    ...(request.bytes ? { body: request.bytes.data } : {}), ...(request.signal ? { signal: request.signal } : {}),
  });
  if (response.status === 401 && session) store.dispatch({ type: "signed-out" });
  const answer: unknown = text ? decoded(text) : null;
  if (!response.ok) throw new Refused(response.status, reasonOf(answer, response));
  return answer as T;
}

/** A browser cancels its requests when the host changes its network: what only reads is sent again. */
async function fetched(url: string, options: RequestInit): Promise<{ response: Response; text: string }> {
  const waits = options.method === "GET" ? READ_AGAIN_MS : [];
  for (let turn = 0; ; turn += 1) {
    try {
      const response = await fetch(url, options);
      return { response, text: await response.text() };
    } catch {
      const wait = waits[turn];
      if (wait === undefined) throw new Refused(NO_ANSWER, "The server does not answer. The page tries again by itself when it is back.");
      await new Promise((done) => setTimeout(done, wait));
    }
  }
}

function decoded(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function reasonOf(answer: unknown, response: Response): string {
  const { explain, message } = (answer ?? {}) as { explain?: string; message?: string };
  const wait = response.headers.get("Retry-After");
  const again = wait ? ` Try again in ${wait} s.` : "";
  return (explain || message || `The server refused the request (${response.status}).`) + again;
}

export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
