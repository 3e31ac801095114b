/** A modal dialog, and the confirmation of an action. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { may, submit, submitAll } from "../actions/actions";
import type { Act } from "../actions/actions";
import { commandOf, curlOf } from "../actions/commands";
import { reason } from "../api/client";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { CommandLine, Icon, Problem } from "./bits";

export function Dialog({ title, onClose, children, wide }: {
  title: string; onClose: () => void; children: ComponentChildren; wide?: boolean;
}) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = box.current;
    const before = document.activeElement as HTMLElement | null;
    dialog?.showModal();
    return () => {
      dialog?.close();
      before?.focus?.();
    };
  }, []);
  return (
    <dialog
      ref={box} aria-labelledby={id} class={wide ? "wide" : ""}
      onCancel={(event) => { event.preventDefault(); onClose(); }}
      onClick={(event) => { if (event.target === box.current) onClose(); }}
    >
      <div class="dialog-body">
        <header>
          <h2 id={id}>{title}</h2>
          <button class="plain" aria-label={t.acts.close} onClick={onClose} type="button"><Icon name="close" /></button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

/** The lines that do the same elsewhere; closed at first. */
export function AsCommand({ command, curl }: { command: string | null; curl: string }) {
  return (
    <details class="as-command">
      <summary>{t.acts.asCommand}</summary>
      {command && <CommandLine label="gnt" line={command} />}
      <CommandLine label="curl" line={curl} />
    </details>
  );
}

/** A button for one action, if the user may. */
export function ActButton({ act, name, isSmall }: { act: Act; name: string; isSmall?: boolean }) {
  const session = useStore((state) => state.session);
  const [isOpen, setOpen] = useState(false);
  if (!may(session, act.operation)) return null;
  return (
    <>
      <button class={isSmall ? "small" : ""} onClick={() => setOpen(true)}>{act.label}</button>
      {isOpen && <ConfirmAct act={act} names={[name]} onClose={() => setOpen(false)} />}
    </>
  );
}

/** Explain an action, and do it after the confirmation. */
export function ConfirmAct({ act, names, onClose, onDone }: {
  act: Act; names: readonly string[]; onClose: () => void; onDone?: () => void;
}) {
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const first = names[0] ?? "";
  const word = names.length === 1 ? first : String(names.length);
  const isReady = !act.isDestructive || typed === word;
  const run = async (event: Event) => {
    event.preventDefault();
    if (!isReady || isBusy) return;
    setBusy(true);
    try {
      if (names.length === 1) await submit(act.request(first));
      else await submitAll(act, names);
      onClose();
      onDone?.();
    } catch (error) {
      setProblem(reason(error));
      setBusy(false);
    }
  };
  const about = names.length === 1 ? first : `${names.length} ${t.acts.objects}`;
  const title = about ? `${act.label}: ${about}` : act.label;
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(event) => void run(event)}>
        <p>{act.explanation}</p>
        {names.length > 1 && <p class="names">{names.slice(0, 12).join(", ")}{names.length > 12 ? " …" : ""}</p>}
        {act.isDestructive && (
          <label class="field">
            <span>{t.acts.typeName}: <code>{word}</code></span>
            <input autocomplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        )}
        {problem && <Problem text={problem} />}
        <AsCommand command={names.map((name) => commandOf(act.operation, act.values(name))).slice(0, 3).join("; ")} curl={curlOf(act.request(first), location.origin)} />
        <footer>
          <button type="button" onClick={onClose}>{t.acts.cancel}</button>
          <button class={act.tone === "danger" ? "danger" : "primary"} disabled={!isReady || isBusy}>{act.label}</button>
        </footer>
      </form>
    </Dialog>
  );
}
