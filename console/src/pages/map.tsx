/** The whole cluster as one picture: groups, racks, their nodes, and a square for each instance. */
import { Component } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { may } from "../actions/actions";
import { useLoads } from "../api/loads";
import { useAnswer, useChanges } from "../api/objects";
import { plural, short, size } from "../core/format";
import { setParameter, usePlace } from "../core/route";
import type { AnyRow } from "../core/state";
import { useStore } from "../core/store";
import { arrivals, COLOURS, groupsOf, loadOf, notRestarted, rackOf, tally, tintOf } from "../core/topology";
import type { Colour, Fate, Knowledge, Outcomes, Tile, Tint } from "../core/topology";
import { t } from "../texts/en";
import { Badge, InstanceStatus, instanceTone, NodeRole, ObjectLink, PageTitle, Problem } from "../ui/bits";
import type { Tone } from "../ui/bits";
import { Loading } from "../ui/listpage";
import { MoveDialog } from "../ui/move";
import { useTable } from "../ui/rows";
import type { Survey } from "./health";

const SURVEY_MS = 5000;
/** Time that the pointer rests on a node before the page asks what its failure would mean. */
const REST_MS = 250;
const SQUARE = 9;
const STEP = 11;
const PER_LINE = 14;
const LIST_LIMIT = 100;
const DRAGGED = "text/x-instance";
const LEGEND: Readonly<Record<Colour, readonly Tint[]>> = {
  load: ["low", "mid", "warn", "bad", "off"], memory: ["low", "mid", "warn", "bad", "off"], cpus: ["low", "mid", "warn", "bad", "off"],
  status: ["low", "bad", "off"], slack: ["low", "bad", "off"], impact: ["low", "mid", "bad", "off"],
};
const isBadStatus = (status: unknown) => instanceTone(status) === "bad";

export function Map_() {
  const nodes = useTable("node");
  const instances = useTable("instance");
  const { query } = usePlace();
  const colour = COLOURS.find((one) => one === query.get("by")) ?? "memory";
  const chosen = query.get("node");
  const session = useStore((state) => state.session);
  const [move, setMove] = useState<{ row: AnyRow; target: string } | null>(null);
  const [pointed, setPointed] = useState<string | null>(null);
  const known = useKnowledge(colour);
  const before = useRef<ReadonlyMap<string, Tile>>(new Map());
  const groups = useMemo(() => groupsOf(nodes.rows.values(), instances.rows.values(), before.current), [nodes.rows, instances.rows]);
  const tiles = useMemo(() => new Map([...groups.values()].flat().flatMap((rack) => rack.tiles).map((tile) => [tile.name, tile])), [groups]);
  before.current = tiles;
  const selected = chosen ? tiles.get(chosen) : undefined;
  const shown = pointed ?? selected?.name ?? null;
  const fates = useFates(shown, shown ? nodes.rows.get(shown) : undefined);
  const coming = useMemo(() => arrivals(fates.value ?? []), [fates.value]);
  if (!nodes.isLoaded || !instances.isLoaded) return <div class="page"><PageTitle text={t.nav.map} /><Loading /></div>;
  const mayMove = may(session, "put_instances_name_migrate");
  const start = (name: string, target: string) => {
    const row = instances.rows.get(name);
    if (row && row["pnode"] !== target && mayMove) setMove({ row, target });
  };
  return (
    <div class="page">
      <PageTitle text={t.nav.map}>
        <div class="chips" role="group" aria-label={t.map.colour}>
          {COLOURS.map((one) => <button key={one} class="chip" aria-pressed={colour === one} onClick={() => setParameter("by", one)}>{t.map.by[one]}</button>)}
        </div>
      </PageTitle>
      <div class="legend">
        <ul aria-label={t.map.legend}>
          {LEGEND[colour].map((one) => <li key={one}><i class={one} aria-hidden="true" />{(t.map.tints[colour] as Record<string, string>)[one]}</li>)}
        </ul>
        <p class="faint">{mayMove ? t.map.hint : t.map.readOnly}</p>
      </div>
      <p class="said" aria-live="polite">{shown && fates.value ? spoken(shown, fates.value) : " "}</p>
      <div class={selected ? "with-panel" : ""}>
        <Picture onPoint={setPointed} onChoose={(name) => setParameter("node", name === chosen ? "" : name)} onDrop={start}>
          {[...groups].map(([group, racks]) => (
            <section class="card" key={group} aria-label={`${t.map.group} ${group}`}>
              <header><h3><ObjectLink kind="group" name={group} whole /></h3><small>{plural(racks.reduce((sum, one) => sum + one.tiles.length, 0), "node")}</small></header>
              <div class="racks">
                {racks.map((rack) => (
                  <div key={rack.name} class={rack.name ? "rack" : "rack unnamed"} {...(rack.name ? { role: "group", "aria-label": `${t.map.rack} ${rack.name}` } : {})}>
                    {rack.name && <h4>{t.map.rack} {rack.name}</h4>}
                    <div class="tiles">
                      {rack.tiles.map((tile) => (
                        <NodeTile
                          key={tile.name} tile={tile} tint={tintOf(tile, colour, known, isBadStatus)} value={valueOf(tile, colour, known)}
                          isChosen={tile.name === chosen} isFailing={tile.name === shown} arriving={coming.get(tile.name) ?? 0}
                        />
                      ))}
                    </div>
                  </div>
                ))}
              </div>
            </section>
          ))}
          <AsTable tiles={tiles} colour={colour} known={known} />
        </Picture>
        {selected && <NodePanel tile={selected} mayMove={mayMove} targets={[...nodes.rows.keys()]} onMove={start} fates={selected.name === shown ? fates : null} />}
      </div>
      {move && <MoveDialog row={move.row} target={move.target} onClose={() => setMove(null)} />}
    </div>
  );
}

