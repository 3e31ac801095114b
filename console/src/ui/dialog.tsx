/** A modal dialog, and the confirmation of an action. */
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { submit } from "../actions/actions";
import type { Act } from "../actions/actions";
import { commandOf, curlOf } from "../actions/commands";
import { reason } from "../api/client";
import { may } from "../core/access";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { CommandLine, Icon, Problem } from "./bits";

export function Dialog({ title, onClose, children, wide }: {
  title: string; onClose: () => void; children: ComponentChildren; wide?: boolean;
}) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Before the next key of a person who types on: an effect would wait until the page is drawn.
  useLayoutEffect(() => {
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
      {isOpen && <ConfirmAct act={act} name={name} onClose={() => setOpen(false)} />}
    </>
  );
}

/** Explain an action for one object (an empty name: the cluster), and do it after the confirmation. */
export function ConfirmAct({ act, name, onClose }: { act: Act; name: string; onClose: () => void }) {
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const isReady = !act.isDestructive || typed === name;
  const run = async (event: Event) => {
    event.preventDefault();
    if (!isReady || isBusy) return;
    setBusy(true);
    try {
      await submit(act.request(name));
      onClose();
    } catch (error) {
      setProblem(reason(error));
      setBusy(false);
    }
  };
  const title = name ? `${act.label}: ${name}` : act.label;
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(event) => void run(event)}>
        <p>{act.explanation}</p>
        {act.isDestructive && (
          <label class="field">
            <span>{t.acts.typeName}: <code>{name}</code></span>
            <input autocomplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        )}
        {problem && <Problem text={problem} />}
        <AsCommand command={commandOf(act.operation, act.values(name))} curl={curlOf(act.request(name), location.origin)} />
        <footer>
          <button type="button" onClick={onClose}>{t.acts.cancel}</button>
          <button class={act.tone === "danger" ? "danger" : "primary"} disabled={!isReady || isBusy}>{act.label}</button>
        </footer>
      </form>
    </Dialog>
  );
}
