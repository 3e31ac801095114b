/** The rows that a table shows: filtered and sorted, as the address says. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { fieldsOfKind } from "../api/queries";
import type { FieldInfo } from "../api/queries";
import { searchOf } from "../core/filter";
import type { Test } from "../core/filter";
import { compare } from "../core/format";
import { store, useStore } from "../core/store";
import type { AnyRow, Kind, Table } from "../core/state";

export interface Sort {
  readonly field: string;
  readonly isDown: boolean;
}

export function sortOf(text: string | null, byDefault: string): Sort {
  const given = text || byDefault;
  return given.startsWith("-") ? { field: given.slice(1), isDown: true } : { field: given, isDown: false };
}

/** Request a table, with more fields where columns or a filter need them. */
export function useTable(kind: Kind, fields: readonly string[] = []): Table {
  const wanted = fields.join(" ");
  const isSignedIn = useStore((state) => Boolean(state.session));
  useEffect(() => {
    if (isSignedIn) store.dispatch({ type: "wanted", kind, fields: wanted ? wanted.split(" ") : [] });
  }, [kind, wanted, isSignedIn]);
  return useStore((state) => state.tables[kind]);
}

/** Return a value at once, but its further changes only every `ms`: what is expensive to draw follows several together. */
export function useSlowly<T>(value: T, ms: number): T {
  const [shown, setShown] = useState(value);
  const latest = useRef(value);
  const timer = useRef(0);
  const last = useRef(0);
  latest.current = value;
  useEffect(() => {
    if (Object.is(value, shown)) return;
    const show = () => { timer.current = 0; last.current = performance.now(); setShown(latest.current); };
    timer.current ||= window.setTimeout(show, Math.max(0, last.current + ms - performance.now()));
  }, [value, shown]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return shown;
}

export function useFields(kind: string): readonly FieldInfo[] {
  const [fields, setFields] = useState<readonly FieldInfo[]>([]);
  useEffect(() => {
    fieldsOfKind(kind).then(setFields, () => undefined);
  }, [kind]);
  return fields;
}

export interface Search {
  readonly test: Test | null;
  readonly fields: readonly string[];
  readonly problem: string | null;
}

export function useSearch(text: string, fields: readonly FieldInfo[]): Search {
  return useMemo(() => {
    try {
      const found = searchOf(text, new Set(fields.map((field) => field.name)));
      return { test: found?.test ?? null, fields: found?.fields ?? [], problem: null };
    } catch (error) {
      return { test: null, fields: [], problem: (error as Error).message };
    }
  }, [text, fields]);
}

export function sorted(rows: Iterable<AnyRow>, sort: Sort): AnyRow[] {
  const found = [...rows];
  const factor = sort.isDown ? -1 : 1;
  return found.sort((one, other) => factor * compare(one[sort.field], other[sort.field]));
}

export function useSorted(rows: readonly AnyRow[], test: Test | null, sort: Sort): readonly AnyRow[] {
  return useMemo(
    () => sorted(test ? rows.filter(test) : rows, sort),
    [rows, test, sort.field, sort.isDown],
  );
}
