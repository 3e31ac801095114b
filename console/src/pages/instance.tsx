/** One instance: its state, its actions, its configuration, and its jobs. */
import { useMemo, useState } from "preact/hooks";
import { INSTANCE_ACTS } from "../actions/actions";
import type { Act } from "../actions/actions";
import { useAnswer } from "../api/objects";
import { Charts } from "../charts/charts";
import { may } from "../core/access";
import { ago, clock, size } from "../core/format";
import { objectsOf, summaryOf } from "../core/reducer";
import type { AnyRow, Kind } from "../core/state";
import { useStore } from "../core/store";
import { href } from "../core/route";
import { t } from "../texts/en";
import { Icon, InstanceStatus, JobStatus, ObjectLink, PageTitle, Problem, useNow } from "../ui/bits";
import { ConfirmAct } from "../ui/dialog";
import { useEdit } from "../ui/editbutton";
import { FormDialog } from "../ui/form";
import type { Form } from "../ui/form";
import { Loading } from "../ui/listpage";
import { useTable } from "../ui/rows";
import { History } from "./audit";
import { InstanceBackups } from "./backups";
import { Snapshots } from "./snapshots";
import { textOf } from "../ui/columns";

const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const MAIN_ACTS = 3;

export function Instance({ name }: { name: string }) {
  const table = useTable("instance");
  const row = table.rows.get(name);
  const session = useStore((state) => state.session);
  const answer = useAnswer<AnyRow>({ method: "GET", path: `/2/instances/${name}` }, row);
  const one = answer.value;
  const isRunning = (row?.["status"] ?? one?.["status"]) === "running";
  const edit = useEdit("instance", name, row, isRunning);
  if (table.isLoaded && !row && answer.isGone) return <div class="page"><Problem text={t.instance.gone} /></div>;
  if (!one) return <div class="page"><PageTitle text={name} />{answer.problem ? <Problem text={answer.problem} onAgain={answer.again} /> : <Loading />}</div>;
  return (
    <div class="page">
      <PageTitle text={name}>
        <InstanceStatus status={row?.["status"] ?? one["status"]} />
        {may(session, "post_instances_name_console_ticket") && isRunning && (
          <a class="button" href={href(["console", name])}><Icon name="terminal" />{t.instance.console}</a>
        )}
        {edit.button}
        <ActButtons acts={INSTANCE_ACTS} row={row ?? one} name={name} forms={instanceForms(one)} />
      </PageTitle>
      <dl class="facts">
        <div><dt>Primary node</dt><dd><ObjectLink kind="node" name={one["pnode"]} whole /></dd></div>
        {list(one["snodes"]).map((node) => <div key={String(node)}><dt>Secondary node</dt><dd><ObjectLink kind="node" name={node} whole /></dd></div>)}
        <div><dt>Operating system</dt><dd>{String(one["os"] || "–")}</dd></div>
        <div><dt>Processors</dt><dd>{textOf((one["beparams"] as AnyRow | null)?.["vcpus"], "number")}</dd></div>
        <div><dt>Memory</dt><dd>{size((one["beparams"] as AnyRow | null)?.["maxmem"] as number | undefined)}</dd></div>
        <div><dt>Disks</dt><dd>{String(one["disk_template"])}{one["disk_usage"] ? `, ${size(Number(one["disk_usage"]))}` : ""}</dd></div>
        <div><dt>Created</dt><dd>{clock(one["ctime"])}</dd></div>
        {list(one["tags"]).length > 0 && <div><dt>{t.instance.tags}</dt><dd>{list(one["tags"]).map((tag) => <span class="tag" key={String(tag)}>{String(tag)}</span>)}</dd></div>}
      </dl>
      {edit.form}
      <Charts kind="instance" name={name} />
      <div class="halves">
        <Devices one={one} />
        <div><ObjectJobs kind="instance" name={name} /><History name={name} version={row} /></div>
      </div>
      <Snapshots name={name} version={row} />
      <InstanceBackups name={name} />
      <Parameters title={t.instance.parameters} all={{ ...(one["beparams"] as AnyRow | null), ...(one["hvparams"] as AnyRow | null) }}
        own={{ ...(one["custom_beparams"] as AnyRow | null), ...(one["custom_hvparams"] as AnyRow | null) }} />
    </div>
  );
}

function instanceForms(one: AnyRow): Form[] {
  const fixed = { instance: String(one["name"]) };
  const disks = list(one["disk.sizes"]).length;
  return [
    { operation: "put_instances_name_modify", label: t.more.modify, what: t.more.modifyWhat, fixed, first: ["custom_beparams", "custom_hvparams", "os_name", "disks", "nics"] },
    ...(one["admin_state"] === "up" ? [{ operation: "put_instances_name_migrate" as const, label: t.more.moveTo, what: t.more.migrateWhat, fixed, first: ["target_node", "iallocator", "mode"] }] : []),
    { operation: "put_instances_name_rename", label: t.more.rename, what: "", fixed, first: ["new_name"] },
    ...(disks ? [{ operation: "post_instances_name_disk_grow" as const, label: t.more.grow, what: t.more.growWhat, fixed: { ...fixed, disk: 0 }, first: ["amount", "absolute"] }] : []),
    { operation: "put_instances_name_export", label: t.more.backup, what: t.more.exportWhat, fixed, first: ["destination", "shutdown"] },
    { operation: "post_instances_name_reinstall", label: t.more.reinstall, what: t.more.reinstallWhat, fixed, first: ["os", "osparams"], isDangerous: true },
  ];
}

