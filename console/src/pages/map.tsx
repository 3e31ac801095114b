/** The whole cluster as one picture: groups, their nodes, and a square for each instance. */
import { useMemo, useState } from "preact/hooks";
import { may } from "../actions/actions";
import { useAnswer, useChanges } from "../api/objects";
import { compare, percent, short, size } from "../core/format";
import { setParameter, usePlace } from "../core/route";
import type { AnyRow } from "../core/state";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { Badge, InstanceStatus, instanceTone, NodeRole, ObjectLink, PageTitle, Problem } from "../ui/bits";
import type { Tone } from "../ui/bits";
import { Loading } from "../ui/listpage";
import { MoveDialog } from "../ui/move";
import { useTable } from "../ui/rows";
import type { Survey } from "./health";

const COLOURS = ["memory", "cpus", "status", "slack"] as const;
type Colour = (typeof COLOURS)[number];

const SURVEY_MS = 5000;
const SQUARE = 9;
const STEP = 11;
const PER_LINE = 14;
const WARN = 75;
const BAD = 90;

interface Tile {
  readonly node: AnyRow;
  readonly name: string;
  readonly instances: readonly AnyRow[];
}

/** The nodes by group and rack, each with its instances in the order of their names. */
export function tilesOf(nodes: Iterable<AnyRow>, instances: Iterable<AnyRow>): Map<string, Tile[]> {
  const byNode = new Map<string, AnyRow[]>();
  for (const row of instances) {
    const node = String(row["pnode"]);
    const found = byNode.get(node);
    if (found) found.push(row);
    else byNode.set(node, [row]);
  }
  const groups = new Map<string, Tile[]>();
  const inOrder = [...nodes].sort((one, other) => compare(rackOf(one), rackOf(other)) || compare(one["name"], other["name"]));
  for (const node of inOrder) {
    const name = String(node["name"]);
    const own = (byNode.get(name) ?? []).sort((one, other) => compare(one["name"], other["name"]));
    const group = String(node["group"] ?? "–");
    const tiles = groups.get(group) ?? [];
    tiles.push({ node, name, instances: own });
    groups.set(group, tiles);
  }
  return new Map([...groups].sort(([one], [other]) => compare(one, other)));
}

/** The rack of a node, from a tag such as `rack:a12`. */
export function rackOf(node: AnyRow): string {
  const tag = ((node["tags"] as string[] | undefined) ?? []).find((one) => one.startsWith("rack:"));
  return tag?.slice("rack:".length) ?? "";
}

/** How full a node is, in percent, by what the map is coloured by; null: it does not apply. */
export function loadOf(tile: Tile, colour: Colour): number | null {
  const { node, instances } = tile;
  if (colour === "memory") return node["mtotal"] ? percent(Number(node["mtotal"]) - Number(node["mfree"] ?? 0), Number(node["mtotal"])) : null;
  if (colour === "cpus") {
    const sum = instances.reduce((all, one) => all + (one["admin_state"] === "up" ? Number(one["be/vcpus"] ?? 0) : 0), 0);
    return node["ctotal"] ? percent(sum, Number(node["ctotal"])) : null;
  }
  return null;
}

function toneOf(tile: Tile, colour: Colour, weak: ReadonlySet<string>): string {
  if (tile.node["offline"]) return "off";
  if (colour === "slack") return weak.has(tile.name) ? "bad" : "low";
  if (colour === "status") return tile.instances.some((one) => instanceTone(one["status"]) === "bad") ? "bad" : "low";
  const load = loadOf(tile, colour);
  if (load === null) return "off";
  return load >= BAD ? "bad" : load >= WARN ? "warn" : load >= 40 ? "mid" : "low";
}

