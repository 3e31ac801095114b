/** Small parts that pages share. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { mayOpen } from "../core/access";
import { href } from "../core/route";
import { duration, short, size } from "../core/format";
import { useStore } from "../core/store";
import { t } from "../texts/en";

const MIB = 1024 * 1024;
const ICONS: Readonly<Record<string, string>> = {
  overview: "M3 3h6v8H3zM11 3h6v5h-6zM11 10h6v7h-6zM3 13h6v4H3z",
  map: "M10 2l6.5 3.8v7.6L10 17.2l-6.5-3.8V5.8zM3.5 5.8L10 9.6l6.5-3.8M10 9.6v7.6",
  whatif: "M10 3a7 7 0 100 14 7 7 0 000-14zM8 8c0-2.700 4-2.700 4 0 0 1.600-2 1.600-2 3.200M10 14h.01",
  cluster: "M10 2.500l6.500 3.700v7.600L10 17.500l-6.500-3.700V6.200zM10 7.500a2.500 2.500 0 100 5 2.500 2.500 0 000-5z",
  instances: "M3 4h14v9H3zM7 17h6M10 13v4",
  nodes: "M3 3.5h14v5H3zM3 11.5h14v5H3zM6 6h.01M6 14h.01",
  groups: "M3 3h6v6H3zM11 3h6v6h-6zM3 11h6v6H3zM11 11h6v6h-6z",
  networks: "M10 3v5M4 17v-4h12v4M10 8v5M8 3h4M2.500 17h3M14.500 17h3",
  jobs: "M4 5h2M4 10h2M4 15h2M8.500 5H17M8.500 10H17M8.500 15H17",
  os: "M10 3a7 7 0 100 14 7 7 0 000-14zM10 8.500a1.500 1.500 0 100 3 1.500 1.500 0 000-3z",
  images: "M5 2.500h7l3.500 3.500v11.500H5zM12 2.500v3.500h3.500M7.500 14l2-3 1.500 2 1-1 1.500 2z",
  storage: "M4 5.500c0-3 12-3 12 0v9c0 3-12 3-12 0zM4 5.500c0 3 12 3 12 0M4 10c0 3 12 3 12 0",
  exports: "M3 4h14v3H3zM4.500 7v9.500h11V7M8 10h4",
  locks: "M5 9h10v8H5zM7 9V6.500a3 3 0 016 0V9",
  filters: "M3 4h14l-5.500 6.500V17l-3-2v-4.500z",
  audit: "M5 2.500h10v15H5zM7.500 6.500h5M7.500 10h5M7.500 13.500h3",
  users: "M10 10a3.200 3.200 0 100-6.400A3.200 3.200 0 0010 10zM3.500 17c.5-3.500 3-5 6.500-5s6 1.500 6.500 5",
  search: "M9 3.500a5.500 5.500 0 100 11 5.500 5.500 0 000-11zM13 13l4 4",
  menu: "M3 5h14M3 10h14M3 15h14",
  close: "M5 5l10 10M15 5L5 15",
  columns: "M3 4h14v12H3zM8 4v12M12.500 4v12",
  down: "M10 3v10M6 9.500l4 4 4-4M4 17h12",
  arrow: "M3 10h13M12 6l4 4-4 4",
  more: "M5 10h.01M10 10h.01M15 10h.01",
  plus: "M10 4v12M4 10h12",
  sun: "M10 6.500a3.500 3.500 0 100 7 3.500 3.500 0 000-7zM10 2v1.500M10 16.500V18M2 10h1.500M16.500 10H18M4.300 4.300l1.100 1.100M14.600 14.600l1.100 1.100M4.300 15.700l1.100-1.100M14.600 5.400l1.100-1.100",
  user: "M10 10a3.200 3.200 0 100-6.400A3.200 3.200 0 0010 10zM3.500 17c.5-3.500 3-5 6.500-5s6 1.500 6.500 5",
  check: "M4 10.500l4 4 8-9",
  alert: "M10 3l8 14H2zM10 8v4M10 14.500h.01",
  terminal: "M3 4h14v12H3zM6 8l2.500 2L6 12M10.500 12.500h3.500",
};

export function Icon({ name, label }: { name: string; label?: string }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" {...(label ? { role: "img", "aria-label": label } : { "aria-hidden": true })}>
      <path d={ICONS[name] ?? ICONS["more"] ?? ""} />
    </svg>
  );
}

export type Tone = "good" | "warn" | "bad" | "info" | "quiet";

export function Badge({ tone, children, title }: { tone: Tone; children: ComponentChildren; title?: string }) {
  return (
    <span class={`badge ${tone}`} {...(title ? { title } : {})}>
      <i aria-hidden="true" />
      {children}
    </span>
  );
}

const INSTANCE_TONES: Readonly<Record<string, Tone>> = {
  running: "good", ADMIN_down: "quiet", ADMIN_offline: "quiet", USER_down: "quiet",
};

export function instanceTone(status: unknown): Tone {
  return INSTANCE_TONES[String(status)] ?? "bad";
}

export function InstanceStatus({ status }: { status: unknown }) {
  if (status === undefined) return <Badge tone="warn">{t.status["unknown"]}</Badge>;
  return (
    <Badge tone={instanceTone(status)} title={String(status)}>
      {t.status[String(status)] ?? String(status)}
    </Badge>
  );
}

const JOB_TONES: Readonly<Record<string, Tone>> = {
  success: "good", error: "bad", canceled: "quiet", running: "info", waiting: "warn", canceling: "warn", queued: "quiet",
};

export function JobStatus({ status }: { status: unknown }) {
  return <Badge tone={JOB_TONES[String(status)] ?? "quiet"}>{t.job[String(status)] ?? String(status ?? "–")}</Badge>;
}

/** How far a job is, with the time left, while it reports that. */
export function JobProgress({ id }: { id: string }) {
  const progress = useStore((state) => state.progress.get(id));
  if (!progress) return null;
  const { percent, text, rate, leftS } = progress;
  const said = [
    text, percent === null ? "" : `${percent.toFixed(1)} %`, rate === null ? "" : `${size(rate / MIB)}/s`,
    leftS === null ? "" : `${duration(leftS)} ${t.jobs.left}`,
  ].filter(Boolean).join(" · ");
  return (
    <span class="progress">
      {percent !== null && <Meter label={text} whole={100} parts={[{ name: text, value: percent, tone: "used" }]} />}
      <small>{said}</small>
    </span>
  );
}

