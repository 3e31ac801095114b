/** Storage: what disks use by template, what nodes have, and the providers of external storage. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { query } from "../api/queries";
import { may } from "../core/access";
import { compare, plural, size } from "../core/format";
import { href } from "../core/route";
import { useStore } from "../core/store";
import type { AnyRow } from "../core/state";
import { t } from "../texts/en";
import { Badge, Meter, NodeRole, ObjectLink, PageTitle } from "../ui/bits";
import { Loading } from "../ui/listpage";
import { useTable } from "../ui/rows";

export interface Use {
  readonly template: string;
  readonly instances: number;
  readonly mib: number;
}

/** Instances and the size of their disks, by template. */
export function usesOf(instances: Iterable<AnyRow>, enabled: readonly string[]): Use[] {
  const found = new Map<string, { instances: number; mib: number }>(enabled.map((one) => [one, { instances: 0, mib: 0 }]));
  for (const row of instances) {
    const template = String(row["disk_template"] ?? "–");
    const one = found.get(template) ?? { instances: 0, mib: 0 };
    found.set(template, { instances: one.instances + 1, mib: one.mib + Number(row["disk_usage"] ?? 0) });
  }
  return [...found].map(([template, one]) => ({ template, ...one })).sort((one, other) => other.mib - one.mib || compare(one.template, other.template));
}

export function Storage() {
  const nodes = useTable("node");
  const instances = useTable("instance");
  const session = useStore((state) => state.session);
  const cluster = useStore((state) => state.cluster);
  const [providers, setProviders] = useState<readonly AnyRow[]>([]);
  const mayQuery = may(session, "put_query");
  useEffect(() => {
    if (mayQuery) query("extstorage", ["name", "node_status", "parameters"]).then(setProviders, () => undefined);
  }, [mayQuery]);
  const enabled = (cluster?.["enabled_disk_templates"] as string[] | undefined) ?? [];
  const uses = useMemo(() => usesOf(instances.rows.values(), enabled), [instances.rows, enabled]);
  const rows = useMemo(() => [...nodes.rows.values()].sort((one, other) => free(one) - free(other)), [nodes.rows]);
  if (!nodes.isLoaded || !instances.isLoaded) return <div class="page"><PageTitle text={t.nav.storage} /><Loading /></div>;
  return (
    <div class="page">
      <PageTitle text={t.nav.storage} />
      <section class="cards">
        {uses.map((one) => (
          <section class="card" key={one.template}>
            <h3>{one.template}</h3>
            <p class="figure"><strong>{size(one.mib)}</strong></p>
            <small><a href={href(["instances"], { q: `disk_template == ${one.template}` })}>{plural(one.instances, "instance")}</a>
              {!enabled.includes(one.template) && ` · ${t.storage.disabled}`}</small>
          </section>
        ))}
      </section>
      <div class="card scroll" tabIndex={0} role="region" aria-label={t.storage.nodes}>
        <table>
          <thead><tr>{t.storage.heads.map((head) => <th key={head} scope="col">{head}</th>)}</tr></thead>
          <tbody>{rows.map((row) => {
            const [whole, left] = [Number(row["dtotal"] ?? 0), Number(row["dfree"] ?? 0)];
            const part = whole ? (whole - left) / whole : 0;
            return (
              <tr key={String(row["name"])}>
                <td><ObjectLink kind="node" name={row["name"]} whole /></td>
                <td><NodeRole role={row["role"]} /></td>
                <td class="wide">{whole > 0 ? <Meter label={t.overview.disk} whole={whole} parts={[{ name: t.overview.used, value: whole - left, tone: part > 0.9 ? "bad" : part > 0.75 ? "warn" : "used" }]} /> : <span class="faint">{t.storage.unknown}</span>}</td>
                <td class="number">{whole > 0 ? size(left) : "–"}</td>
                <td class="number">{whole > 0 ? size(whole) : "–"}</td>
              </tr>
            );
          })}</tbody>
        </table>
      </div>
      {providers.length > 0 && (
        <section class="card">
          <header><h3>{t.storage.providers}</h3></header>
          <ul class="lines">{providers.map((one) => (
            <li key={String(one["name"])}><Badge tone="info">{String(one["name"])}</Badge>
              <span class="what">{((one["parameters"] as string[][] | undefined) ?? []).map((parameter) => parameter[0]).join(", ") || "–"}</span></li>
          ))}</ul>
        </section>
      )}
    </div>
  );
}

/** Parts of a node's disk that are free; nodes with the least come first. */
function free(row: AnyRow): number {
  return Number(row["dtotal"]) ? Number(row["dfree"] ?? 0) / Number(row["dtotal"]) : 2;
}
