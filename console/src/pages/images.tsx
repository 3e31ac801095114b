/** Images from which instances are created: all of them with the uploads of the user, and one with its digests and copies. */
import { useEffect, useRef, useState } from "preact/hooks";
import { useAnswer, useChanges } from "../api/objects";
import { useOperation } from "../api/operations";
import type { Values } from "../api/operations";
import { beginUpload, continueUpload, pauseUpload, removeUpload } from "../api/upload";
import { reason } from "../api/client";
import { may } from "../core/access";
import { clock, duration, plural, size } from "../core/format";
import { nameFor, shortDigest, sortedImages, standingOf } from "../core/images";
import type { Image as Row, Sending, Upload } from "../core/images";
import { href } from "../core/route";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { Badge, Empty, Icon, Meter, ObjectLink, PageTitle, Problem } from "../ui/bits";
import type { Tone } from "../ui/bits";
import { Dialog } from "../ui/dialog";
import { FieldGrid, fieldsOf, FormButton, OperationDialog } from "../ui/form";
import type { Form } from "../ui/form";
import { Loading } from "../ui/listpage";
import { useTable } from "../ui/rows";

const AGAIN_MS = 1000;
const MIB = 1024 * 1024;
const UPLOADS = "/2/image-uploads";
const TONES: Readonly<Record<string, Tone>> = { failed: "bad", waiting: "warn", sending: "info" };
const HINTS = ["description", "source_format", "digest", "firmware", "cloud_init", "disk_size"];

const forms = (name: string): Form[] => [
  { operation: "put_images_name_modify", label: t.images.modify, what: t.images.modifyWhat, fixed: { image: name }, first: ["description", "disk_size", "firmware", "cloud_init"] },
  { operation: "put_images_name_rename", label: t.more.rename, what: "", fixed: { image: name }, first: ["new_name"] },
  { operation: "put_images_name_copy", label: t.images.copy, what: t.images.copyWhat, fixed: { image: name }, first: ["nodes"] },
  { operation: "put_images_name_export", label: t.images.export, what: t.images.exportWhat, fixed: { image: name }, first: ["path", "target_format", "node"] },
  { operation: "delete_images_name", label: t.acts.remove, what: t.images.removeWhat, fixed: { image: name }, first: [], isDangerous: true },
];

const createFrom = (name: string) => href(["create"], { image: name });

