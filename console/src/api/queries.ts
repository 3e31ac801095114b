/** Requests for rows of tables and for single objects. */
import type { AnyRow, Key, Kind, Session } from "../core/state";
import { store } from "../core/store";
import { send } from "./client";

interface Answer {
  readonly data: readonly (readonly (readonly [number, unknown])[])[];
  readonly fields: readonly { readonly name: string }[];
}

export interface FieldInfo {
  readonly name: string;
  readonly title: string;
  readonly kind: "text" | "bool" | "number" | "float" | "unit" | "timestamp" | "other" | "unknown";
  readonly doc: string;
}

const NORMAL = 0;
const LISTS: Readonly<Record<Kind, string>> = {
  instance: "instances", node: "nodes", group: "groups", network: "networks", job: "jobs",
};

/** Return whether a user may list objects of the kind. */
export function mayList(session: Session, kind: Kind): boolean {
  return session.operations.includes(`get_${LISTS[kind]}`);
}

/** Return the rows of the named objects, or of all. An object that is gone has no row. */
export async function rowsOf(
  session: Session, kind: Kind, fields: readonly string[], keys: readonly Key[] | null,
): Promise<AnyRow[]> {
  if (session.limited || !session.rights.includes("read")) return listed(kind, keys);
  const key = kind === "job" ? "id" : "name";
  const values = keys?.map((one) => (kind === "job" ? Number(one) : one));
  // The second condition keeps names of removed objects from being an error.
  const qfilter = values ? ["&", ["|", ...values.map((one) => ["=", key, one])], ["?", key]] : null;
  return query(kind, fields, qfilter, true);
}

/** Return rows of any kind of object in queries, with the values that are known. */
export async function query(
  resource: string, fields: readonly string[], qfilter: unknown = null, isQuiet = false,
): Promise<AnyRow[]> {
  const answer = await send<Answer>({ method: "PUT", path: `/2/query/${resource}`, body: { fields, qfilter } }, isQuiet);
  return answer.data.map((cells) => {
    const row: Record<string, unknown> = {};
    for (let at = 0; at < cells.length; at += 1) {
      const cell = cells[at];
      if (cell && cell[0] === NORMAL) row[fields[at] as string] = cell[1];
    }
    return row;
  });
}

/** The list that every user may read, in the form of rows: `be/vcpus` and other parameters have names of their own. */
async function listed(kind: Kind, keys: readonly Key[] | null): Promise<AnyRow[]> {
  const all = await send<Record<string, unknown>[]>(
    { method: "GET", path: `/2/${LISTS[kind]}`, query: { bulk: 1 } }, true,
  );
  const rows = all.map((one) => {
    const parameters = Object.entries((one["beparams"] as Record<string, unknown> | null) ?? {});
    return { ...one, ...Object.fromEntries(parameters.map(([name, value]) => [`be/${name}`, value])) } as AnyRow;
  });
  if (keys === null) return rows;
  const wanted = new Set(keys);
  return rows.filter((row) => wanted.has(String(kind === "job" ? row["id"] : row["name"])));
}

const known = new Map<string, Promise<FieldInfo[]>>();

/** Return the definitions of a kind's fields, none for users who may not read them; the server is asked once. */
export function fieldsOfKind(kind: string): Promise<FieldInfo[]> {
  if (!store.state.session?.operations.includes("get_query_fields")) return Promise.resolve([]);
  let found = known.get(kind);
  if (!found) {
    found = send<{ fields: FieldInfo[] }>({ method: "GET", path: `/2/query/${kind}/fields` }).then((one) => one.fields);
    found.catch(() => known.delete(kind));
    known.set(kind, found);
  }
  return found;
}
