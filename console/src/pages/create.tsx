/** Creation of an instance, with the node that the allocator would choose, and why. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { submit } from "../actions/actions";
import { commandOf, curlOf } from "../actions/commands";
import { reason } from "../api/client";
import type { Request } from "../api/client";
import { useAnswer } from "../api/objects";
import { query } from "../api/queries";
import { useTrial } from "../api/trial";
import type { operations } from "../api/schema";
import { may } from "../core/access";
import { short, size } from "../core/format";
import { go, href, usePlace } from "../core/route";
import type { AnyRow } from "../core/state";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { Icon, ObjectLink, PageTitle, Problem } from "../ui/bits";
import { AsCommand } from "../ui/dialog";
import { useTable } from "../ui/rows";

/** Checked against the declaration of the opcode: a field that is renamed there fails the build. */
type Body = { [K in keyof operations["post_instances"]["requestBody"]["content"]["application/json"]]?: unknown };

interface Given {
  readonly name: string;
  /** Its disks are those of the instance; the OS is then chosen by the master unless `os` is set. */
  readonly image: string;
  readonly os: string;
  readonly osparams: Readonly<Record<string, string>>;
  readonly memory: number;
  readonly vcpus: number;
  readonly template: string;
  readonly disks: readonly number[];
  readonly nics: readonly { readonly network: string; readonly ip: string }[];
  readonly group: string;
  readonly node: string;
  readonly start: boolean;
  readonly tags: string;
}

const DISKLESS = "diskless";
const NAME = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/;

export function bodyOf(given: Given): Body {
  const tags = given.tags.split(",").map((tag) => tag.trim()).filter(Boolean);
  return {
    __version__: 1, mode: "create", name: given.name, disk_template: given.template,
    ...(given.image ? { image: given.image } : { disks: given.template === DISKLESS ? [] : given.disks.map((mib) => ({ size: mib })) }),
    nics: given.nics.map((nic) => ({
      ...(nic.network ? { network: nic.network } : {}), ...(nic.ip ? { ip: nic.ip } : nic.network ? { ip: "pool" } : {}),
    })),
    ...(given.nics.length === 0 ? { no_nics: true } : {}),
    beparams: { maxmem: given.memory, minmem: given.memory, vcpus: given.vcpus },
    ...(given.os ? { os: given.os } : given.image ? {} : { no_install: true, os: "" }),
    ...(Object.keys(given.osparams).length ? { osparams: given.osparams } : {}),
    ...(given.node ? { pnode: given.node } : { iallocator: "hail" }),
    ...(given.group && !given.node ? { group_name: given.group } : {}),
    ...((given.os || given.image) && given.start ? {} : { start: false }),
    ...(tags.length ? { tags } : {}),
  };
}

export function Create() {
  const cluster = useStore((state) => state.cluster);
  if (!cluster) return <div class="page"><PageTitle text={t.create.title} /></div>;
  return <CreateForm cluster={cluster} />;
}

interface Bounds { readonly min: number; readonly max: number }

function boundsOf(cluster: AnyRow, name: string): Bounds | null {
  const all = ((cluster["ipolicy"] as AnyRow | undefined)?.["minmax"] as { min: Record<string, number>; max: Record<string, number> }[] | undefined) ?? [];
  if (all.length === 0) return null;
  return { min: Math.min(...all.map((one) => one.min[name] ?? 0)), max: Math.max(...all.map((one) => one.max[name] ?? 0)) };
}

