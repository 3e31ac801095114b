/** A table of any number of rows, of which only the visible ones are in the page; used by keyboard as well. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { AnyRow, Key } from "../core/state";
import { t } from "../texts/en";
import type { Sort } from "./rows";

export interface Column {
  readonly field: string;
  readonly title: string;
  readonly width: number;
  /** Columns with larger numbers are hidden first where the page is narrow. */
  readonly rank: number;
  readonly isNumber?: boolean;
  readonly show: (row: AnyRow) => ComponentChildren;
  readonly text: (row: AnyRow) => string;
}

interface Props {
  readonly label: string;
  readonly rows: readonly AnyRow[];
  readonly columns: readonly Column[];
  readonly keyOf: (row: AnyRow) => Key;
  readonly sort: Sort;
  readonly onSort: (field: string) => void;
  readonly onOpen: (row: AnyRow) => void;
  readonly selected?: ReadonlySet<Key>;
  readonly onSelect?: (keys: ReadonlySet<Key>) => void;
}

const ROW_PX = 38;
const BEYOND = 8;
const SELECT_PX = 40;

export function DataTable(props: Props) {
  const { rows, keyOf, selected, onSelect } = props;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800, width: 1200 });
  const [current, setCurrent] = useState(0);
  /** The row from which Shift and an arrow extend the selection. */
  const anchor = useRef(0);
  const frame = useRef(0);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = () => {
      frame.current = 0;
      setView((before) => {
        const now = { top: element.scrollTop, height: element.clientHeight, width: element.clientWidth };
        return before.top === now.top && before.height === now.height && before.width === now.width ? before : now;
      });
    };
    const later = () => { frame.current ||= requestAnimationFrame(measure); };
    const observer = new ResizeObserver(later);
    observer.observe(element);
    element.addEventListener("scroll", later, { passive: true });
    measure();
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", later);
      cancelAnimationFrame(frame.current);
    };
  }, []);

  useEffect(() => {
    if (current >= rows.length) setCurrent(Math.max(0, rows.length - 1));
  }, [rows.length]);

  const columns = fitting(props.columns, view.width - (onSelect ? SELECT_PX : 0));
  const template = [...(onSelect ? [`${SELECT_PX}px`] : []), ...columns.map((one) => `minmax(${one.width}px, ${one.width}fr)`)].join(" ");
  const first = Math.max(0, Math.floor(view.top / ROW_PX) - BEYOND);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW_PX) + BEYOND);
  const places = Math.ceil(view.height / ROW_PX) + 2 * BEYOND + 1;
  const toggle = (row: AnyRow) => {
    const next = new Set(selected);
    const key = keyOf(row);
    if (!next.delete(key)) next.add(key);
    onSelect?.(next);
  };
  const moveTo = (index: number, isExtending = false) => {
    const next = Math.max(0, Math.min(rows.length - 1, index));
    setCurrent(next);
    if (!isExtending) anchor.current = next;
    const element = box.current;
    if (!element) return;
    const top = next * ROW_PX;
    const room = element.clientHeight - ROW_PX;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + ROW_PX > element.scrollTop + room) element.scrollTop = top + ROW_PX - room;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if ((event.target as Element).closest("a, button, input") && event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const page = Math.max(1, Math.floor(view.height / ROW_PX) - 2);
    const steps: Record<string, number> = {
      ArrowDown: current + 1, ArrowUp: current - 1, PageDown: current + page, PageUp: current - page, Home: 0, End: rows.length,
      j: current + 1, k: current - 1,
    };
    const row = rows[current];
    if (event.key === "a" && (event.ctrlKey || event.metaKey) && onSelect) onSelect(new Set(rows.map(keyOf)));
    else if (event.shiftKey && onSelect && event.key.length > 1 && event.key in steps) {
      const to = Math.max(0, Math.min(rows.length - 1, steps[event.key] ?? 0));
      const [from, end] = [Math.min(anchor.current, to), Math.max(anchor.current, to)];
      onSelect(new Set(rows.slice(from, end + 1).map(keyOf)));
      moveTo(to, true);
    } else if (event.key in steps && !event.ctrlKey && !event.metaKey) moveTo(steps[event.key] ?? 0);
    else if (event.key === "Enter" && row) props.onOpen(row);
    else if (event.key === " " && row && onSelect) toggle(row);
    else return;
    event.preventDefault();
  };
  const isAll = useMemo(() => selected !== undefined && rows.length > 0 && selected.size >= rows.length && rows.every((row) => selected.has(keyOf(row))), [rows, selected]);
  return (
    <div
      ref={box} class="grid" role="grid" aria-label={props.label} aria-rowcount={rows.length + 1} tabIndex={0}
      aria-activedescendant={rows.length ? `row-${current}` : undefined} onKeyDown={onKeyDown}
      aria-multiselectable={onSelect ? true : undefined}
    >
      <div class="grid-head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: template }}>
        {onSelect && (
          <span role="columnheader">
            <input
              type="checkbox" aria-label={t.table.all} checked={isAll} tabIndex={-1}
              onChange={() => onSelect(isAll ? new Set() : new Set(rows.map(keyOf)))}
            />
          </span>
        )}
        {columns.map((one) => (
          <span
            key={one.field} role="columnheader" class={one.isNumber ? "number" : ""}
            aria-sort={props.sort.field === one.field ? (props.sort.isDown ? "descending" : "ascending") : "none"}
          >
            <button class="plain" onClick={() => props.onSort(one.field)}>
              {one.title}
              {props.sort.field === one.field && <i aria-hidden="true">{props.sort.isDown ? "↓" : "↑"}</i>}
            </button>
          </span>
        ))}
      </div>
      <div class="grid-rows" role="rowgroup" style={{ height: `${rows.length * ROW_PX}px` }}>
        {rows.slice(first, last).map((row, offset) => {
          const index = first + offset;
          const key = keyOf(row);
          const isSelected = selected?.has(key) ?? false;
          return (
            <div
              // Rows that leave the view are used again for those that enter it, which is what scrolling costs least.
              key={index % places} id={`row-${index}`} role="row" aria-rowindex={index + 2} aria-selected={onSelect ? isSelected : undefined}
              class={`grid-row${index === current ? " current" : ""}${isSelected ? " selected" : ""}`}
              style={{ gridTemplateColumns: template, transform: `translateY(${index * ROW_PX}px)` }}
              onClick={(event) => {
                setCurrent(index);
                anchor.current = index;
                if (!(event.target as Element).closest("a, input, button") && !getSelection()?.toString()) props.onOpen(row);
              }}
            >
              {onSelect && (
                <span role="gridcell">
                  <input type="checkbox" tabIndex={-1} aria-label={`${t.table.select} ${key}`} checked={isSelected} onChange={() => toggle(row)} />
                </span>
              )}
              {columns.map((one) => (
                <span key={one.field} role="gridcell" class={one.isNumber ? "number" : ""}>{one.show(row)}</span>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}

/** The columns for which there is room, in their order. */
export function fitting(columns: readonly Column[], width: number): readonly Column[] {
  const byRank = [...columns].sort((one, other) => one.rank - other.rank);
  const kept = new Set<Column>();
  let left = width;
  for (const column of byRank) {
    if (kept.size > 0 && column.width > left) break;
    kept.add(column);
    left -= column.width;
  }
  return columns.filter((column) => kept.has(column));
}