export function Images() {
  const session = useStore((state) => state.session);
  const version = useChanges(AGAIN_MS, (state) => state.images);
  const answer = useAnswer<Row[]>({ method: "GET", path: "/2/images", query: { bulk: 1 } }, version);
  const images = answer.value && sortedImages(answer.value);
  return (
    <div class="page">
      <PageTitle text={t.nav.images}>
        <span class="count">{images ? images.length.toLocaleString("en") : ""}</span>
        <ImportButton />
        {may(session, "post_image_uploads") && <UploadButton />}
      </PageTitle>
      {may(session, "get_image_uploads") && <Uploads version={version} />}
      {answer.problem && <Problem text={answer.problem} onAgain={answer.again} />}
      {!images && !answer.problem && <Loading />}
      {images?.length === 0 && <Empty icon="images" title={t.images.empty}>{t.images.emptyWhat}</Empty>}
      {images && images.length > 0 && (
        <div class="card scroll" tabIndex={0} role="region" aria-label={t.nav.images}>
          <table>
            <thead><tr>{t.images.heads.map((head) => <th key={head} scope="col">{head}</th>)}<th><span class="unseen">{t.table.more}</span></th></tr></thead>
            <tbody>{images.map((one) => (
              <tr key={one.name}>
                <th scope="row"><ObjectLink kind="images" name={one.name} whole />{one.description && <small>{one.description}</small>}</th>
                <td class="number when">{size(one.size)}<small>{t.images.takes(size(one.stored))}</small></td>
                <td class="when"><code title={one["disk.sha256"][0]}>{shortDigest(one["disk.sha256"][0])}</code>{one["disk.sha256"].length > 1 && <small>{plural(one["disk.sha256"].length, "disk")}</small>}</td>
                <td>{one.firmware || t.form.automatic}{one.cloud_init && <small>cloud-init</small>}</td>
                <td>{one.node_list.map((node, at) => <span key={node}>{at > 0 && ", "}<ObjectLink kind="node" name={node} /></span>)}</td>
                <td class="number">{may(session, "post_instances") && <a class="button small" href={createFrom(one.name)}>{t.images.create}</a>}</td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </div>
  );
}

export function Image({ name }: { name: string }) {
  const session = useStore((state) => state.session);
  const version = useChanges(AGAIN_MS, (state) => state.images);
  const answer = useAnswer<Row>({ method: "GET", path: `/2/images/${encodeURIComponent(name)}` }, version);
  const one = answer.value;
  if (answer.isGone) return <div class="page"><PageTitle text={name} /><Problem text={t.images.gone} /></div>;
  if (!one) return <div class="page"><PageTitle text={name} />{answer.problem ? <Problem text={answer.problem} onAgain={answer.again} /> : <Loading />}</div>;
  return (
    <div class="page">
      <PageTitle text={name}>
        {may(session, "post_instances") && <a class="button primary" href={createFrom(name)}><Icon name="plus" />{t.images.create}</a>}
        {forms(name).map((form) => <FormButton key={form.operation} form={form} name={name} />)}
      </PageTitle>
      {one.description && <p class="faint">{one.description}</p>}
      <dl class="facts">
        <div><dt>{t.images.size}</dt><dd>{size(one.size)}</dd></div>
        <div><dt>{t.images.stored}</dt><dd>{size(one.stored)}</dd></div>
        <div><dt>{t.images.format}</dt><dd>{t.images.raw}</dd></div>
        <div><dt>{t.images.firstDisk}</dt><dd>{size(one.disk_size)}</dd></div>
        <div><dt>{t.images.firmware}</dt><dd>{one.firmware || t.form.automatic}</dd></div>
        <div><dt>cloud-init</dt><dd>{one.cloud_init ? t.plain.yes : t.plain.no}</dd></div>
        {Object.entries(one.beparams).map(([key, value]) => <div key={key}><dt>{key}</dt><dd>{String(value)}</dd></div>)}
        {one.ctime !== undefined && <div><dt>{t.images.imported}</dt><dd>{clock(one.ctime)}</dd></div>}
      </dl>
      <div class="halves">
        <section class="card"><header><h3>{t.images.digests}</h3></header>
          <ul class="lines">{one["disk.sha256"].map((digest, index) => <li key={index}><span>{index}</span><code class="what">{digest}</code><small>{size(one["disk.sizes"][index])}</small></li>)}</ul></section>
        <section class="card"><header><h3>{t.images.copies}</h3></header>
          <ul class="lines">{one.node_list.map((node) => <li key={node}><span class="what"><ObjectLink kind="node" name={node} whole /></span></li>)}</ul></section>
      </div>
    </div>
  );
}

function ImportButton() {
  const session = useStore((state) => state.session);
  const [isOpen, setOpen] = useState(false);
  if (!may(session, "post_images")) return null;
  return (
    <>
      <button onClick={() => setOpen(true)}>{t.images.import}</button>
      {isOpen && <OperationDialog id="post_images" title={t.images.import} what={t.images.importWhat} fixed={{}} first={["name", "source", "digest", "description"]} onClose={() => setOpen(false)} />}
    </>
  );
}

function UploadButton() {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button class="primary" onClick={() => setOpen(true)}><Icon name="plus" />{t.images.upload}</button>
      {isOpen && <Dialog title={t.images.upload} onClose={() => setOpen(false)} wide><UploadForm onClose={() => setOpen(false)} /></Dialog>}
    </>
  );
}

function UploadForm({ onClose }: { onClose: () => void }) {
  const { operation, problem: missing } = useOperation("post_image_uploads");
  const [file, setFile] = useState<File | null>(null);
  const [name, setName] = useState("");
  const [given, setGiven] = useState<Values>({});
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  if (!operation) return missing ? <Problem text={missing} /> : <Loading />;
  const fields = fieldsOf(operation, { name: "", size: 0 }).sort((one, other) => HINTS.indexOf(one.name) - HINTS.indexOf(other.name));
  const choose = (chosen: File | null) => { setFile(chosen); if (chosen && !name) setName(nameFor(chosen.name)); };
  const begin = (event: Event) => {
    event.preventDefault();
    if (!file) return;
    setBusy(true);
    beginUpload(file, { ...given, name }).then(onClose, (error: unknown) => { setProblem(reason(error)); setBusy(false); });
  };
  return (
    <form onSubmit={begin}>
      <p>{t.images.uploadWhat}</p>
      <div class="form-grid">
        <label class="field"><span>{t.images.file} *</span><input type="file" required onChange={(event) => choose(event.currentTarget.files?.[0] ?? null)} />{file && <small>{size(file.size / MIB)}</small>}</label>
        <label class="field"><span>{t.create.name} *</span><input required value={name} autocomplete="off" spellcheck={false} onInput={(event) => setName(event.currentTarget.value)} /></label>
      </div>
      <FieldGrid fields={fields} given={given} onGiven={setGiven} />
      {problem && <Problem text={problem} />}
      <footer>
        <button type="button" onClick={onClose}>{t.acts.cancel}</button>
        <button class="primary" disabled={isBusy || !file}>{t.images.upload}</button>
      </footer>
    </form>
  );
}

/** The uploads of the user, also those that another browser has begun. */
function Uploads({ version }: { version: number }) {
  const sending = useStore((state) => state.uploads);
  // A new or a finished upload changes the set of ids; the progress of one does not.
  const ids = [...sending.keys()].join();
  const [turn, setTurn] = useState(0);
  const answer = useAnswer<Upload[]>({ method: "GET", path: UPLOADS }, `${version} ${ids} ${turn}`);
  const jobs = useTable("job").rows;
  const jobOf = (one: Upload) => String(jobs.get(String(one.job))?.["status"] ?? "");
  // The server forgets an upload some time after its import.
  const all = (answer.value ?? []).filter((one) => jobOf(one) !== "success");
  if (all.length === 0 && !answer.problem) return null;
  return (
    <section class="card" aria-label={t.images.uploads}>
      <header><h3>{t.images.uploads}</h3></header>
      {answer.problem && <Problem text={answer.problem} onAgain={answer.again} />}
      <ul class="lines">{all.map((one) => <OneUpload key={one.id} upload={one} sending={sending.get(one.id)} job={jobOf(one)} onChange={() => setTurn((before) => before + 1)} />)}</ul>
    </section>
  );
}

function OneUpload({ upload, sending, job, onChange }: { upload: Upload; sending: Sending | undefined; job: string; onChange: () => void }) {
  const [problem, setProblem] = useState<string | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const { percent, rate, leftS } = standingOf(upload, sending);
  const isSending = sending?.isSending ?? false;
  const state = job === "error" ? "failed" : upload.state === "complete" ? "complete" : isSending ? (sending?.problem ? "waiting" : "sending") : "paused";
  const said = [`${percent.toFixed(1)} %`, size(upload.size / MIB), rate === null ? "" : `${size(rate / MIB)}/s`, leftS === null ? "" : `${duration(leftS)} ${t.jobs.left}`].filter(Boolean).join(" · ");
  const again = (file: File | undefined) => { if (file) setProblem(continueUpload(upload, file)); };
  const remove = () => { removeUpload(upload.id).catch((error: unknown) => setProblem(reason(error))).finally(onChange); };
  useEffect(() => { if (!isSending) onChange(); }, [isSending]);
  return (
    <li>
      <Badge tone={TONES[state] ?? "quiet"}>{t.images.states[state] ?? state}</Badge>
      <span class="what">
        <span>{upload.name}{upload.job !== null && <small> {t.jobs.one} <ObjectLink kind="job" name={upload.job} whole /></small>}</span>
        <Meter label={upload.name} whole={100} parts={[{ name: t.images.states["sending"] ?? "", value: percent, tone: "used" }]} />
        <small>{said}</small>
        {(problem ?? sending?.problem) && <small role="status">{problem ?? sending?.problem}</small>}
      </span>
      <span class="page-actions">
        {isSending && <button class="small" onClick={() => pauseUpload(upload.id)}>{t.whatif.pause}</button>}
        {state === "paused" && <button class="small" onClick={() => input.current?.click()}>{t.images.continue}</button>}
        <input ref={input} type="file" hidden aria-label={`${t.images.file}: ${upload.name}`} onChange={(event) => { again(event.currentTarget.files?.[0]); event.currentTarget.value = ""; }} />
        <button class="small" onClick={remove}>{t.acts.remove}</button>
      </span>
    </li>
  );
}
