/** The one form of all operations, generated from their declarations in the OpenAPI document. */
import { useId, useMemo, useState } from "preact/hooks";
import { submit } from "../actions/actions";
import type { OperationId } from "../actions/actions";
import { commandOf, curlOf } from "../actions/commands";
import { reason } from "../api/client";
import { requestOf, useOperation } from "../api/operations";
import type { Operation, Schema, Values } from "../api/operations";
import { may } from "../core/access";
import { store, useStore } from "../core/store";
import { t } from "../texts/en";
import { Problem } from "./bits";
import { AsCommand, Dialog } from "./dialog";
import { Loading } from "./listpage";

/** Fields of every job, which the form keeps for the end. */
const OF_EVERY_JOB = ["priority", "depends", "comment", "dry_run", "dry-run", "reason", "Idempotency-Key", "expected_serial", "expected-serial"];

/** An action that needs values: a form of its operation. */
export interface Form {
  readonly operation: OperationId;
  readonly label: string;
  readonly what: string;
  readonly fixed: Values;
  readonly first: readonly string[];
  readonly isDangerous?: boolean;
}

interface Field {
  readonly name: string;
  readonly schema: Schema;
  readonly isRequired: boolean;
}

export function fieldsOf(operation: Operation, fixed: Values): Field[] {
  const inQuery = operation.parameters
    .filter((one) => one.in === "query")
    .map((one) => ({ name: one.name, schema: { ...one.schema, ...(one.description ? { description: one.description } : {}) }, isRequired: one.required ?? false }));
  const required = operation.body?.required ?? [];
  const inBody = Object.entries(operation.body?.properties ?? {}).map(([name, schema]) => ({ name, schema, isRequired: required.includes(name) }));
  const names = new Set(inBody.map((one) => one.name));
  return [...inBody, ...inQuery.filter((one) => !names.has(one.name))]
    .filter((one) => !(one.name in fixed) && !OF_EVERY_JOB.includes(one.name) && !one.name.endsWith("_uuid") && one.name !== "__version__")
    .sort((one, other) => Number(other.isRequired) - Number(one.isRequired));
}

/** The dialog of a form about an object; the first of the fixed values is what must be typed if it is dangerous. */
export function FormDialog({ form, name, onClose }: { form: Form; name: string; onClose: () => void }) {
  return (
    <OperationDialog
      id={form.operation} title={`${form.label}: ${name}`} what={form.what} fixed={form.fixed} first={form.first}
      isDangerous={form.isDangerous ?? false} onClose={onClose}
    />
  );
}

/** A button that opens a form, if the user may. */
export function FormButton({ form, name, isSmall }: { form: Form; name: string; isSmall?: boolean }) {
  const session = useStore((state) => state.session);
  const [isOpen, setOpen] = useState(false);
  if (!may(session, form.operation)) return null;
  return (
    <>
      <button type="button" class={isSmall ? "small" : ""} onClick={() => setOpen(true)}>{form.label}</button>
      {isOpen && <FormDialog form={form} name={name} onClose={() => setOpen(false)} />}
    </>
  );
}

/** A dialog for one operation. `first` names the fields that are shown before all others. */
export function OperationDialog({ id, title, what, fixed, first, isDangerous, onClose }: {
  id: OperationId; title: string; what?: string; fixed: Values; first: readonly string[]; isDangerous?: boolean; onClose: () => void;
}) {
  const { operation, problem } = useOperation(id);
  return (
    <Dialog title={title} onClose={onClose} wide>
      {what && <p>{what}</p>}
      {problem && <Problem text={problem} />}
      {!operation && !problem && <Loading />}
      {operation && <OperationForm operation={operation} fixed={fixed} first={first} isDangerous={isDangerous ?? false} onClose={onClose} />}
    </Dialog>
  );
}

function OperationForm({ operation, fixed, first, isDangerous, onClose }: {
  operation: Operation; fixed: Values; first: readonly string[]; isDangerous: boolean; onClose: () => void;
}) {
  const [given, setGiven] = useState<Values>({});
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [typed, setTyped] = useState("");
  const word = String(Object.values(fixed)[0] ?? "");
  const isConfirmed = !isDangerous || typed === word;
  const all = useMemo(() => fieldsOf(operation, fixed), [operation, fixed]);
  const shown = all.filter((field) => field.isRequired || first.includes(field.name))
    .sort((one, other) => first.indexOf(one.name) - first.indexOf(other.name));
  const others = all.filter((field) => !shown.includes(field));
  const values = { ...fixed, ...given };
  const request = requestOf(operation, values);
  const run = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await submit(request);
      onClose();
    } catch (error) {
      setProblem(reason(error));
      setBusy(false);
    }
  };
  const check = async () => {
    setBusy(true);
    const dry = operation.parameters.some((one) => one.name === "dry-run")
      ? { ...request, query: { ...request.query, "dry-run": 1 } }
      : { ...request, body: { ...(request.body as object | undefined), dry_run: true } };
    try {
      const job = await submit(dry);
      store.dispatch({ type: "submitted", job });
      setProblem(null);
    } catch (error) {
      setProblem(reason(error));
    }
    setBusy(false);
  };
  const canCheck = operation.parameters.some((one) => one.name === "dry-run") || "dry_run" in (operation.body?.properties ?? {});
  return (
    <form onSubmit={(event) => void run(event)}>
      <FieldGrid fields={shown} given={given} onGiven={setGiven} />
      {others.length > 0 && (
        <details class="more-fields"><summary>{t.form.more} ({others.length})</summary>
          <FieldGrid fields={others} given={given} onGiven={setGiven} />
        </details>
      )}
      {isDangerous && (
        <label class="field"><span>{t.acts.typeName}: <code>{word}</code></span>
          <input autocomplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
      )}
      {problem && <Problem text={problem} />}
      <AsCommand command={commandOf(operation.id, values)} curl={curlOf(request, location.origin)} />
      <footer>
        <button type="button" onClick={onClose}>{t.acts.cancel}</button>
        {canCheck && <button type="button" disabled={isBusy} onClick={() => void check()}>{t.acts.dryRun}</button>}
        <button class={isDangerous ? "danger" : "primary"} disabled={isBusy || !isConfirmed}>{operation.summary}</button>
      </footer>
    </form>
  );
}

