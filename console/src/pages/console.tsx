/** The console of an instance in the page: serial or graphical, kept connected over migrations. */
import { useEffect, useRef, useState } from "preact/hooks";
import { useStore, store } from "../core/store";
import { href, usePlace } from "../core/route";
import { reason } from "../api/client";
import type { ConsoleState, Kind } from "../console/socket";
import type { Opened } from "../console/serial";
import { may } from "../core/access";
import { t } from "../texts/en";
import { Badge, InstanceStatus, PageTitle } from "../ui/bits";
import type { Tone } from "../ui/bits";
import { useTable } from "../ui/rows";

const TONES: Readonly<Record<ConsoleState, Tone>> = { connecting: "warn", open: "good", waiting: "warn", ended: "bad" };

/** Each console is a part of the page that is loaded when it is first used. */
async function load(kind: Kind) {
  return kind === "serial" ? (await import("../console/serial")).openSerial : (await import("../console/vnc")).openScreen;
}

export function Console({ name }: { name: string }) {
  const { query } = usePlace();
  const kind: Kind = query.get("kind") === "vnc" ? "vnc" : "serial";
  const row = useTable("instance").rows.get(name);
  const session = useStore((state) => state.session);
  const box = useRef<HTMLDivElement>(null);
  const opened = useRef<Opened | null>(null);
  const [state, setState] = useState<{ state: ConsoleState; text: string }>({ state: "connecting", text: "" });
  const mayOpen = may(session, "post_instances_name_console_ticket");
  useEffect(() => {
    const element = box.current;
    if (!element || !mayOpen) return undefined;
    let isOver = false;
    load(kind).then(
      (open) => { if (!isOver) opened.current = open(element, name, (next, text) => { if (!isOver) setState({ state: next, text }); }); },
      (error: unknown) => setState({ state: "ended", text: reason(error) }),
    );
    return () => {
      isOver = true;
      opened.current?.stop();
      opened.current = null;
      element.replaceChildren();
    };
  }, [name, kind, mayOpen]);
  const copy = () => {
    const text = opened.current?.copy() ?? "";
    if (text) void navigator.clipboard.writeText(text).then(() => store.dispatch({ type: "notice", tone: "good", text: t.acts.copied }));
  };
  const paste = () => void navigator.clipboard.readText().then((text) => { opened.current?.paste(text); opened.current?.focus(); }, () => undefined);
  return (
    <div class="page console-page">
      <PageTitle text={`${t.console.title}: ${name}`}>
        <Badge tone={TONES[state.state]}>{t.console[state.state]}</Badge>
        {row && <InstanceStatus status={row["status"]} />}
        <div class="chips" role="group" aria-label={t.console.kind}>
          <a class="button" aria-current={kind === "serial"} href={href(["console", name])}>{t.console.serial}</a>
          <a class="button" aria-current={kind === "vnc"} href={href(["console", name], { kind: "vnc" })}>{t.console.vnc}</a>
        </div>
        <button onClick={copy}>{t.acts.copy}</button>
        <button onClick={paste}>{t.console.paste}</button>
        <a class="button" href={href(["instances", name])}>{t.console.back}</a>
      </PageTitle>
      {state.text && <p class="banner warn" role="status">{state.text}</p>}
      {!mayOpen && <p class="banner warn">{t.console.mayNot}</p>}
      <div class={`screen ${kind}`} ref={box} role="region" aria-label={`${t.console.title} ${name}`} />
    </div>
  );
}