/** Buttons for what fits; further actions are in a menu. */
export function ActButtons({ acts, row, name, forms = [] }: { acts: readonly Act[]; row: AnyRow; name: string; forms?: readonly Form[] }) {
  const session = useStore((state) => state.session);
  const [open, setOpen] = useState<Act | null>(null);
  const [form, setForm] = useState<Form | null>(null);
  const shownForms = forms.filter((one) => may(session, one.operation));
  const found = acts.filter((act) => !act.isForMany && may(session, act.operation) && (act.fits?.(row) ?? true));
  const main = found.filter((act) => act.tone !== "danger").slice(0, MAIN_ACTS);
  const others = found.filter((act) => !main.includes(act));
  return (
    <>
      {main.map((act) => <button key={act.id} onClick={() => setOpen(act)}>{act.label}</button>)}
      {others.length + shownForms.length > 0 && (
        <details class="menu">
          <summary>{t.acts.more}</summary>
          <div class="menu-items">
            {shownForms.map((one) => <button key={one.operation} class={one.isDangerous ? "danger-text" : ""} onClick={() => setForm(one)}>{one.label} …</button>)}
            {others.map((act) => <button key={act.id} class={act.tone === "danger" ? "danger-text" : ""} onClick={() => setOpen(act)}>{act.label}</button>)}
          </div>
        </details>
      )}
      {open && <ConfirmAct act={open} name={name} onClose={() => setOpen(null)} />}
      {form && <FormDialog form={form} name={name} onClose={() => setForm(null)} />}
    </>
  );
}

function Devices({ one }: { one: AnyRow }) {
  const sizes = list(one["disk.sizes"]);
  const macs = list(one["nic.macs"]);
  return (
    <section class="card">
      <header><h3>{t.instance.disks}</h3></header>
      {sizes.length === 0 ? <p class="faint">{t.instance.noDisks}</p> : (
        <ul class="lines">{sizes.map((mib, index) => (
          <li key={index}><span>{index}</span><span class="what">{String(list(one["disk.names"])[index] ?? one["disk_template"])}</span><small>{size(Number(mib))}</small></li>
        ))}</ul>
      )}
      <header><h3>{t.instance.nics}</h3></header>
      {macs.length === 0 ? <p class="faint">{t.instance.noNics}</p> : (
        <ul class="lines">{macs.map((mac, index) => (
          <li key={index}>
            <span>{index}</span>
            <span class="what">{String(list(one["nic.ips"])[index] ?? "") || String(mac)}</span>
            <small>{String(list(one["nic.modes"])[index] ?? "")} {String(list(one["nic.networks.names"])[index] ?? list(one["nic.links"])[index] ?? "")}</small>
          </li>
        ))}</ul>
      )}
    </section>
  );
}

export function ObjectJobs({ kind, name }: { kind: Kind; name: string }) {
  const jobs = useTable("job").rows;
  const now = useNow(10);
  const found = useMemo(
    () => [...jobs.values()].filter((job) => objectsOf(job).some(([one, other]) => one === kind && other === name))
      .sort((one, other) => Number(other["id"]) - Number(one["id"])).slice(0, 12),
    [jobs, kind, name],
  );
  return (
    <section class="card">
      <header><h3>{t.instance.jobs}</h3></header>
      {found.length === 0 ? <p class="faint">{t.instance.noJobs}</p> : (
        <ul class="lines">
          {found.map((job) => (
            <li key={String(job["id"])}>
              <JobStatus status={job["status"]} />
              <span class="what"><a href={href(["jobs", String(job["id"])])}>{summaryOf(job).replace(`${name}: `, "")}</a></span>
              <small>{String(job["source"] ?? "").replace(/^rest:/, "")} · {ago(job["end_ts"] ?? job["received_ts"], now)}</small>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

export function Parameters({ title, all, own }: { title: string; all: AnyRow; own: AnyRow }) {
  const names = Object.keys(all).sort((one, other) => Number(other in own) - Number(one in own) || one.localeCompare(other));
  return (
    <details class="card parameters" open={Object.keys(own).length > 0}>
      <summary><h3>{title}</h3></summary>
      <dl class="columns">
        {names.map((name) => (
          <div key={name} class={name in own ? "own" : ""}>
            <dt>{name}</dt>
            <dd title={name in own ? t.instance.changed : ""}>{textOf(all[name], undefined)}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