const ROLE_TONES: Readonly<Record<string, Tone>> = { M: "info", C: "good", R: "good", D: "warn", O: "bad" };

export function NodeRole({ role }: { role: unknown }) {
  return <Badge tone={ROLE_TONES[String(role)] ?? "quiet"}>{t.role[String(role)] ?? String(role ?? "–")}</Badge>;
}

const PAGES: Readonly<Record<string, string>> = {
  instance: "instances", node: "nodes", group: "groups", network: "networks", job: "jobs",
};

/** A link to an object's page, for users who may open it; long names are shortened to their first label. */
export function ObjectLink({ kind, name, whole }: { kind: string; name: unknown; whole?: boolean }) {
  const page = PAGES[kind] ?? kind;
  const isOpen = useStore((state) => mayOpen(state.session, page, true));
  if (name === undefined || name === null || name === "") return <span class="faint">–</span>;
  const text = whole ? String(name) : short(name);
  return isOpen ? <a href={href([page, String(name)])} title={String(name)}>{text}</a> : <span title={String(name)}>{text}</span>;
}

/** A bar with parts of a whole; its text says the same. */
export function Meter({ parts, whole, label }: {
  parts: readonly { value: number; tone: string; name: string }[]; whole: number; label: string;
}) {
  const text = parts.map((part) => `${part.name} ${whole ? Math.round((100 * part.value) / whole) : 0} %`).join(", ");
  return (
    <div class="meter" role="img" aria-label={`${label}: ${text}`} title={text}>
      {parts.map((part) => (
        <span class={part.tone} style={{ width: `${whole ? Math.min(100, (100 * part.value) / whole) : 0}%` }} />
      ))}
    </div>
  );
}

export function Empty({ title, children, icon = "instances" }: { title: string; children?: ComponentChildren; icon?: string }) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      <p>{children}</p>
    </div>
  );
}

export function Problem({ text, onAgain }: { text: string; onAgain?: () => void }) {
  return (
    <div class="problem" role="alert">
      <Icon name="alert" />
      <div>
        <strong>{t.error.title}</strong>
        <p>{text}</p>
        {onAgain && <button onClick={onAgain}>{t.error.again}</button>}
      </div>
    </div>
  );
}

/** A line to copy. */
export function CommandLine({ label, line }: { label: string; line: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard.writeText(line).then(() => setCopied(true));
  return (
    <div class="command">
      <span class="command-label">{label}</span>
      <code tabIndex={0}>{line}</code>
      <button class="small" onClick={copy} type="button">{copied ? t.acts.copied : t.acts.copy}</button>
    </div>
  );
}

/** Return the time, again every `seconds`, so that "3 s ago" stays true. */
export function useNow(seconds = 10): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
  return now;
}

export function PageTitle({ text, children }: { text: string; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${text} · ${t.product}`;
  }, [text]);
  return (
    <header class="page-head">
      <h1>{text}</h1>
      <div class="page-actions">{children}</div>
    </header>
  );
}