export function Map_() {
  const nodes = useTable("node");
  const instances = useTable("instance");
  const { query } = usePlace();
  const colour = COLOURS.find((one) => one === query.get("by")) ?? "memory";
  const chosen = query.get("node");
  const session = useStore((state) => state.session);
  const [move, setMove] = useState<{ row: AnyRow; target: string } | null>(null);
  const changes = useChanges(SURVEY_MS);
  const survey = useAnswer<Survey>(colour === "slack" && may(session, "get_overview") ? { method: "GET", path: "/2/overview" } : null, changes).value;
  const weak = useMemo(() => new Set((survey?.groups ?? []).flatMap((one) => one.n1_violations)), [survey]);
  const groups = useMemo(() => tilesOf(nodes.rows.values(), instances.rows.values()), [nodes.rows, instances.rows]);
  if (!nodes.isLoaded || !instances.isLoaded) return <div class="page"><PageTitle text={t.nav.map} /><Loading /></div>;
  const mayMove = may(session, "put_instances_name_migrate");
  const drop = (name: string, target: string) => {
    const row = instances.rows.get(name);
    if (row && row["pnode"] !== target && mayMove) setMove({ row, target });
  };
  const selected = [...groups.values()].flat().find((tile) => tile.name === chosen);
  return (
    <div class="page">
      <PageTitle text={t.nav.map}>
        <div class="chips" role="group" aria-label={t.map.colour}>
          {COLOURS.map((one) => <button key={one} class="chip" aria-pressed={colour === one} onClick={() => setParameter("by", one)}>{t.map.by[one]}</button>)}
        </div>
      </PageTitle>
      <div class={selected ? "with-panel" : ""}>
        <div class="groups">
          {[...groups].map(([group, tiles]) => (
            <section class="card" key={group} aria-label={`${t.map.group} ${group}`}>
              <header><h3><ObjectLink kind="group" name={group} whole /></h3><small>{tiles.length} {t.nodes.title.toLowerCase()}</small></header>
              <div class="tiles">
                {tiles.map((tile) => (
                  <NodeTile key={tile.name} tile={tile} tone={toneOf(tile, colour, weak)} colour={colour} isChosen={tile.name === chosen} onChoose={() => setParameter("node", tile.name === chosen ? "" : tile.name)} onDrop={(name) => drop(name, tile.name)} />
                ))}
              </div>
            </section>
          ))}
          <p class="faint">{mayMove ? t.map.hint : t.map.readOnly}</p>
        </div>
        {selected && <NodePanel tile={selected} mayMove={mayMove} targets={[...nodes.rows.keys()]} onMove={drop} />}
      </div>
      {move && <MoveDialog row={move.row} target={move.target} onClose={() => setMove(null)} />}
    </div>
  );
}

function NodeTile({ tile, tone, colour, isChosen, onChoose, onDrop }: {
  tile: Tile; tone: string; colour: Colour; isChosen: boolean; onChoose: () => void; onDrop: (name: string) => void;
}) {
  const [isOver, setOver] = useState(false);
  const load = loadOf(tile, colour);
  const paths = useMemo(() => squares(tile.instances), [tile.instances]);
  const lines = Math.max(1, Math.ceil(tile.instances.length / PER_LINE));
  const label = `${tile.name}, ${t.role[String(tile.node["role"])] ?? ""}, ${tile.instances.length} ${t.instances.title.toLowerCase()}${load === null ? "" : `, ${t.map.by[colour]} ${load} %`}`;
  return (
    <button
      class={`tile ${tone}${isOver ? " over" : ""}`} aria-pressed={isChosen} title={label} onClick={onChoose}
      onDragOver={(event) => { if (event.dataTransfer?.types.includes("text/x-instance")) { event.preventDefault(); setOver(true); } }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => { event.preventDefault(); setOver(false); onDrop(event.dataTransfer?.getData("text/x-instance") ?? ""); }}
    >
      <span class="tile-head"><strong>{short(tile.name)}</strong>{rackOf(tile.node) && <small>{rackOf(tile.node)}</small>}<span>{load === null ? "" : `${load} %`}</span></span>
      <svg class="squares" viewBox={`0 0 ${PER_LINE * STEP} ${lines * STEP}`} width={PER_LINE * STEP} height={lines * STEP} aria-hidden="true">
        {Object.entries(paths).map(([tone, path]) => <path key={tone} class={tone} d={path} />)}
      </svg>
    </button>
  );
}

