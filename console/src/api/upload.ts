/** Uploads of images in pieces: they continue where the server is, after a lost connection and after the page was closed. */
import { mismatchOf, pieceOf, rateOf, sampled, waitOf } from "../core/images";
import type { Known, Sample, Upload } from "../core/images";
import { store } from "../core/store";
import { t } from "../texts/en";
import { reason, Refused, send } from "./client";

const PATH = "/2/image-uploads";
const KEY = "ganeti-upload-";
/** Refusals after which the same upload cannot continue. */
const FINAL = new Set([400, 401, 403, 404, 413]);

/** Uploads that this page sends, with what ends them. */
const active = new Map<string, AbortController>();

/** Begin an upload and send the file; return the upload. Refused. */
export async function beginUpload(file: File, values: Readonly<Record<string, unknown>>): Promise<Upload> {
  const upload = await send<Upload>({ method: "POST", path: PATH, body: { ...values, size: file.size } });
  localStorage.setItem(KEY + upload.id, JSON.stringify({ file: file.name, size: file.size, modified: file.lastModified }));
  sendFile(upload, file);
  return upload;
}

/** Continue an upload with the file that was chosen again; return why it is another file, or null. */
export function continueUpload(upload: Upload, file: File): string | null {
  const mismatch = mismatchOf(upload, known(upload.id), file);
  if (mismatch) return mismatch === "size" ? t.images.otherSize : t.images.otherFile;
  sendFile(upload, file);
  return null;
}

export function pauseUpload(id: string): void {
  active.get(id)?.abort();
}

export async function removeUpload(id: string): Promise<void> {
  pauseUpload(id);
  await send({ method: "DELETE", path: `${PATH}/${id}` });
  forget(id);
}

function known(id: string): Known | null {
  const text = localStorage.getItem(KEY + id);
  return text ? (JSON.parse(text) as Known) : null;
}

function forget(id: string): void {
  localStorage.removeItem(KEY + id);
  store.dispatch({ type: "upload-gone", id });
}

function sendFile(upload: Upload, file: File): void {
  if (active.has(upload.id)) return;
  const control = new AbortController();
  active.set(upload.id, control);
  if (active.size === 1) addEventListener("beforeunload", ask);
  void sendAll(upload, file, control.signal).finally(() => {
    active.delete(upload.id);
    if (active.size === 0) removeEventListener("beforeunload", ask);
  });
}

/** The browser asks before it leaves a page that sends a file. */
function ask(event: BeforeUnloadEvent): void {
  event.preventDefault();
}

async function sendAll(upload: Upload, file: File, signal: AbortSignal): Promise<void> {
  const { id, size } = upload;
  let { offset } = upload;
  let samples: readonly Sample[] = [{ at: performance.now(), offset }];
  const show = (isSending: boolean, problem: string | null = null) =>
    store.dispatch({ type: "upload", upload: { id, offset, isSending, rate: rateOf(samples), problem } });
  for (let failures = 0; ; ) {
    show(true);
    try {
      const end = Math.min(size, offset + pieceOf(rateOf(samples)));
      const answer = await send<Upload>({
        method: "PUT", path: `${PATH}/${id}`, bytes: { data: file.slice(offset, end), range: `bytes ${offset}-${end - 1}/${size}` }, signal,
      });
      offset = answer.offset;
      failures = 0;
      samples = sampled(samples, { at: performance.now(), offset });
      if (answer.job !== null) {
        store.dispatch({ type: "submitted", job: answer.job });
        forget(id);
        return;
      }
    } catch (error) {
      if (signal.aborted) { show(false); return; }
      if (error instanceof Refused && FINAL.has(error.status)) { show(false, reason(error)); return; }
      failures += 1;
      show(true, reason(error));
      await pause(waitOf(failures), signal);
      if (signal.aborted) { show(false); return; }
      offset = await offsetOf(id, offset);
      samples = [{ at: performance.now(), offset }];
    }
  }
}

/** Where the server is; what is known if it does not answer. */
async function offsetOf(id: string, before: number): Promise<number> {
  try {
    return (await send<Upload>({ method: "GET", path: `${PATH}/${id}` })).offset;
  } catch {
    return before;
  }
}

function pause(seconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, seconds * 1000);
    signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
  });
}
