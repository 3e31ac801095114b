/** Who asked for what, and what jobs changed: the audit log as a page, and the history of one object. */
import { useState } from "preact/hooks";
import { useAnswer, useChanges } from "../api/objects";
import { may } from "../core/access";
import { ago, clock } from "../core/format";
import { href, setParameter, usePlace } from "../core/route";
import { useStore } from "../core/store";
import type { AnyRow } from "../core/state";
import { t } from "../texts/en";
import { Badge, Empty, ObjectLink, PageTitle, Problem, useNow } from "../ui/bits";
import type { Tone } from "../ui/bits";
import { Loading } from "../ui/listpage";

const SHOWN = 200;
const OF_OBJECT = 12;

export interface AuditRecord {
  readonly time: number;
  readonly user: string;
  readonly address?: string;
  readonly method: string;
  readonly path: string;
  readonly status: number | string;
  readonly jobs: readonly number[];
  readonly why?: string;
  readonly reason?: string;
  readonly objects?: readonly { readonly kind: string; readonly name: string; readonly change: string; readonly differences?: Readonly<Record<string, readonly [unknown, unknown]>> }[];
}

const FILTERS = ["about", "user", "job"] as const;

export function Audit() {
  const { query } = usePlace();
  const given = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]).filter(([, value]) => value));
  const changes = useChanges();
  const answer = useAnswer<AuditRecord[]>({ method: "GET", path: "/2/audit", query: { limit: SHOWN, ...given } }, changes);
  const records = answer.value;
  return (
    <div class="page">
      <PageTitle text={t.nav.audit}><span class="count">{records ? records.length : ""}</span></PageTitle>
      <div class="toolbar">
        {FILTERS.map((name) => (
          <label class="field" key={name}><span>{t.audit.filters[name]}</span>
            <input type="text" inputMode={name === "job" ? "numeric" : "text"} autocomplete="off" spellcheck={false} value={query.get(name) ?? ""}
              onChange={(event) => setParameter(name, event.currentTarget.value.trim())} /></label>
        ))}
      </div>
      {answer.problem && <Problem text={answer.problem} onAgain={answer.again} />}
      {!records && !answer.problem && <Loading />}
      {records?.length === 0 && <Empty icon="audit" title={t.audit.none}>{t.audit.noneWhat}</Empty>}
      {records && records.length > 0 && (
        <div class="card scroll" tabIndex={0} role="region" aria-label={t.nav.audit}>
          <table>
            <thead><tr>{t.audit.heads.map((head) => <th key={head} scope="col">{head}</th>)}</tr></thead>
            <tbody>{records.map((one, index) => (
              <tr key={index}>
                <td class="when">{clock(one.time)}</td>
                <td><User name={one.user} /><small>{one.address}</small></td>
                <td class="what"><What record={one} /></td>
                <td><Outcome status={one.status} /></td>
                <td>{one.jobs.map((id) => <span key={id}><ObjectLink kind="job" name={id} whole /> </span>)}</td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </div>
  );
}

/** `job 7` is a link to the job. */
function User({ name }: { name: string }) {
  const job = /^job (\d+)$/.exec(name)?.[1];
  return job ? <a href={href(["jobs", job])}>{name}</a> : <span>{name} </span>;
}

function Outcome({ status }: { status: AuditRecord["status"] }) {
  const tone: Tone = status === "done" || status === 200 ? "good" : "bad";
  return <Badge tone={tone}>{status === 200 ? t.job["success"] : String(status)}</Badge>;
}

function What({ record }: { record: AuditRecord }) {
  const isChange = record.method === "changed";
  return (
    <>
      {isChange ? (record.objects ?? []).map((one) => <div key={one.kind + one.name}>{one.change} {one.kind} <ObjectLink kind={one.kind} name={one.name} whole /></div>)
        : <code>{record.method} {record.path}</code>}
      {(record.why ?? record.reason) && <small>{record.why ?? record.reason}</small>}
      <Differences record={record} />
    </>
  );
}

/** What a change did to the values of its objects: old and new. */
export function Differences({ record, about }: { record: AuditRecord; about?: string }) {
  const lines = (record.objects ?? []).filter((one) => one.change === "changed" && (!about || one.name === about))
    .flatMap((one) => Object.entries(one.differences ?? {}));
  if (lines.length === 0) return null;
  return (
    <ul class="differences">
      {lines.slice(0, 30).map(([name, [before, after]], index) => (
        <li key={index}><code>{name}</code> <del>{said(before)}</del> → <ins>{said(after)}</ins></li>
      ))}
    </ul>
  );
}

function said(value: unknown): string {
  if (value === null || value === undefined) return t.audit.nothing;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** The changes of one object, the newest first, for users who may read the audit log. */
export function History({ name, version }: { name: string; version: unknown }) {
  const session = useStore((state) => state.session);
  const now = useNow(10);
  const [isAll, setAll] = useState(false);
  const mayRead = may(session, "get_audit");
  const answer = useAnswer<AuditRecord[]>(mayRead ? { method: "GET", path: "/2/audit", query: { about: name, limit: isAll ? SHOWN : 3 * OF_OBJECT } } : null, version);
  if (!mayRead) return null;
  const records = (answer.value ?? []).filter((one) => one.method === "changed" || one.status !== 200 || one.jobs.length === 0).slice(0, isAll ? SHOWN : OF_OBJECT);
  return (
    <section class="card">
      <header><h3>{t.instance.history}</h3>{!isAll && records.length >= OF_OBJECT && <button class="small" onClick={() => setAll(true)}>{t.acts.more}</button>}</header>
      {answer.problem && <Problem text={answer.problem} onAgain={answer.again} />}
      {answer.value && records.length === 0 && <p class="faint">{t.audit.noHistory}</p>}
      <ul class="lines">
        {records.map((one, index) => (
          <li key={index}>
            <Outcome status={one.status} />
            <span class="what">
              <span>{one.method === "changed" ? changeOf(one, name) : `${one.method} ${one.path}`}</span>
              {one.why && <small>{one.why}</small>}
              <Differences record={one} about={name} />
            </span>
            <small><User name={one.user} /> · {ago(one.time, now)}</small>
          </li>
        ))}
      </ul>
    </section>
  );
}

function changeOf(record: AuditRecord, name: string): string {
  return record.objects?.find((one) => one.name === name)?.change ?? t.audit.together;
}

/** The users of the REST interface, with rights and sessions. */
export function Users() {
  const now = useNow(10);
  const answer = useAnswer<AnyRow[]>({ method: "GET", path: "/2/users" }, useChanges());
  const list = (value: unknown) => ((value as string[] | undefined) ?? []).join(", ");
  return (
    <div class="page">
      <PageTitle text={t.nav.users}><span class="count">{answer.value?.length ?? ""}</span></PageTitle>
      <p class="faint">{t.users.hint}</p>
      {answer.problem && <Problem text={answer.problem} onAgain={answer.again} />}
      {!answer.value && !answer.problem && <Loading />}
      {answer.value && (
        <div class="card scroll" tabIndex={0} role="region" aria-label={t.nav.users}>
          <table>
            <thead><tr>{t.users.heads.map((head) => <th key={head} scope="col">{head}</th>)}</tr></thead>
            <tbody>{answer.value.map((one) => (
              <tr key={String(one["name"])}>
                <td><strong>{String(one["name"])}</strong></td>
                <td>{t.users.sources[String(one["source"])]}{one["is_token"] ? ` (${t.users.token})` : ""}</td>
                <td>{t.users.rights[String((one["rights"] as string[]).at(-1))]}
                  <small>{[...((one["more"] as string[]).map((right) => `+${right}`)), ...((one["less"] as string[]).map((right) => `-${right}`))].join(" ")}</small></td>
                <td>{[list(one["names"]), list(one["tags"]), list(one["others"])].filter(Boolean).join("; ") || t.users.all}</td>
                <td>{String(one["until"] ?? "–")}</td>
                <td>{String(one["sessions"])}{one["last_used"] ? <small> {ago(one["last_used"], now)}</small> : null}</td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </div>
  );
}
