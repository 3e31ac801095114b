/** Lists of what has no events: read when the page opens, and again when any object or job changes. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { useChanges } from "../api/objects";
import { reason } from "../api/client";
import { query } from "../api/queries";
import type { AnyRow } from "../core/state";
import { compare } from "../core/format";
import { t } from "../texts/en";
import { Badge, Empty, ObjectLink, PageTitle, Problem } from "../ui/bits";
import { textOf } from "../ui/columns";
import { Loading } from "../ui/listpage";

interface Plain {
  readonly resource: string;
  readonly title: string;
  readonly icon: string;
  readonly fields: readonly string[];
  readonly heads: readonly string[];
  readonly cells: (row: AnyRow) => readonly ComponentChildren[];
  readonly isShown?: (row: AnyRow) => boolean;
  readonly emptyTitle: string;
  readonly empty: string;
}

function PlainList(props: Plain) {
  const changes = useChanges();
  const [rows, setRows] = useState<readonly AnyRow[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    query(props.resource, props.fields, null, changes > 0).then(
      (found) => { setRows(found); setProblem(null); },
      (error: unknown) => setProblem(reason(error)),
    );
  }, [changes, props.resource]);
  const [first = "name"] = props.fields;
  const shown = useMemo(() => (rows ?? []).filter(props.isShown ?? (() => true)).sort((one, other) => compare(one[first], other[first])), [rows]);
  return (
    <div class="page">
      <PageTitle text={props.title}><span class="count">{rows ? shown.length : ""}</span></PageTitle>
      {problem && <Problem text={problem} />}
      {!rows && !problem && <Loading />}
      {rows && shown.length === 0 && <Empty icon={props.icon} title={props.emptyTitle}>{props.empty}</Empty>}
      {shown.length > 0 && (
        <div class="card scroll" tabIndex={0} role="region" aria-label={props.title}>
          <table>
            <thead><tr>{props.heads.map((head) => <th key={head} scope="col">{head}</th>)}</tr></thead>
            <tbody>{shown.map((row, index) => <tr key={index}>{props.cells(row).map((cell, at) => <td key={at}>{cell}</td>)}</tr>)}</tbody>
          </table>
        </div>
      )}
    </div>
  );
}

const names = (value: unknown) => ((value as unknown[] | undefined) ?? []).map(String).join(", ") || "–";
const flag = (value: unknown) => (value ? t.plain.yes : t.plain.no);

export const OperatingSystems = () => (
  <PlainList
    resource="os" title={t.nav.os} icon="os" fields={["name", "valid", "variants", "parameters", "hidden", "blacklisted", "trusted"]}
    heads={t.plain.osHeads} emptyTitle={t.plain.noOs} empty={t.plain.noOsWhat}
    cells={(row) => [
      String(row["name"]), row["valid"] ? <Badge tone="good">{t.plain.valid}</Badge> : <Badge tone="bad">{t.plain.invalid}</Badge>,
      names(row["variants"]), ((row["parameters"] as string[][] | undefined) ?? []).map((one) => one[0]).join(", ") || "–", flag(row["hidden"]), flag(row["blacklisted"]),
    ]}
  />
);

export const Locks = () => (
  <PlainList
    resource="lock" title={t.nav.locks} icon="locks" fields={["name", "mode", "owner", "pending"]} heads={t.plain.lockHeads}
    isShown={(row) => Boolean(row["mode"]) || ((row["pending"] as unknown[] | undefined) ?? []).length > 0}
    emptyTitle={t.plain.noLocks} empty={t.plain.noLocksWhat}
    cells={(row) => [
      String(row["name"]), String(row["mode"] ?? "–"), jobsOf(row["owner"]),
      ((row["pending"] as [string, string[]][] | undefined) ?? []).map(([mode, jobs]) => <span key={mode}>{mode}: {jobsOf(jobs)} </span>),
    ]}
  />
);

export const Filters = () => (
  <PlainList
    resource="filter" title={t.nav.filters} icon="filters" fields={["priority", "predicates", "action", "uuid", "reason_trail"]} heads={t.plain.filterHeads}
    emptyTitle={t.plain.noFilters} empty={t.plain.noFiltersWhat}
    cells={(row) => [String(row["priority"]), <code>{JSON.stringify(row["predicates"])}</code>, textOf(row["action"], undefined), <code>{String(row["uuid"])}</code>]}
  />
);

/** Owners of locks, such as `gnt-instance/Jq1/Job17`, with links to jobs. */
function jobsOf(owners: unknown): ComponentChildren {
  return ((owners as string[] | undefined) ?? []).map((owner) => {
    const job = /(\d+)$/.exec(String(owner))?.[1];
    return <span key={owner}>{job ? <ObjectLink kind="job" name={job} whole /> : String(owner)} </span>;
  });
}