/** One path for all squares of a tone: thousands of instances cost no more elements than a few. */
function squares(instances: readonly AnyRow[]): Record<string, string> {
  const found: Record<string, string> = {};
  instances.forEach((row, index) => {
    const tone = instanceTone(row["status"]);
    const [x, y] = [(index % PER_LINE) * STEP, Math.floor(index / PER_LINE) * STEP];
    found[tone] = `${found[tone] ?? ""}M${x} ${y}h${SQUARE}v${SQUARE}h-${SQUARE}z`;
  });
  return found;
}

interface Fate {
  readonly name: string;
  readonly role: string;
  readonly to: string | null;
  readonly how: string;
  readonly why: string;
}

const FATE_TONES: Readonly<Record<string, Tone>> = { failover: "good", restart: "good", degraded: "warn", unplaced: "bad", lost: "bad" };

/** Where each instance would go if the node failed, and why some would not. */
function Impact({ name, version }: { name: string; version: unknown }) {
  const session = useStore((state) => state.session);
  const answer = useAnswer<{ instances: Fate[] }>(may(session, "get_nodes_name_impact") ? { method: "GET", path: `/2/nodes/${name}/impact` } : null, version);
  if (!answer.value && !answer.problem) return null;
  return (
    <section class="card" aria-live="polite">
      <header><h3>{t.map.impact}</h3></header>
      {answer.problem && <Problem text={answer.problem} onAgain={answer.again} />}
      {answer.value?.instances.length === 0 && <p class="faint">{t.map.noImpact}</p>}
      <ul class="lines">
        {answer.value?.instances.slice(0, 100).map((one) => (
          <li key={one.name + one.role}>
            <Badge tone={FATE_TONES[one.how] ?? "quiet"}>{t.map.fates[one.how] ?? one.how}</Badge>
            <span class="what"><ObjectLink kind="instance" name={one.name} />{one.why && <small>{one.why}</small>}</span>
            <small>{one.to && <>→ <ObjectLink kind="node" name={one.to} /></>}</small>
          </li>
        ))}
      </ul>
    </section>
  );
}

function NodePanel({ tile, mayMove, targets, onMove }: {
  tile: Tile; mayMove: boolean; targets: readonly string[]; onMove: (name: string, target: string) => void;
}) {
  const { node, name, instances } = tile;
  return (
    <aside>
      <section class="card">
        <header><h3><ObjectLink kind="node" name={name} whole /></h3><NodeRole role={node["role"]} /></header>
        <p class="faint">{size(node["mfree"] as number | undefined)} {t.overview.free} of {size(node["mtotal"] as number | undefined)}</p>
        <ul class="lines">
          {instances.slice(0, 100).map((row) => (
            <li
              key={String(row["name"])} draggable={mayMove} class={mayMove ? "draggable" : ""}
              onDragStart={(event) => { event.dataTransfer?.setData("text/x-instance", String(row["name"])); }}
            >
              <InstanceStatus status={row["status"]} />
              <span class="what"><ObjectLink kind="instance" name={row["name"]} /></span>
              {mayMove && (
                <select aria-label={`${t.map.move} ${String(row["name"])} ${t.map.to}`} value="" onChange={(event) => { onMove(String(row["name"]), event.currentTarget.value); event.currentTarget.value = ""; }}>
                  <option value="">{t.map.moveTo}</option>
                  {targets.filter((one) => one !== name).map((one) => <option key={one} value={one}>{short(one)}</option>)}
                </select>
              )}
            </li>
          ))}
        </ul>
        {instances.length === 0 && <p class="faint">{t.node.none}</p>}
      </section>
      <Impact name={name} version={node} />
    </aside>
  );
}
