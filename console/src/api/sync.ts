/** Keeps the tables of the state as the events say: requests what is due and what has changed. */
import { KINDS } from "../core/state";
import type { AnyRow, Key, Kind, Session } from "../core/state";
import { store } from "../core/store";
import { reason, send } from "./client";
import { mayList, rowsOf } from "./queries";
import { Stream } from "./stream";

/** More changed objects than this are cheaper as a whole table. */
const KEYS_LIMIT = 400;
const AGAIN_MS = 2000;

const busy = new Set<string>();
const stream = new Stream();

/** Ask who is signed in, and follow the state from then on. */
export async function start(): Promise<void> {
  store.subscribe(work);
  try {
    const session = await send<Session | null>({ method: "GET", path: "/2/session" });
    if (session) signedIn(session);
    else store.dispatch({ type: "signed-out" });
  } catch {
    store.dispatch({ type: "signed-out" });
  }
}

export type Credentials = { username: string; password: string } | { token: string } | { link: string } | ProviderAnswer;
/** The query with which an OpenID provider has sent the browser back, and the secret of the attempt. */
export interface ProviderAnswer {
  readonly code: string;
  readonly state: string;
  readonly secret: string;
}

/** Sign in; Refused says why not. */
export async function signIn(credentials: Credentials): Promise<void> {
  signedIn(await send<Session>({ method: "POST", path: "/2/session", body: credentials }));
}

/** The OpenID provider's label for its button; null without one. */
export async function provider(): Promise<string | null> {
  return (await send<{ label: string } | null>({ method: "GET", path: "/2/session/openid" }))?.label ?? null;
}

/** Begin a login by the OpenID provider: the address to go to, and the secret to come back with. */
export function beginAtProvider(): Promise<{ url: string; secret: string }> {
  return send({ method: "POST", path: "/2/session/openid" });
}

export async function signOut(everywhere: boolean): Promise<void> {
  stream.stop();
  await send({ method: "DELETE", path: "/2/session", ...(everywhere ? { query: { everywhere: 1 } } : {}) });
  store.dispatch({ type: "signed-out" });
}

function signedIn(session: Session): void {
  store.dispatch({ type: "signed-in", session });
  stream.start();
}

function work(): void {
  const { session, link, isClusterDue } = store.state;
  if (!session) {
    stream.stop();
    return;
  }
  // Rows are requested once events arrive, so that no change between the two is missed.
  if (link === "starting") return;
  if (isClusterDue && link !== "lost") void loadCluster();
  for (const kind of KINDS) workOn(session, kind);
}

function workOn(session: Session, kind: Kind): void {
  const table = store.state.tables[kind];
  if (busy.has(kind)) return;
  // What the user may not list is empty for them.
  if (table.isDue && !mayList(session, kind)) {
    store.dispatch({ type: "requested", kind, keys: null });
    store.dispatch({ type: "rows", kind, keys: null, rows: [] });
  } else if (table.isDue) void load(session, kind, null);
  else if (table.stale.size > KEYS_LIMIT) void load(session, kind, null);
  else if (table.stale.size > 0 && table.isLoaded) void load(session, kind, [...table.stale]);
}

async function load(session: Session, kind: Kind, keys: Key[] | null): Promise<void> {
  busy.add(kind);
  const { fields } = store.state.tables[kind];
  store.dispatch({ type: "requested", kind, keys });
  try {
    const rows = await rowsOf(session, kind, fields, keys);
    busy.delete(kind);
    store.dispatch({ type: "rows", kind, keys, rows });
  } catch (error) {
    store.dispatch({ type: "not-loaded", kind, keys, problem: reason(error) });
    setTimeout(() => {
      busy.delete(kind);
      work();
    }, AGAIN_MS);
  }
}

async function loadCluster(): Promise<void> {
  if (busy.has("cluster")) return;
  busy.add("cluster");
  try {
    store.dispatch({ type: "cluster", facts: await send<AnyRow>({ method: "GET", path: "/2/info" }, true) });
    busy.delete("cluster");
  } catch {
    setTimeout(() => {
      busy.delete("cluster");
      work();
    }, AGAIN_MS);
  }
}
