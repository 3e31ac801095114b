/** A page with one table: filter, columns, selection and export, all of them in the address. */
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Act } from "../actions/actions";
import { may } from "../core/access";
import { plural } from "../core/format";
import { go, href, setParameter, usePlace } from "../core/route";
import { keyOf } from "../core/state";
import type { AnyRow, Key, Kind } from "../core/state";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { Icon, PageTitle, Problem } from "./bits";
import { columnsOf, DEFAULT_COLUMNS } from "./columns";
import { ConfirmMany } from "./batch";
import { Dialog } from "./dialog";
import { exported, save } from "./export";
import { sortOf, useFields, useSearch, useSorted, useTable } from "./rows";
import { DataTable } from "./table";
import { FilterField } from "./filterfield";

interface Props {
  readonly kind: Kind;
  readonly title: string;
  readonly page: string;
  readonly sortedBy: string;
  readonly empty: ComponentChildren;
  readonly acts?: readonly Act[];
  readonly actions?: ComponentChildren;
  readonly chips?: readonly { readonly label: string; readonly filter: string }[];
}

export function ListPage(props: Props) {
  const { kind } = props;
  const { query } = usePlace();
  const text = query.get("q") ?? "";
  const chosen = useMemo(() => query.get("cols")?.split(",").filter(Boolean) ?? [...DEFAULT_COLUMNS[kind]], [query.get("cols"), kind]);
  const sort = sortOf(query.get("sort"), props.sortedBy);
  const fields = useFields(kind);
  const search = useSearch(text, fields);
  const table = useTable(kind, [...chosen, ...search.fields, sort.field]);
  const all = useMemo(() => [...table.rows.values()], [table.rows]);
  const rows = useSorted(all, search.test, sort);
  const columns = useMemo(() => columnsOf(kind, chosen, fields), [kind, chosen, fields]);
  const [selected, setSelected] = useState<ReadonlySet<Key>>(new Set());
  const [open, setOpen] = useState<"columns" | Act | null>(null);
  const session = useStore((state) => state.session);
  const acts = (props.acts ?? []).filter((act) => may(session, act.operation));
  const chosenKeys = useMemo(() => [...selected].filter((key) => table.rows.has(key)), [selected, table.rows]);
  const shownKeys = useMemo(() => (selected.size ? new Set(rows.map((row) => keyOf(kind, row))) : new Set<Key>()), [rows, kind, selected.size > 0]);
  const hidden = useMemo(() => chosenKeys.filter((key) => !shownKeys.has(key)).length, [chosenKeys, shownKeys]);
  const onSort = (field: string) => setParameter("sort", sort.field === field && !sort.isDown ? `-${field}` : field);
  return (
    <div class="page list-page">
      <PageTitle text={props.title}>
        <span class="count" aria-live="polite">
          {table.isLoaded && (rows.length === all.length ? all.length.toLocaleString("en") : `${rows.length.toLocaleString("en")} ${t.table.of} ${all.length.toLocaleString("en")}`)}
        </span>
        {props.actions}
      </PageTitle>
      <div class="toolbar">
        <FilterField text={text} fields={fields} rows={all} problem={search.problem} onText={(next) => setParameter("q", next)} />
        {props.chips && (
          <div class="chips">
            {props.chips.map((chip) => (
              <button
                key={chip.label} class="chip" aria-pressed={text === chip.filter}
                onClick={() => setParameter("q", text === chip.filter ? "" : chip.filter)}
              >{chip.label}</button>
            ))}
          </div>
        )}
        <span class="grow" />
        <button onClick={() => setOpen("columns")}><Icon name="columns" />{t.table.columns}</button>
        <details class="menu">
          <summary><Icon name="down" />{t.table.export}</summary>
          <div class="menu-items">
            <button onClick={() => save(`${props.page}.csv`, exported(rows, columns, "csv"))}>{t.table.csv}</button>
            <button onClick={() => save(`${props.page}.json`, exported(rows, columns, "json"))}>{t.table.json}</button>
          </div>
        </details>
      </div>
      {chosenKeys.length > 0 && (
        <div class="selection" role="region" aria-label={t.table.more}>
          <strong>{plural(chosenKeys.length, "object")} {t.table.selected}</strong>
          {acts.map((act) => (
            <button key={act.id} class={act.tone === "danger" ? "danger-text" : ""} onClick={() => setOpen(act)}>{act.label}</button>
          ))}
          {shownKeys.size > chosenKeys.length - hidden && (
            <button class="plain" onClick={() => setSelected(new Set([...selected, ...shownKeys]))}>{t.table.selectAll(shownKeys.size)}</button>
          )}
          <button class="plain" onClick={() => setSelected(new Set())}>{t.table.clear}</button>
          {hidden > 0 && <small>{t.batch.hidden(hidden)}</small>}
        </div>
      )}
      {table.problem && <Problem text={table.problem} />}
      {!table.isLoaded && !table.problem && <Loading />}
      {table.isLoaded && all.length === 0 && props.empty}
      {table.isLoaded && all.length > 0 && rows.length === 0 && (
        <p class="nothing">{t.table.none} <button onClick={() => setParameter("q", "")}>{t.table.clearFilter}</button></p>
      )}
      {rows.length > 0 && (
        <DataTable
          label={props.title} rows={rows} columns={columns} keyOf={(row: AnyRow) => keyOf(kind, row)} sort={sort} onSort={onSort}
          onOpen={(row) => go(href([props.page, keyOf(kind, row)]))}
          {...(acts.length ? { selected, onSelect: setSelected } : {})}
        />
      )}
      {open === "columns" && <ChooseColumns chosen={chosen} fields={fields} onClose={() => setOpen(null)} />}
      {open !== null && open !== "columns" && (
        <ConfirmMany act={open} kind={kind} names={chosenKeys} hidden={hidden} onClose={() => setOpen(null)} onDone={() => setSelected(new Set())} />
      )}
    </div>
  );
}

export function Loading() {
  return (
    <div class="loading" role="status" aria-label={t.table.loading}>
      {[0, 1, 2, 3, 4, 5].map((one) => <div key={one} class="bone" />)}
    </div>
  );
}

function ChooseColumns({ chosen, fields, onClose }: {
  chosen: readonly string[]; fields: ReturnType<typeof useFields>; onClose: () => void;
}) {
  const [text, setText] = useState("");
  const found = fields.filter((field) => `${field.name} ${field.title} ${field.doc}`.toLowerCase().includes(text.toLowerCase()));
  const inOrder = [...found].sort((one, other) => Number(chosen.includes(other.name)) - Number(chosen.includes(one.name)));
  const set = (names: readonly string[]) => setParameter("cols", names.join(","));
  return (
    <Dialog title={t.table.chooseColumns} onClose={onClose}>
      <label class="field"><span>{t.table.findColumn}</span>
        <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <ul class="choices">
        {inOrder.slice(0, 200).map((field) => (
          <li key={field.name}>
            <label>
              <input
                type="checkbox" checked={chosen.includes(field.name)}
                onChange={(event) => set(event.currentTarget.checked ? [...chosen, field.name] : chosen.filter((one) => one !== field.name))}
              />
              <span><strong>{field.name}</strong><small>{field.doc}</small></span>
            </label>
          </li>
        ))}
      </ul>
      <footer>
        <button onClick={() => { set([]); }}>{t.table.reset}</button>
        <button class="primary" onClick={onClose}>{t.table.done}</button>
      </footer>
    </Dialog>
  );
}