function CreateForm({ cluster }: { cluster: AnyRow }) {
  const templates = (cluster["enabled_disk_templates"] as string[] | undefined) ?? [DISKLESS];
  const defaults = ((cluster["beparams"] as AnyRow | undefined)?.["default"] ?? {}) as Record<string, number>;
  const [given, setGiven] = useState<Given>({
    name: "", image: usePlace().query.get("image") ?? "", os: "", osparams: {}, memory: defaults["maxmem"] ?? 128, vcpus: defaults["vcpus"] ?? 1, template: templates[0] ?? DISKLESS,
    disks: [10240], nics: [{ network: "", ip: "" }], group: "", node: "", start: true, tags: "",
  });
  const set = (part: Partial<Given>) => setGiven((before) => ({ ...before, ...part }));
  const systems = useAnswer<string[]>({ method: "GET", path: "/2/os" }).value ?? [];
  const mayUseImages = useStore((state) => may(state.session, "get_images"));
  const images = useAnswer<{ id: string }[]>(mayUseImages ? { method: "GET", path: "/2/images" } : null).value ?? [];
  const nodes = useTable("node").rows;
  const groups = useTable("group").rows;
  const networks = useTable("network").rows;
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    const [first] = systems;
    if (first && !given.os && !given.image) set({ os: first });
  }, [systems.length]);
  const isNamed = NAME.test(given.name);
  const request: Request = { method: "POST", path: "/2/instances", body: bodyOf(given) };
  const create = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const job = await submit(request);
      go(href(["jobs", job]));
    } catch (error) {
      setProblem(reason(error));
      setBusy(false);
    }
  };
  const body = bodyOf(given);
  return (
    <div class="page">
      <PageTitle text={t.create.title} />
      <form class="with-panel" onSubmit={(event) => void create(event)}>
        <div class="card">
          <div class="form-grid">
            <Text label={t.create.name} hint={t.create.nameHint} value={given.name} onValue={(name) => set({ name: name.trim().toLowerCase() })} isRequired />
            {images.length > 0 && (
              <label class="field"><span>{t.create.image}</span>
                <select value={given.image} onChange={(event) => set({ image: event.currentTarget.value, os: event.currentTarget.value ? "" : systems[0] ?? "", osparams: {} })}>
                  <option value="">{t.images.none}</option>
                  {images.map(({ id }) => <option key={id} value={id}>{id}</option>)}
                </select>
              </label>
            )}
            <label class="field"><span>{t.create.os}</span>
              <select value={given.os} onChange={(event) => set({ os: event.currentTarget.value, osparams: {} })}>
                {systems.map((one) => <option key={one} value={one}>{one}</option>)}
                <option value="">{given.image ? t.create.ofImage : t.create.noOs}</option>
              </select>
            </label>
            <Count label={t.create.memory} bounds={boundsOf(cluster, "memory-size")} isSize value={given.memory} onValue={(memory) => set({ memory })} />
            <Count label={t.create.cpus} bounds={boundsOf(cluster, "cpu-count")} value={given.vcpus} onValue={(vcpus) => set({ vcpus })} />
            <label class="field"><span>{t.create.template}</span>
              <select value={given.template} onChange={(event) => set({ template: event.currentTarget.value })}>
                {templates.map((one) => <option key={one} value={one}>{one}</option>)}
              </select>
            </label>
            <label class="field"><span>{t.create.group}</span>
              <select value={given.group} disabled={Boolean(given.node)} onChange={(event) => set({ group: event.currentTarget.value })}>
                <option value="">{t.form.automatic}</option>
                {[...groups.keys()].map((one) => <option key={one} value={one}>{one}</option>)}
              </select>
            </label>
            <label class="field"><span>{t.create.node}</span>
              <select value={given.node} onChange={(event) => set({ node: event.currentTarget.value })}>
                <option value="">{t.form.automatic}</option>
                {[...nodes.values()].filter((row) => !row["offline"]).map((row) => <option key={String(row["name"])} value={String(row["name"])}>{short(row["name"])} ({size(row["mfree"] as number | undefined)} {t.overview.free})</option>)}
              </select>
            </label>
            <Text label={t.create.tags} hint={t.create.tagsHint} value={given.tags} onValue={(tags) => set({ tags })} />
          </div>
          {given.image && <p class="faint">{t.images.ofImage}</p>}
          {!given.image && given.template !== DISKLESS && (
            <fieldset><legend>{t.create.disks}</legend>
              {given.disks.map((mib, index) => (
                <div class="row-fields one" key={index}>
                  <Count label={`${index}: ${t.create.size}`} bounds={boundsOf(cluster, "disk-size")} isSize value={mib} onValue={(value) => set({ disks: given.disks.map((one, at) => (at === index ? value : one)) })} />
                  <button type="button" aria-label={`${t.form.removeOne}: disk ${index}`} onClick={() => set({ disks: given.disks.filter((_, at) => at !== index) })}><Icon name="close" /></button>
                </div>
              ))}
              <button type="button" onClick={() => set({ disks: [...given.disks, 10240] })}><Icon name="plus" />{t.form.add}</button>
            </fieldset>
          )}
          <fieldset><legend>{t.create.nics}</legend>
            {given.nics.length === 0 && <p class="faint">{t.create.noNics}</p>}
            {given.nics.map((nic, index) => {
              const change = (part: Partial<typeof nic>) => set({ nics: given.nics.map((one, at) => (at === index ? { ...one, ...part } : one)) });
              return (
                <div class="row-fields" key={index}>
                  <label class="field"><span>{index}: {t.create.network}</span>
                    <select value={nic.network} onChange={(event) => change({ network: event.currentTarget.value })}>
                      <option value="">{t.create.default}</option>
                      {[...networks.keys()].map((one) => <option key={one} value={one}>{one}</option>)}
                    </select>
                  </label>
                  <Text label={t.create.ip} value={nic.ip} onValue={(ip) => change({ ip: ip.trim() })} />
                  <button type="button" aria-label={`${t.form.removeOne}: interface ${index}`} onClick={() => set({ nics: given.nics.filter((_, at) => at !== index) })}><Icon name="close" /></button>
                </div>
              );
            })}
            <button type="button" onClick={() => set({ nics: [...given.nics, { network: "", ip: "" }] })}><Icon name="plus" />{t.form.add}</button>
          </fieldset>
          {given.os && <OsParameters os={given.os} values={given.osparams} onValues={(osparams) => set({ osparams })} />}
          {(given.os || given.image) && <label class="check"><input type="checkbox" checked={given.start} onChange={(event) => set({ start: event.currentTarget.checked })} /><span>{t.create.start}</span></label>}
          {problem && <Problem text={problem} />}
          <AsCommand command={commandOf("post_instances", body)} curl={curlOf(request, location.origin)} />
          <div class="page-actions"><button class="primary" disabled={!isNamed || isBusy}>{t.create.submit}</button></div>
        </div>
        <aside><Placement body={isNamed ? body : null} /></aside>
      </form>
    </div>
  );
}

