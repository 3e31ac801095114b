/** The address bar is where the page's position is: path and parameters, below /ui/. */
import { useEffect, useReducer } from "preact/hooks";

export interface Place {
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

const BASE = "/ui/";
const listeners = new Set<() => void>();

export function placeOf(location: { pathname: string; search: string }): Place {
  const rest = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length) : "";
  return {
    path: rest.split("/").filter(Boolean).map(decodeURIComponent),
    query: new URLSearchParams(location.search),
  };
}

export function href(path: readonly (string | number)[], query?: Readonly<Record<string, string>>): string {
  const words = path.map((word) => encodeURIComponent(String(word))).join("/");
  const search = query ? new URLSearchParams(query).toString() : "";
  return BASE + words + (search ? `?${search}` : "");
}

export function go(to: string, how: "push" | "replace" = "push"): void {
  if (how === "push") history.pushState(null, "", to);
  else history.replaceState(null, "", to);
  for (const listener of [...listeners]) listener();
}

/** Change one parameter of the address; an empty value removes it. */
export function setParameter(name: string, value: string): void {
  const query = new URLSearchParams(location.search);
  if (value) query.set(name, value);
  else query.delete(name);
  const search = query.toString();
  go(location.pathname + (search ? `?${search}` : ""), "replace");
}

/** Let links of the page change the place without loading the page again. */
export function followLinks(): void {
  addEventListener("popstate", () => {
    for (const listener of [...listeners]) listener();
  });
  addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.("a[href]") as HTMLAnchorElement | null;
    if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    if (link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || !url.pathname.startsWith(BASE)) return;
    event.preventDefault();
    go(url.pathname + url.search);
    document.getElementById("main")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  });
}

export function usePlace(): Place {
  const [, render] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    const listener = () => render(0);
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
    };
  }, []);
  return placeOf(location);
}
