/** Schedules of backups, and what they did: pure. */
import { compare } from "./format";

/** The backups of one instance by a schedule; times in seconds. */
export interface Run {
  readonly instance: string;
  readonly state: "old" | "failing" | "waiting" | "good";
  readonly last: number | null;
  readonly backup: string | null;
  readonly due: number | null;
  readonly running: boolean;
  readonly job: number | null;
  readonly failures: number;
  readonly error: string | null;
}

/** A schedule, as `GET /2/backup-schedules?bulk=1` returns it. */
export interface Schedule {
  readonly name: string;
  readonly calendar: string;
  readonly time_zone: string;
  readonly next: number | null;
  readonly all_instances: boolean;
  readonly instances: readonly string[];
  readonly instance_tags: readonly string[];
  readonly groups: readonly string[];
  readonly instance_count: number;
  readonly node: string | null;
  readonly target: string | null;
  readonly window: string | null;
  /** Numbers of backups that each rule keeps. */
  readonly keep_rules: Readonly<Record<string, number>>;
  readonly drill: string | null;
  readonly paused: boolean;
  readonly running: number;
  readonly failing: number;
  readonly old: number;
  readonly runs: readonly Run[];
}

const WORST = ["old", "failing", "waiting", "good"];

/** The schedules with problems first, then by name; in each, the runs in the same order. */
export function sortedSchedules(schedules: readonly Schedule[]): Schedule[] {
  const isBad = (one: Schedule) => Number(one.failing + one.old > 0);
  return schedules.map((one) => ({ ...one, runs: sortedRuns(one.runs) }))
    .sort((one, other) => isBad(other) - isBad(one) || compare(one.name, other.name));
}

function sortedRuns(runs: readonly Run[]): Run[] {
  return [...runs].sort((one, other) => WORST.indexOf(one.state) - WORST.indexOf(other.state) || compare(one.instance, other.instance));
}

/** The rules that keep backups, for example `daily 7, weekly 4`; empty: all are kept. */
export function keptBy(schedule: Schedule): string {
  return Object.entries(schedule.keep_rules).filter(([, count]) => count > 0).map(([rule, count]) => `${rule} ${count}`).join(", ");
}

/** What a schedule saves, in the order of its options. */
export function selectionOf(schedule: Schedule): readonly (readonly ["all" | "instances" | "tags" | "groups", readonly string[]])[] {
  if (schedule.all_instances) return [["all", []]];
  const parts = [["instances", schedule.instances], ["tags", schedule.instance_tags], ["groups", schedule.groups]] as const;
  return parts.filter(([, names]) => names.length > 0);
}