interface Explained { readonly nodes?: readonly string[]; readonly why_not?: readonly (readonly [string, string])[] }

function Placement({ body }: { body: Body | null }) {
  const trial = useTrial(body && { method: "POST", path: "/2/instances", query: { "dry-run": 1 }, body: { ...body, ...(body["iallocator"] ? { explain: true } : {}) } });
  const found = (trial.result ?? {}) as Explained;
  const nodes = found.nodes ?? (Array.isArray(trial.result) ? (trial.result as string[]) : []);
  return (
    <section class="card" aria-live="polite" aria-busy={trial.isBusy}>
      <header><h3>{t.create.placement}</h3>{trial.isBusy && <small>{t.create.checking}</small>}</header>
      {!body && <p class="faint">{t.create.placementEmpty}</p>}
      {trial.problem && <Problem text={trial.problem} />}
      {body && nodes.length > 0 && <><p>{t.create.wouldBe}</p><p class="chosen">{nodes.map((node, at) => <>{at > 0 && ", "}<ObjectLink kind="node" name={node} whole /></>)}</p></>}
      {(found.why_not ?? []).length > 0 && (
        <><h3>{t.create.why}</h3><ul class="why">{found.why_not?.map(([node, why]) => <li key={node}><strong>{short(node)}</strong> <span class="faint">{why}</span></li>)}</ul></>
      )}
    </section>
  );
}

function OsParameters({ os, values, onValues }: { os: string; values: Readonly<Record<string, string>>; onValues: (values: Record<string, string>) => void }) {
  const [all, setAll] = useState<readonly AnyRow[]>([]);
  const mayQuery = useStore((state) => may(state.session, "put_query"));
  useEffect(() => {
    if (mayQuery) query("os", ["name", "parameters"]).then(setAll, () => undefined);
  }, []);
  const parameters = useMemo(
    () => (all.find((row) => row["name"] === os.split("+", 1)[0])?.["parameters"] as [string, string][] | undefined) ?? [],
    [all, os],
  );
  if (parameters.length === 0) return null;
  return (
    <fieldset><legend>{t.create.osParameters}</legend>
      <div class="form-grid">
        {parameters.map(([name, doc]) => (
          <Text key={name} label={name} hint={doc} value={values[name] ?? ""} onValue={(value) => {
            const { [name]: _old, ...others } = values;
            onValues(value ? { ...others, [name]: value } : others);
          }} />
        ))}
      </div>
    </fieldset>
  );
}

function Text({ label, hint, value, onValue, isRequired }: {
  label: string; hint?: string; value: string; onValue: (value: string) => void; isRequired?: boolean;
}) {
  return (
    <label class="field"><span>{label}</span>
      <input value={value} required={isRequired ?? false} autocomplete="off" autocapitalize="none" spellcheck={false} onInput={(event) => onValue(event.currentTarget.value)} />
      {hint && <small>{hint}</small>}
    </label>
  );
}

/** A number with the bounds of the instance policy beside it. */
function Count({ label, bounds, value, onValue, isSize }: {
  label: string; bounds: Bounds | null; value: number; onValue: (value: number) => void; isSize?: boolean;
}) {
  const shown = (one: number) => (isSize ? size(one) : String(one));
  return (
    <label class="field"><span>{label}</span>
      <input type="number" required min={Math.max(1, bounds?.min ?? 1)} {...(bounds ? { max: bounds.max } : {})} value={value} onInput={(event) => onValue(Number(event.currentTarget.value))} />
      {bounds && <small>{t.create.between} {shown(bounds.min)} {t.create.and} {shown(bounds.max)}</small>}
    </label>
  );
}