/** What the chosen colour needs and the tables do not have. */
function useKnowledge(colour: Colour): Knowledge {
  const session = useStore((state) => state.session);
  const changes = useChanges(SURVEY_MS);
  const busy = useLoads(colour === "load" && may(session, "put_query"));
  const survey = useAnswer<Survey>(colour === "slack" && may(session, "get_overview") ? { method: "GET", path: "/2/overview" } : null, changes).value;
  const impact = useAnswer<Outcomes[]>(colour === "impact" && may(session, "get_impact") ? { method: "GET", path: "/2/impact" } : null, changes).value;
  const weak = useMemo(() => (survey ? new Set(survey.groups.flatMap((one) => one.n1_violations)) : null), [survey]);
  const outcomes = useMemo(() => (impact ? new Map(impact.map((one) => [one.name, one])) : null), [impact]);
  return { busy, weak, outcomes };
}

function useFates(name: string | null, version: unknown) {
  const session = useStore((state) => state.session);
  const found = useAnswer<{ instances: Fate[] }>(name && may(session, "get_nodes_name_impact") ? { method: "GET", path: `/2/nodes/${encodeURIComponent(name)}/impact` } : null, version);
  return { value: found.value?.instances ?? null, problem: found.problem, again: found.again };
}

function spoken(name: string, fates: readonly Fate[]): string {
  const said = tally(fates).map(([how, count]) => `${count} ${t.map.outcomes[how] ?? how}`);
  return `${t.map.ifFails(short(name))} ${said.join(", ") || t.map.nothing}`;
}

/** What stands in the corner of a tile. */
function valueOf(tile: Tile, colour: Colour, known: Knowledge): string {
  const load = loadOf(tile, colour, known);
  if (load !== null) return `${load} %`;
  const found = colour === "impact" ? known.outcomes?.get(tile.name) : undefined;
  if (!found) return "";
  const down = notRestarted(found);
  return down === 0 ? "" : t.map.down(down);
}

/** The picture takes the events of all tiles, so that a tile costs no functions of its own. */
function Picture({ children, onPoint, onChoose, onDrop }: {
  children: preact.ComponentChildren; onPoint: (name: string | null) => void; onChoose: (name: string) => void; onDrop: (name: string, target: string) => void;
}) {
  const timer = useRef(0);
  const over = useRef<Element | null>(null);
  useEffect(() => () => clearTimeout(timer.current), []);
  const tileAt = (event: Event) => (event.target as Element).closest?.<HTMLElement>("[data-node]") ?? null;
  const point = (event: Event, wait: number) => {
    const name = tileAt(event)?.dataset["node"] ?? null;
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => onPoint(name), wait);
  };
  const mark = (tile: Element | null) => {
    if (over.current === tile) return;
    over.current?.classList.remove("over");
    tile?.classList.add("over");
    over.current = tile;
  };
  return (
    <div
      class="groups" onClick={(event) => { const tile = tileAt(event); if (tile) onChoose(tile.dataset["node"] ?? ""); }}
      onMouseOver={(event) => point(event, REST_MS)} onMouseLeave={(event) => point(event, REST_MS)}
      onFocusIn={(event) => point(event, REST_MS)} onFocusOut={() => { clearTimeout(timer.current); onPoint(null); }}
      onDragOver={(event) => {
        const tile = event.dataTransfer?.types.includes(DRAGGED) ? tileAt(event) : null;
        if (tile) event.preventDefault();
        mark(tile);
      }}
      onDragLeave={(event) => { if (event.target === over.current) mark(null); }}
      onDrop={(event) => {
        const tile = tileAt(event);
        mark(null);
        if (!tile) return;
        event.preventDefault();
        onDrop(event.dataTransfer?.getData(DRAGGED) ?? "", tile.dataset["node"] ?? "");
      }}
    >
      {children}
    </div>
  );
}

