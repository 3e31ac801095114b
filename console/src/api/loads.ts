/** Busy processors of all nodes. Load has no events, so it is requested again while the page is visible. */
import { useEffect, useState } from "preact/hooks";
import { query } from "./queries";

const AGAIN_MS = 10_000;

/** Return the busy processors by node; null until they are known, or if they are not wanted. */
export function useLoads(isWanted: boolean): ReadonlyMap<string, number> | null {
  const [found, setFound] = useState<ReadonlyMap<string, number> | null>(null);
  useEffect(() => {
    if (!isWanted) return undefined;
    let isOver = false;
    let timer = 0;
    const ask = async (): Promise<void> => {
      // A node that does not answer now keeps its last colour until the next answer.
      const rows = document.hidden ? null : await query("node", ["name", "usage.cpu"], null, true).catch(() => null);
      if (isOver) return;
      if (rows) setFound(new Map(rows.filter((row) => row["usage.cpu"] !== undefined).map((row) => [String(row["name"]), Number(row["usage.cpu"])])));
      timer = window.setTimeout(() => void ask(), AGAIN_MS);
    };
    void ask();
    return () => { isOver = true; clearTimeout(timer); };
  }, [isWanted]);
  return isWanted ? found : null;
}
