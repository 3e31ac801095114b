/** The field for the filter language, with completion of fields, operators and values. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { FieldInfo } from "../api/queries";
import type { AnyRow } from "../core/state";
import { t } from "../texts/en";

const WAIT_MS = 120;
const SHOWN = 8;

interface Choice {
  readonly text: string;
  readonly what: string;
}

export function FilterField({ text, fields, rows, problem, onText }: {
  text: string; fields: readonly FieldInfo[]; rows: readonly AnyRow[]; problem: string | null; onText: (text: string) => void;
}) {
  const [value, setValue] = useState(text);
  const [isOpen, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const timer = useRef(0);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => setValue(text), [text]);
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      if (event.key !== "/" || (event.target as Element).closest("input, textarea, select, dialog, .xterm")) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
  const choices = useMemo(() => (isOpen ? choicesFor(value, fields, rows) : []), [isOpen, value, fields, rows]);
  const change = (next: string) => {
    setValue(next);
    setAt(-1);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => onText(next), WAIT_MS);
  };
  const choose = (choice: Choice) => {
    change(value.replace(/[^\s()=<>!~]*$/, "") + choice.text + " ");
    input.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(choices.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(-1, at - 1));
    else if ((event.key === "Enter" || event.key === "Tab") && choices[at]) choose(choices[at]);
    else if (event.key === "Escape" && (isOpen || value)) { if (isOpen && choices.length) setOpen(false); else change(""); }
    else return;
    event.preventDefault();
  };
  return (
    <div class="filter">
      <input
        ref={input} type="text" value={value} placeholder={t.table.placeholder} aria-label={t.table.filter} role="combobox"
        aria-expanded={choices.length > 0} aria-controls="filter-choices" aria-autocomplete="list" autocomplete="off" spellcheck={false}
        aria-activedescendant={at >= 0 ? `filter-choice-${at}` : undefined}
        aria-invalid={Boolean(problem)}
        onInput={(event) => { setOpen(true); change(event.currentTarget.value); }}
        onKeyDown={onKeyDown} onBlur={() => setOpen(false)}
      />
      {problem && !isOpen && <p class="filter-problem" role="alert">{t.table.isWrong} {problem}.</p>}
      {choices.length > 0 && (
        <ul id="filter-choices" class="filter-choices" role="listbox" aria-label={t.table.filter}>
          {choices.map((choice, index) => (
            <li
              key={choice.text} id={`filter-choice-${index}`} role="option" aria-selected={index === at}
              onMouseDown={(event) => { event.preventDefault(); choose(choice); }}
            ><code>{choice.text}</code><small>{choice.what}</small></li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** What may follow: a field, an operator after a field, a value after an operator. */
export function choicesFor(text: string, fields: readonly FieldInfo[], rows: readonly AnyRow[]): Choice[] {
  const word = /[^\s()=<>!~]*$/.exec(text)?.[0] ?? "";
  const before = text.slice(0, text.length - word.length).trimEnd();
  const compared = /([^\s()=<>!~"']+)\s*(==|=|!=|<=|>=|<|>)$/.exec(before);
  if (compared) return valuesOf(compared[1] ?? "", word, rows);
  const names = new Set(fields.map((field) => field.name));
  const previous = /[^\s()=<>!~]+$/.exec(before)?.[0] ?? "";
  if (names.has(previous) && !word)
    return ["==", "!=", "=~", "=*", "<", ">", "and", "or"].map((one) => ({ text: one, what: WHAT[one] ?? "" }));
  if (!word) return [];
  return fields
    .filter((field) => field.name.startsWith(word) && field.name !== word)
    .slice(0, SHOWN)
    .map((field) => ({ text: field.name, what: field.doc }));
}

const WHAT: Readonly<Record<string, string>> = {
  "==": "equals", "!=": "differs from", "=~": "matches a regular expression", "=*": "matches a pattern of * and ?",
  "<": "is less than", ">": "is more than", and: "both", or: "one of both",
};

function valuesOf(field: string, word: string, rows: readonly AnyRow[]): Choice[] {
  const counts = new Map<string, number>();
  for (const row of rows)
    for (const one of [row[field]].flat())
      if (one !== undefined && one !== null && String(one).startsWith(word)) counts.set(String(one), (counts.get(String(one)) ?? 0) + 1);
  return [...counts]
    .sort((one, other) => other[1] - one[1])
    .slice(0, SHOWN)
    .map(([value, count]) => ({ text: /[\s()=<>!"']/.test(value) ? JSON.stringify(value) : value, what: `${count}` }));
}
