/** A trial of an operation: a job that checks and changes nothing, and its result. */
import { useEffect, useState } from "preact/hooks";
import { reason, send } from "./client";
import type { Request } from "./client";
import { failureOf } from "../core/failure";
import type { AnyRow } from "../core/state";
import { FINAL } from "../core/reducer";

const WAIT_MS = 600;
const LOOK_MS = 150;
const LOOKS = 100;

export interface Trial {
  readonly isBusy: boolean;
  /** The check has ended without a problem. */
  readonly isGood: boolean;
  readonly result: unknown;
  readonly messages: readonly string[];
  readonly problem: string | null;
}

const NONE: Trial = { isBusy: false, isGood: false, result: null, messages: [], problem: null };

/** Run the request as a trial, shortly after it stops changing; null: no trial. */
export function useTrial(request: Request | null): Trial {
  const [trial, setTrial] = useState<Trial>(NONE);
  const key = request ? JSON.stringify(request) : "";
  useEffect(() => {
    if (!request) {
      setTrial(NONE);
      return undefined;
    }
    let isOver = false;
    setTrial((before) => ({ ...before, isBusy: true, isGood: false }));
    const timer = setTimeout(() => {
      tried(request).then(
        (found) => { if (!isOver) setTrial(found); },
        (error: unknown) => { if (!isOver) setTrial({ ...NONE, problem: reason(error) }); },
      );
    }, WAIT_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [key]);
  return trial;
}

/** Submit a request with `dry-run` or `dry_run` set, and wait for the end of its job. */
async function tried(request: Request): Promise<Trial> {
  const id = await send<number>(request);
  for (let look = 0; look < LOOKS; look += 1) {
    const job = await send<AnyRow>({ method: "GET", path: `/2/jobs/${id}` }, true);
    const [result] = (job["opresult"] as unknown[] | undefined) ?? [];
    if (FINAL.has(String(job["status"]))) {
      const logs = ((job["oplog"] as unknown[][][] | undefined) ?? []).flat();
      const messages = logs.map((entry) => String(entry[3]));
      if (job["status"] === "success") return { isBusy: false, isGood: true, result, messages, problem: null };
      return { ...NONE, messages, problem: failureOf(result) };
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
  return { ...NONE, problem: "The check takes long: see the page of jobs." };
}