/** Fields side by side; a field that is left empty has no value. */
export function FieldGrid({ fields, given, onGiven }: { fields: readonly Field[]; given: Values; onGiven: (values: Values) => void }) {
  const set = (name: string, value: unknown) => {
    const { [name]: _old, ...others } = given;
    onGiven(value === undefined ? others : { ...others, [name]: value });
  };
  return <div class="form-grid">{fields.map((field) => <OneField key={field.name} field={field} value={given[field.name]} onValue={(value) => set(field.name, value)} />)}</div>;
}

/** The schema without "or null": a field that is left empty is not sent. */
function plain(schema: Schema): Schema {
  const some = schema.anyOf?.find((one) => one.type !== "null");
  return some ? { ...some, ...(schema.description ? { description: schema.description } : {}) } : schema;
}

const FLAGS: Readonly<Record<string, boolean>> = { true: true, false: false };

function OneField({ field, value, onValue }: { field: Field; value: unknown; onValue: (value: unknown) => void }) {
  const id = useId();
  const schema = plain(field.schema);
  const types = [schema.type ?? []].flat();
  const hint = field.schema.description ?? schema.description;
  const label = field.name.replace(/[_-]/g, " ");
  const shownDefault = field.schema.default === null || field.schema.default === undefined || typeof field.schema.default === "object" ? "" : String(field.schema.default);
  // A flag without a default is neither on nor off: then the server decides.
  const isOpen = types.includes("boolean") && typeof field.schema.default !== "boolean";
  const isFlag = !isOpen && types.includes("boolean") || (schema.enum?.length === 2 && schema.enum.includes(0) && schema.enum.includes(1));
  if (isFlag) {
    return (
      <label class="check"><input type="checkbox" checked={value === undefined ? field.schema.default === true : Boolean(value)}
        onChange={(event) => onValue(event.currentTarget.checked)} /><span>{label}{hint && <small>{hint}</small>}</span></label>
    );
  }
  return (
    <div class="field">
      <label for={id}>{label}{field.isRequired && " *"}</label>
      {isOpen ? (
        <select id={id} value={value === undefined ? "" : String(value)} required={field.isRequired} aria-describedby={hint ? `${id}-hint` : undefined} onChange={(event) => onValue(FLAGS[event.currentTarget.value])}>
          <option value="">–</option><option value="true">{t.plain.yes}</option><option value="false">{t.plain.no}</option>
        </select>
      ) : schema.enum ? (
        <select id={id} value={String(value ?? "")} required={field.isRequired} onChange={(event) => onValue(chosen(schema.enum, event.currentTarget.value))}>
          <option value="">{shownDefault || "–"}</option>
          {schema.enum.map((one) => <option key={String(one)} value={String(one)}>{String(one)}</option>)}
        </select>
      ) : (
        <input
          id={id} required={field.isRequired} placeholder={shownDefault} aria-describedby={hint ? `${id}-hint` : undefined} autocomplete="off" spellcheck={false}
          type={types.includes("integer") || types.includes("number") ? "number" : "text"} list={undefined} min={schema.minimum} max={schema.maximum} step="any"
          onChange={(event) => onValue(parsed(schema, types, event.currentTarget.value, event.currentTarget))}
        />
      )}
      {hint && <small id={`${id}-hint`}>{hint}</small>}
    </div>
  );
}

function chosen(values: readonly unknown[] | undefined, text: string): unknown {
  return text === "" ? undefined : values?.find((one) => String(one) === text);
}

/** The value of a text, in the form of its schema: `k=v,...` for objects, `a,b` for lists, JSON for anything else. */
export function parsed(schema: Schema, types: readonly string[], text: string, input?: HTMLInputElement): unknown {
  input?.setCustomValidity("");
  if (text.trim() === "") return undefined;
  if (types.includes("integer") || types.includes("number")) return Number(text);
  if (types.includes("string")) return text;
  if (/^\s*[[{"]/.test(text)) {
    try {
      return JSON.parse(text);
    } catch {
      input?.setCustomValidity(t.form.notJson);
      return undefined;
    }
  }
  if (types.includes("object")) return pairsOf(text);
  if (types.includes("array")) return text.split(",").map((one) => itemOf(schema.items, one.trim()));
  return text;
}

function itemOf(schema: Schema | undefined, text: string): unknown {
  return schema?.type === "integer" || schema?.type === "number" ? Number(text) : text;
}

function pairsOf(text: string): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const part of text.split(",")) {
    const [name = "", ...value] = part.split("=");
    const given = value.join("=").trim();
    if (name.trim()) found[name.trim()] = value.length === 0 ? true : /^-?\d+$/.test(given) ? Number(given) : given === "true" ? true : given === "false" ? false : given;
  }
  return found;
}
