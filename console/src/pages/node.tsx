/** One node, and one group: what they have, and what is on them. */
import { useMemo } from "preact/hooks";
import { NODE_ACTS } from "../actions/actions";
import { useAnswer } from "../api/objects";
import { Charts } from "../charts/charts";
import { size } from "../core/format";
import { href } from "../core/route";
import type { AnyRow } from "../core/state";
import { t } from "../texts/en";
import { InstanceStatus, Meter, NodeRole, ObjectLink, PageTitle, Problem } from "../ui/bits";
import { Loading } from "../ui/listpage";
import { useTable } from "../ui/rows";
import { useEdit } from "../ui/editbutton";
import { Values } from "../ui/values";
import { History } from "./audit";
import { ActButtons, ObjectJobs, Parameters } from "./instance";
import type { Form } from "../ui/form";

const SHOWN = 100;

export function Node({ name }: { name: string }) {
  const table = useTable("node");
  const row = table.rows.get(name);
  const instances = useTable("instance").rows;
  const [primary, secondary] = useMemo(() => {
    const all = [...instances.values()];
    return [
      all.filter((one) => one["pnode"] === name),
      all.filter((one) => ((one["snodes"] as string[] | undefined) ?? []).includes(name)),
    ];
  }, [instances, name]);
  const answer = useAnswer<AnyRow>({ method: "GET", path: `/2/nodes/${name}` }, row?.["role"]);
  const edit = useEdit("node", name, row);
  if (table.isLoaded && !row) return <div class="page"><Problem text={t.node.gone} /></div>;
  if (!row) return <div class="page"><PageTitle text={name} /><Loading /></div>;
  const fixed = { node: name };
  const forms: Form[] = [
    { operation: "post_nodes_name_evacuate", label: t.more.evacuate, what: t.more.evacuateWhat, fixed: { ...fixed, iallocator: "hail" }, first: ["mode"] },
    { operation: "post_nodes_name_modify", label: t.more.modify, what: "", fixed, first: ["master_capable", "vm_capable", "ndparams", "secondary_ip"] },
  ];
  const number = (field: string) => Number(row[field] ?? 0);
  return (
    <div class="page">
      <PageTitle text={name}><NodeRole role={row["role"]} />{edit.button}<ActButtons acts={NODE_ACTS} row={row} name={name} forms={forms} /></PageTitle>
      {row["recovery_why"] ? <p class="banner warn">{String(row["recovery_why"])}</p> : null}
      <section class="cards">
        <section class="card"><h3>{t.overview.memory}</h3>
          <p class="figure"><strong>{size(number("mfree"))}</strong> <span>{t.overview.free} of {size(number("mtotal"))}</span></p>
          <Meter label={t.overview.memory} whole={number("mtotal")} parts={[{ name: t.overview.used, value: number("mtotal") - number("mfree"), tone: "used" }]} />
        </section>
        <section class="card"><h3>{t.overview.disk}</h3>
          <p class="figure"><strong>{size(number("dfree"))}</strong> <span>{t.overview.free} of {size(number("dtotal"))}</span></p>
          <Meter label={t.overview.disk} whole={number("dtotal")} parts={[{ name: t.overview.used, value: number("dtotal") - number("dfree"), tone: "used" }]} />
        </section>
        <section class="card"><h3>{t.overview.cpus}</h3>
          <p class="figure"><strong>{primary.filter((one) => one["admin_state"] === "up").reduce((sum, one) => sum + Number(one["be/vcpus"] ?? 0), 0)}</strong> <span>{t.overview.allocated} of {number("ctotal")}</span></p>
        </section>
      </section>
      <dl class="facts">
        <div><dt>Group</dt><dd><ObjectLink kind="group" name={row["group"]} /></dd></div>
        <div><dt>Address</dt><dd>{String(answer.value?.["pip"] ?? "–")}</dd></div>
        <div><dt>Secondary address</dt><dd>{String(answer.value?.["sip"] ?? "–")}</dd></div>
      </dl>
      {edit.form}
      <Charts kind="node" name={name} />
      <div class="halves">
        <section class="card"><header><h3>{t.node.primary}</h3><a href={href(["instances"], { q: `pnode == ${name}` })}>{primary.length}</a></header>
          <InstanceLines rows={primary} />
        </section>
        <div>
          {secondary.length > 0 && <section class="card"><header><h3>{t.node.secondary}</h3></header><InstanceLines rows={secondary} /></section>}
          <ObjectJobs kind="node" name={name} />
          <History name={name} version={row} />
        </div>
      </div>
      {answer.value && <Parameters title={t.instance.parameters} all={(answer.value["ndparams"] as AnyRow | null) ?? {}} own={{}} />}
    </div>
  );
}

