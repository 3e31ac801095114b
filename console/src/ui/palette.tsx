/** The command palette: pages, objects and actions by a few letters. */
import { useMemo, useState } from "preact/hooks";
import { INSTANCE_ACTS, NODE_ACTS } from "../actions/actions";
import type { Act } from "../actions/actions";
import { may, mayOpen } from "../core/access";
import { go, href } from "../core/route";
import { useStore } from "../core/store";
import type { AnyRow } from "../core/state";
import { NAVIGATION } from "../pages/pages";
import { t } from "../texts/en";
import { Icon } from "./bits";
import { ConfirmAct, Dialog } from "./dialog";
import { useTable } from "./rows";

interface Entry {
  readonly id: string;
  readonly icon: string;
  readonly text: string;
  readonly what: string;
  readonly run: () => void;
}

const SHOWN = 12;

export function Palette({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [act, setAct] = useState<{ act: Act; name: string } | null>(null);
  const instances = useTable("instance").rows;
  const nodes = useTable("node").rows;
  const session = useStore((state) => state.session);
  const entries = useMemo(() => {
    const goTo = (path: string[]) => () => { go(href(path)); onClose(); };
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found: Entry[] = [];
    const isMatch = (candidate: string) => words.every((word) => candidate.toLowerCase().includes(word));
    for (const group of NAVIGATION)
      for (const page of group.pages)
        if (isMatch(page.title) && mayOpen(session, page.id, false))
          found.push({ id: page.id, icon: page.id, text: page.title, what: "", run: goTo(page.id === "overview" ? [] : [page.id]) });
    const objects = (rows: ReadonlyMap<string, AnyRow>, kind: string, acts: readonly Act[]) => {
      for (const [name, row] of rows) {
        if (found.length >= SHOWN * 3) return;
        if (isMatch(name)) found.push({ id: `${kind}/${name}`, icon: kind, text: name, what: kind.slice(0, -1), run: goTo([kind, name]) });
        for (const one of words.length > 1 ? acts : [])
          if (isMatch(`${one.label} ${name}`) && may(session, one.operation) && (one.fits?.(row) ?? true))
            found.push({ id: `${one.id}/${name}`, icon: kind, text: `${one.label}: ${name}`, what: "…", run: () => setAct({ act: one, name }) });
      }
    };
    if (words.length) {
      objects(instances, "instances", INSTANCE_ACTS);
      objects(nodes, "nodes", NODE_ACTS);
    }
    return found.slice(0, SHOWN);
  }, [text, instances, nodes, session]);
  if (act) return <ConfirmAct act={act.act} name={act.name} onClose={onClose} />;
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(entries.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(0, at - 1));
    else if (event.key === "Enter") entries[at]?.run();
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title={t.search.label} onClose={onClose}>
      <div class="palette">
        <input
          type="text" autofocus role="combobox" aria-label={t.search.open} placeholder={t.search.placeholder} aria-expanded="true"
          aria-controls="palette-list" aria-activedescendant={entries.length ? `palette-${at}` : undefined} autocomplete="off" spellcheck={false}
          value={text} onInput={(event) => { setText(event.currentTarget.value); setAt(0); }} onKeyDown={onKeyDown}
        />
        <ul id="palette-list" role="listbox" aria-label={t.search.label}>
          {entries.map((entry, index) => (
            <li key={entry.id} id={`palette-${index}`} role="option" aria-selected={index === at} onClick={entry.run} onMouseMove={() => setAt(index)}>
              <Icon name={entry.icon} /><span>{entry.text}</span><small>{entry.what}</small>
            </li>
          ))}
        </ul>
        {entries.length === 0 && <p class="faint">{t.search.none}</p>}
      </div>
    </Dialog>
  );
}
