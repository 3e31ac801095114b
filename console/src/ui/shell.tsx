/** The frame of all pages: navigation, the state of the connection, notices, and the user's menu. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { signOut } from "../api/sync";
import { reason } from "../api/client";
import { mayOpen } from "../core/access";
import { href, usePlace } from "../core/route";
import { FINAL } from "../core/reducer";
import { store, useStore } from "../core/store";
import { t } from "../texts/en";
import { Badge, Icon } from "./bits";
import { Palette } from "./palette";
import { setTheme, theme } from "./theme";
import type { Theme } from "./theme";
import { NAVIGATION } from "../pages/pages";

const NARROW = "(max-width: 860px)";
const RESUMED_SHOWN_MS = 4000;

/** Whether the window is too narrow to show the menu beside the page. */
function useNarrow(): boolean {
  const [isNarrow, setNarrow] = useState(matchMedia(NARROW).matches);
  useEffect(() => {
    const width = matchMedia(NARROW);
    const changed = () => setNarrow(width.matches);
    width.addEventListener("change", changed);
    return () => width.removeEventListener("change", changed);
  }, []);
  return isNarrow;
}

export function Shell({ children }: { children: ComponentChildren }) {
  const { path } = usePlace();
  const [isOpen, setOpen] = useState(false);
  const [isPalette, setPalette] = useState(false);
  const isNarrow = useNarrow();
  const page = path[0] ?? "overview";
  const running = useStore((state) => countRunning(state.tables.job.rows));
  const session = useStore((state) => state.session);
  useEffect(() => setOpen(false), [path.join("/")]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setPalette(true);
      } else if (event.key === "Escape") setOpen(false);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return (
    <div class={`shell${isOpen ? " nav-open" : ""}`}>
      <a class="skip" href="#main">{t.skip}</a>
      <header class="top">
        <button class="plain only-narrow" aria-label={isOpen ? t.nav.collapse : t.nav.menu} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          <Icon name={isOpen ? "close" : "menu"} />
        </button>
        <a class="brand" href={href([])}><span class="logo" aria-hidden="true" /><ClusterName /></a>
        <button class="search" onClick={() => setPalette(true)}>
          <Icon name="search" /><span>{t.search.open}</span><kbd aria-hidden="true">Ctrl K</kbd>
        </button>
        <Live />
        <UserMenu />
      </header>
      <nav class="side" aria-label={t.nav.label} {...(isNarrow && !isOpen ? { inert: true } : {})}>
        {NAVIGATION.map((group) => (
          <section key={group.title}>
            {group.title && <h2>{group.title}</h2>}
            <ul>
              {group.pages
                .filter((one) => mayOpen(session, one.id, false))
                .map((one) => (
                  <li key={one.id}>
                    <a href={href(one.id === "overview" ? [] : [one.id])} aria-current={page === one.id ? "page" : undefined}>
                      <Icon name={one.id} />{one.title}
                      {one.id === "jobs" && running > 0 && <span class="pill">{running}</span>}
                    </a>
                  </li>
                ))}
            </ul>
          </section>
        ))}
      </nav>
      {isOpen && <div class="veil" onClick={() => setOpen(false)} />}
      <main id="main" tabIndex={-1}>
        <Banner />
        {children}
      </main>
      <Notices />
      {isPalette && <Palette onClose={() => setPalette(false)} />}
    </div>
  );
}

function countRunning(rows: ReadonlyMap<string, Readonly<Record<string, unknown>>>): number {
  let count = 0;
  for (const row of rows.values()) if (row["status"] !== undefined && !FINAL.has(String(row["status"]))) count += 1;
  return count;
}

function ClusterName() {
  const name = useStore((state) => state.cluster?.["name"]);
  return <span class="cluster-name">{name ? String(name) : t.product}</span>;
}

function Live() {
  const link = useStore((state) => state.link);
  const tone = link === "live" ? "good" : link === "starting" || link === "closed" ? "quiet" : "warn";
  return <span class="live" role="status"><Badge tone={tone}>{t.link[link]}</Badge></span>;
}

/** Says that the page is not live, and, for a moment, that it is again. */
function Banner() {
  const link = useStore((state) => state.link);
  const resumed = useStore((state) => state.resumed);
  const [isNew, setNew] = useState(false);
  useEffect(() => {
    if (resumed === 0) return undefined;
    setNew(true);
    const timer = setTimeout(() => setNew(false), RESUMED_SHOWN_MS);
    return () => clearTimeout(timer);
  }, [resumed]);
  const text = link === "lost" ? t.link.lostWhat : link === "offline" ? t.link.offlineWhat : link === "closed" ? t.link.closedWhat : null;
  if (text) return <p class="banner warn" role="status"><Icon name="alert" />{text}</p>;
  if (isNew && link === "live") return <p class="banner good" role="status"><Icon name="check" />{t.link.resumed}</p>;
  return null;
}

function Notices() {
  const notices = useStore((state) => state.notices);
  return (
    <div class="notices" aria-live="polite">
      {notices.map((one) => <OneNotice key={one.id} {...one} />)}
    </div>
  );
}

const NOTICE_MS = 8000;

function OneNotice({ id, tone, text, job }: { id: number; tone: string; text: string; job?: number }) {
  const dismiss = () => store.dispatch({ type: "dismissed", id });
  useEffect(() => {
    if (tone === "bad") return undefined;
    const timer = setTimeout(dismiss, NOTICE_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class={`notice ${tone}`}>
      <Icon name={tone === "bad" ? "alert" : "check"} />
      <span>{job === undefined ? text : <a href={href(["jobs", job])}>{text}</a>}</span>
      <button class="plain" aria-label={t.acts.close} onClick={dismiss}><Icon name="close" /></button>
    </div>
  );
}

function UserMenu() {
  const session = useStore((state) => state.session);
  const [chosen, setChosen] = useState<Theme>(theme());
  const choose = (next: Theme) => { setTheme(next); setChosen(next); };
  const out = (everywhere: boolean) =>
    signOut(everywhere).catch((error: unknown) => store.dispatch({ type: "notice", tone: "bad", text: reason(error) }));
  return (
    <details class="menu user">
      <summary aria-label={session?.user}><Icon name="user" /></summary>
      <div class="menu-items">
        <p><strong>{session?.user}</strong><br /><small>{session?.rights.at(-1)}{session?.limited ? " · limited" : ""}</small></p>
        <label class="field"><span>{t.theme.label}</span>
          <select value={chosen} onChange={(event) => choose(event.currentTarget.value as Theme)}>
            {(["system", "light", "dark"] as const).map((one) => <option key={one} value={one}>{t.theme[one]}</option>)}
          </select>
        </label>
        <button onClick={() => void out(false)}>{t.signin.out}</button>
        <button onClick={() => void out(true)}>{t.signin.everywhere}</button>
      </div>
    </details>
  );
}

/** Close a menu when something else is clicked or its entry is chosen. */
addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll<HTMLDetailsElement>("details.menu[open]")) {
    const target = event.target as Element;
    if (!menu.contains(target) || target.closest(".menu-items button, .menu-items a")) menu.open = false;
  }
});
addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll<HTMLDetailsElement>("details.menu[open]")) menu.open = false;
});