function InstanceLines({ rows }: { rows: readonly AnyRow[] }) {
  if (rows.length === 0) return <p class="faint">{t.node.none}</p>;
  return (
    <ul class="lines">
      {rows.slice(0, SHOWN).map((row) => (
        <li key={String(row["name"])}>
          <InstanceStatus status={row["status"]} />
          <span class="what"><ObjectLink kind="instance" name={row["name"]} whole /></span>
          <small>{String(row["be/vcpus"] ?? "–")} CPU · {size(row["be/maxmem"] as number | undefined)}</small>
        </li>
      ))}
    </ul>
  );
}

export function Group({ name }: { name: string }) {
  const table = useTable("group");
  const row = table.rows.get(name);
  const nodes = useTable("node").rows;
  const answer = useAnswer<AnyRow>({ method: "GET", path: `/2/groups/${name}` }, row);
  const own = useMemo(() => [...nodes.values()].filter((node) => node["group"] === name), [nodes, name]);
  const edit = useEdit("group", name, row);
  if (table.isLoaded && !row) return <div class="page"><Problem text={t.group.gone} /></div>;
  if (!row) return <div class="page"><PageTitle text={name} /><Loading /></div>;
  return (
    <div class="page">
      <PageTitle text={name}>{edit.button}</PageTitle>
      <dl class="facts"><div><dt>Allocation</dt><dd>{String(row["alloc_policy"])}</dd></div><div><dt>Instances</dt><dd>{String(row["pinst_cnt"])}</dd></div></dl>
      {edit.form}
      <section class="card"><header><h3>{t.nodes.title}</h3></header>
        <ul class="lines">
          {own.map((node) => (
            <li key={String(node["name"])}><NodeRole role={node["role"]} /><span class="what"><ObjectLink kind="node" name={node["name"]} whole /></span>
              <small>{size(node["mfree"] as number | undefined)} {t.overview.free}</small></li>
          ))}
        </ul>
      </section>
      <div class="halves"><ObjectJobs kind="group" name={name} /><History name={name} version={row} /></div>
      {answer.value && <details class="card"><summary><h3>{t.group.policy}</h3></summary><Values value={answer.value["ipolicy"]} /></details>}
    </div>
  );
}

export function Network({ name }: { name: string }) {
  const row = useTable("network").rows.get(name);
  const answer = useAnswer<AnyRow>({ method: "GET", path: `/2/networks/${name}` }, row);
  const edit = useEdit("network", name, row);
  if (answer.problem) return <div class="page"><Problem text={answer.problem} onAgain={answer.again} /></div>;
  const one = answer.value;
  if (!one) return <div class="page"><PageTitle text={name} /><Loading /></div>;
  return (
    <div class="page">
      <PageTitle text={name}>
        {edit.button}
        <ActButtons acts={[]} row={one} name={name} forms={[
          { operation: "put_networks_name_connect", label: t.more.connect, what: "", fixed: { network: name }, first: ["group_name", "network_mode", "network_link"] },
          { operation: "put_networks_name_disconnect", label: t.more.disconnect, what: "", fixed: { network: name }, first: ["group_name"] },
          { operation: "delete_networks_name", label: t.more.removeNetwork, what: "", fixed: { network: name }, first: [], isDangerous: true },
        ]} />
      </PageTitle>
      <dl class="facts">
        <div><dt>Network</dt><dd>{String(one["network"] ?? "–")}</dd></div>
        <div><dt>Gateway</dt><dd>{String(one["gateway"] ?? "–")}</dd></div>
        <div><dt>Free addresses</dt><dd>{String(one["free_count"] ?? "–")}</dd></div>
        <div><dt>Reserved</dt><dd>{String(one["reserved_count"] ?? "–")}</dd></div>
      </dl>
      {edit.form}
      <section class="card"><header><h3>{t.instances.title}</h3></header>
        {((one["inst_list"] as string[] | null) ?? []).length === 0 ? <p class="faint">{t.node.none}</p> : (
          <ul class="lines">{(one["inst_list"] as string[]).map((name) => <li key={name}><span class="what"><ObjectLink kind="instance" name={name} whole /></span></li>)}</ul>
        )}
      </section>
      <section class="card"><header><h3>{t.groups.title}</h3></header>
        {((one["group_list"] as string[][] | null) ?? []).length === 0 ? <p class="faint">{t.network.noGroups}</p> : (
          <ul class="lines">{(one["group_list"] as string[][]).map(([group, mode, link, vlan]) => (
            <li key={group}><ObjectLink kind="group" name={group} whole /><span class="what">{mode} {link} {vlan}</span></li>
          ))}</ul>
        )}
      </section>
      <div class="halves"><ObjectJobs kind="network" name={name} /><History name={name} version={row} /></div>
    </div>
  );
}