interface TileProps {
  tile: Tile; tint: Tint; value: string; isChosen: boolean; isFailing: boolean; arriving: number;
}

/** One node; drawn again only if something that it shows has changed. */
class NodeTile extends Component<TileProps> {
  override shouldComponentUpdate(next: TileProps): boolean {
    return (Object.keys(next) as (keyof TileProps)[]).some((key) => next[key] !== this.props[key]);
  }

  override render({ tile, tint, value, isChosen, isFailing, arriving }: TileProps) {
    const lines = Math.max(1, Math.ceil(tile.instances.length / PER_LINE));
    const more = [
      t.role[String(tile.node["role"])] ?? "", plural(tile.instances.length, "instance"), arriving ? t.map.arriving(arriving) : "",
    ].filter(Boolean).join(", ");
    return (
      <button class={`tile ${tint}${isFailing ? " failing" : ""}`} aria-pressed={isChosen} title={`${tile.name}, ${more}`} data-node={tile.name}>
        <span class="tile-head"><strong>{short(tile.name)}</strong>{" "}{arriving > 0 && <b class="arriving">+{arriving}</b>}{" "}<span>{value}</span></span>
        <span class="unseen">{more}</span>
        <svg class="squares" viewBox={`0 0 ${PER_LINE * STEP} ${lines * STEP}`} width={PER_LINE * STEP} height={lines * STEP} aria-hidden="true">
          {Object.entries(squares(tile.instances)).map(([tone, path]) => <path key={tone} class={tone} d={path} />)}
        </svg>
      </button>
    );
  }
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

/** The same as the picture, as text. */
function AsTable({ tiles, colour, known }: { tiles: ReadonlyMap<string, Tile>; colour: Colour; known: Knowledge }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t.map.asTable}</summary>
      {isOpen && (
        <div class="card scroll" tabIndex={0} role="region" aria-label={t.nav.map}>
          <table>
            <thead><tr>{[t.map.node, t.map.group, t.map.rack, t.instances.title, t.map.by[colour]].map((one) => <th key={one} scope="col">{one}</th>)}</tr></thead>
            <tbody>
              {[...tiles.values()].map((tile) => (
                <tr key={tile.name}>
                  <th scope="row"><ObjectLink kind="node" name={tile.name} whole /></th>
                  <td>{String(tile.node["group"] ?? "–")}</td><td>{rackOf(tile.node) || "–"}</td><td>{tile.instances.length}</td>
                  <td>{[(t.map.tints[colour] as Record<string, string>)[tintOf(tile, colour, known, isBadStatus)], valueOf(tile, colour, known)].filter(Boolean).join(", ")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}

const FATE_TONES: Readonly<Record<string, Tone>> = { failover: "good", restart: "good", degraded: "warn", unplaced: "bad", lost: "bad" };

type Fates = ReturnType<typeof useFates>;

/** Where each instance would go if the node failed, and why some would not. */
function Impact({ value, problem, again }: Fates) {
  if (!value && !problem) return null;
  return (
    <section class="card">
      <header><h3>{t.map.impact}</h3></header>
      {problem && <Problem text={problem} onAgain={again} />}
      {value?.length === 0 && <p class="faint">{t.map.noImpact}</p>}
      <ul class="lines">
        {value?.slice(0, LIST_LIMIT).map((one) => (
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

function NodePanel({ tile, mayMove, targets, onMove, fates }: {
  tile: Tile; mayMove: boolean; targets: readonly string[]; onMove: (name: string, target: string) => void; fates: Fates | null;
}) {
  const { node, name, instances } = tile;
  return (
    <aside>
      <section class="card">
        <header><h3><ObjectLink kind="node" name={name} whole /></h3><NodeRole role={node["role"]} /></header>
        <p class="faint">{t.map.freeOf(size(node["mfree"] as number | undefined), size(node["mtotal"] as number | undefined))}</p>
        <ul class="lines">
          {instances.slice(0, LIST_LIMIT).map((row) => (
            <li
              key={String(row["name"])} draggable={mayMove} class={mayMove ? "draggable" : ""}
              onDragStart={(event) => { event.dataTransfer?.setData(DRAGGED, String(row["name"])); }}
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
      {fates && <Impact {...fates} />}
    </aside>
  );
}
