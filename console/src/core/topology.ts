/** The cluster as one picture: which nodes are in which group and rack, and what colour each has. Pure. */
import { compare, percent } from "./format";
import type { AnyRow } from "./state";

export const COLOURS = ["load", "memory", "cpus", "status", "slack", "impact"] as const;
export type Colour = (typeof COLOURS)[number];
export type Tint = "low" | "mid" | "warn" | "bad" | "off";
/** What the picture shows in each group: only how its nodes are, its nodes, or also their instances. */
export const ZOOMS = ["groups", "nodes", "instances"] as const;
export type Zoom = (typeof ZOOMS)[number];

/** A node with the instances that run on it, in the order of their names. */
export interface Tile {
  readonly node: AnyRow;
  readonly name: string;
  readonly instances: readonly AnyRow[];
}

export interface Rack {
  /** Empty: the nodes have no tag of a rack. */
  readonly name: string;
  readonly tiles: readonly Tile[];
}

/** How many instances of a node have which outcome if it fails; null: it has N+1 violations, and is not counted. */
export interface Outcomes {
  readonly name: string;
  readonly failover: number | null;
  readonly restart: number | null;
  readonly degraded: number;
  readonly unplaced: number | null;
  readonly lost: number;
}

/** What an instance of a failed node meets, as `GET /2/nodes/NAME/impact` says. */
export interface Fate {
  readonly name: string;
  readonly role: string;
  readonly to: string | null;
  readonly how: string;
  readonly why: string;
}

/** What the colours need beyond the rows of nodes and instances; null: not known (yet). */
export interface Knowledge {
  /** Busy processors by node. */
  readonly busy: ReadonlyMap<string, number> | null;
  /** Nodes that the cluster cannot lose. */
  readonly weak: ReadonlySet<string> | null;
  readonly outcomes: ReadonlyMap<string, Outcomes> | null;
}

const RACK = "rack:";
const WORST_FIRST: readonly Tint[] = ["bad", "warn", "mid", "low", "off"];
const WARN = 75;
const BAD = 90;
const MID = 40;
/** More nodes than this are small squares at first, so that the cluster is on one screen; still more are only counted. */
const SMALL_FROM = 60;
const COUNTED_FROM = 2000;

/** The rack of a node, from a tag such as `rack:a12`. */
export function rackOf(node: AnyRow): string {
  const tag = ((node["tags"] as string[] | undefined) ?? []).find((one) => one.startsWith(RACK));
  return tag?.slice(RACK.length) ?? "";
}

/** The racks by group. Tiles that have not changed are those of `before`, so that they are not drawn again. */
export function groupsOf(
  nodes: Iterable<AnyRow>, instances: Iterable<AnyRow>, before: ReadonlyMap<string, Tile> = new Map(),
): Map<string, Rack[]> {
  const byNode = new Map<string, AnyRow[]>();
  for (const row of instances) added(byNode, String(row["pnode"]), row);
  const groups = new Map<string, Map<string, Tile[]>>();
  for (const node of [...nodes].sort(byName)) {
    const group = String(node["group"] ?? "–");
    const racks = groups.get(group) ?? new Map<string, Tile[]>();
    groups.set(group, racks);
    const name = String(node["name"]);
    added(racks, rackOf(node), tileOf(node, name, byNode.get(name) ?? [], before.get(name)));
  }
  const inOrder = [...groups].sort(([one], [other]) => compare(one, other));
  return new Map(inOrder.map(([group, racks]) => [
    group, [...racks].sort(([one], [other]) => compare(one, other)).map(([name, tiles]) => ({ name, tiles })),
  ]));
}

function byName(one: AnyRow, other: AnyRow): number {
  return compare(one["name"], other["name"]);
}

function added<T>(all: Map<string, T[]>, key: string, value: T): void {
  const found = all.get(key);
  if (found) found.push(value);
  else all.set(key, [value]);
}

/** The order of the rows is not known, so it is compared as a set: most tiles have not changed, and need no sorting. */
function tileOf(node: AnyRow, name: string, instances: AnyRow[], before: Tile | undefined): Tile {
  if (before?.node === node && before.instances.length === instances.length) {
    const known = new Set(before.instances);
    if (instances.every((one) => known.has(one))) return before;
  }
  return { node, name, instances: instances.sort(byName) };
}

/** How full or busy a node is, in percent, by what the map is coloured by; null: unknown, or it does not apply. */
export function loadOf({ node, name, instances }: Tile, colour: Colour, { busy }: Knowledge): number | null {
  const processors = Number(node["ctotal"] ?? 0);
  if (colour === "memory") {
    const whole = Number(node["mtotal"] ?? 0);
    return whole ? percent(whole - Number(node["mfree"] ?? 0), whole) : null;
  }
  if (colour === "load") {
    const used = busy?.get(name);
    return used === undefined || !processors ? null : percent(used, processors);
  }
  if (colour !== "cpus" || !processors) return null;
  return percent(instances.reduce((all, one) => all + (one["admin_state"] === "up" ? Number(one["be/vcpus"] ?? 0) : 0), 0), processors);
}

/** How many instances would not run again; null: some, but not counted. */
export function notRestarted(found: Outcomes): number | null {
  return found.unplaced === null ? null : found.unplaced + found.lost;
}

function tintOfImpact(found: Outcomes | undefined): Tint {
  if (!found) return "off";
  if (notRestarted(found) !== 0) return "bad";
  if (found.failover || found.restart) return "mid";
  return "low";
}

export function tintOf(tile: Tile, colour: Colour, known: Knowledge, isBad: (status: unknown) => boolean): Tint {
  if (tile.node["offline"]) return "off";
  switch (colour) {
    case "slack":
      return known.weak === null ? "off" : known.weak.has(tile.name) ? "bad" : "low";
    case "status":
      return tile.instances.some((one) => isBad(one["status"])) ? "bad" : "low";
    case "impact":
      return tintOfImpact(known.outcomes?.get(tile.name));
    default: {
      const load = loadOf(tile, colour, known);
      return load === null ? "off" : load >= BAD ? "bad" : load >= WARN ? "warn" : load >= MID ? "mid" : "low";
    }
  }
}

/** The zoom that shows a whole cluster of so many nodes at once. */
export function zoomFor(nodes: number): Zoom {
  return nodes > COUNTED_FROM ? "groups" : nodes > SMALL_FROM ? "nodes" : "instances";
}

/** How many tiles have each tint, the worst first. */
export function sharesOf(tints: Iterable<Tint>): [Tint, number][] {
  const found = new Map<Tint, number>(WORST_FIRST.map((one) => [one, 0]));
  for (const tint of tints) found.set(tint, (found.get(tint) ?? 0) + 1);
  return [...found].filter(([, count]) => count > 0);
}

/** How many instances each other node would get if a node failed. */
export function arrivals(fates: readonly Fate[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const { to } of fates) if (to !== null) found.set(to, (found.get(to) ?? 0) + 1);
  return found;
}

/** How many instances have which outcome, the most frequent first. */
export function tally(fates: readonly Fate[]): [string, number][] {
  const found = new Map<string, number>();
  for (const { how } of fates) found.set(how, (found.get(how) ?? 0) + 1);
  return [...found].sort(([, one], [, other]) => other - one);
}
