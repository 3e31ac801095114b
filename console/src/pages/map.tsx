/** The whole cluster as one picture: groups, racks, their nodes, and a square for each instance. */
import { Component } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useLoads } from "../api/loads";
import { useAnswer, useChanges } from "../api/objects";
import type { OperationId } from "../actions/actions";
import { may, mayOpen } from "../core/access";
import { plural, short, size } from "../core/format";
import { href, setParameter, usePlace } from "../core/route";
import type { AnyRow } from "../core/state";
import { useStore } from "../core/store";
import { arrivals, COLOURS, groupsOf, loadOf, notRestarted, rackOf, sharesOf, tally, tintOf, zoomFor, ZOOMS } from "../core/topology";
import type { Colour, Fate, Knowledge, Outcomes, Rack, Tile, Tint, Zoom } from "../core/topology";
import { t } from "../texts/en";
import { Badge, InstanceStatus, instanceTone, NodeRole, ObjectLink, PageTitle, Problem } from "../ui/bits";
import type { Tone } from "../ui/bits";
import { Loading } from "../ui/listpage";
import { MoveDialog } from "../ui/move";
import { useSlowly, useTable } from "../ui/rows";
import { Squares } from "../ui/squares";
import type { Survey } from "./health";

const SURVEY_MS = 5000;
/** The picture of a large cluster follows the changes of this time together. */
const DRAW_MS = 250;
/** Time that the pointer rests on a node before the page asks what its failure would mean. */
const REST_MS = 250;
const LIST_LIMIT = 100;
const DRAGGED = "text/x-instance";
const LEGEND: Readonly<Record<Colour, readonly Tint[]>> = {
  load: ["low", "mid", "warn", "bad", "off"], memory: ["low", "mid", "warn", "bad", "off"], cpus: ["low", "mid", "warn", "bad", "off"],
  status: ["low", "bad", "off"], slack: ["low", "bad", "off"], impact: ["low", "mid", "bad", "off"],
};
/** The operation that has the values of a colour; a user without it is not offered the colour. */
const NEEDED: Readonly<Partial<Record<Colour, OperationId>>> = { load: "put_query", slack: "get_overview", impact: "get_impact" };
const isBadStatus = (status: unknown) => instanceTone(status) === "bad";

export function Map_() {
  const nodes = useTable("node");
  const instances = useTable("instance");
  const { query } = usePlace();
  const session = useStore((state) => state.session);
  const mayShow = (one: Colour) => NEEDED[one] === undefined || may(session, NEEDED[one]);
  const colours = COLOURS.filter(mayShow);
  const colour = colours.find((one) => one === query.get("by")) ?? "memory";
  const zoom = ZOOMS.find((one) => one === query.get("zoom")) ?? zoomFor(nodes.rows.size);
  const chosen = query.get("node");
  const [move, setMove] = useState<{ row: AnyRow; target: string } | null>(null);
  const [pointed, setPointed] = useState<string | null>(null);
  const known = useKnowledge(colour);
  const before = useRef<ReadonlyMap<string, Tile>>(new Map());
  const rows = useMemo(() => ({ nodes: nodes.rows, instances: instances.rows, isLoaded: nodes.isLoaded && instances.isLoaded }), [nodes, instances]);
  const drawn = useSlowly(rows, DRAW_MS);
  const groups = useMemo(() => groupsOf(drawn.nodes.values(), drawn.instances.values(), before.current), [drawn]);
  const tiles = useMemo(() => new Map([...groups.values()].flat().flatMap((rack) => rack.tiles).map((tile) => [tile.name, tile])), [groups]);
  before.current = tiles;
  const selected = chosen ? tiles.get(chosen) : undefined;
  const shown = pointed ?? selected?.name ?? null;
  const pointedTile = shown ? tiles.get(shown) : undefined;
  const fates = useFates(shown, shown ? nodes.rows.get(shown) : undefined);
  const coming = useMemo(() => arrivals(fates.value ?? []), [fates.value]);
  if (!drawn.isLoaded) return <div class="page"><PageTitle text={t.nav.map} /><Loading /></div>;
  const mayMove = may(session, "put_instances_name_migrate");
  const start = (name: string, target: string) => {
    const row = instances.rows.get(name);
    if (row && row["pnode"] !== target && mayMove) setMove({ row, target });
  };
  return (
    <div class="page">
      <PageTitle text={t.nav.map}>
        <div class="chips" role="group" aria-label={t.map.colour}><small aria-hidden="true">{t.map.colour}</small>
          {colours.map((one) => <button key={one} class="chip" aria-pressed={colour === one} onClick={() => setParameter("by", one)}>{t.map.by[one]}</button>)}
        </div>
        <div class="chips" role="group" aria-label={t.map.zoom}><small aria-hidden="true">{t.map.zoom}</small>
          {ZOOMS.map((one) => <button key={one} class="chip" aria-pressed={zoom === one} onClick={() => setParameter("zoom", one)}>{t.map.zooms[one]}</button>)}
        </div>
      </PageTitle>
      <div class="legend">
        <ul aria-label={t.map.legend}>
          {LEGEND[colour].map((one) => <li key={one}><i class={one} aria-hidden="true" />{(t.map.tints[colour] as Record<string, string>)[one]}</li>)}
        </ul>
        <p class="faint">{mayMove ? t.map.hint : may(session, "get_nodes_name_impact") ? t.map.readOnly : t.map.listsOnly}</p>
        {colours.length < COLOURS.length && <p class="faint">{t.map.without(COLOURS.filter((one) => !mayShow(one)).map((one) => t.map.by[one]))}</p>}
      </div>
      <p class="said" aria-live="polite">{pointedTile ? [spokenTile(pointedTile, valueOf(pointedTile, colour, known)), fates.value ? spoken(fates.value) : ""].filter(Boolean).join(". ") : " "}</p>
      <div class={selected ? "with-panel" : ""}>
        <Picture onPoint={setPointed} onChoose={(name) => setParameter("node", name === chosen ? "" : name)} onDrop={start}>
          {[...groups].map(([group, racks]) => (
            <GroupCard key={`${group} ${zoom}`} name={group} racks={racks} zoom={zoom} colour={colour} known={known} chosen={chosen} failing={shown} coming={coming} hasPage={may(session, "get_groups_name")} />
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

function spoken(fates: readonly Fate[]): string {
  const said = tally(fates).map(([how, count]) => `${count} ${t.map.outcomes[how] ?? how}`);
  return `${t.map.ifFails} ${said.join(", ") || t.map.nothing}`;
}

function spokenTile(tile: Tile, value: string): string {
  return [short(tile.name), t.role[String(tile.node["role"])] ?? "", plural(tile.instances.length, "instance"), value].filter(Boolean).join(", ");
}

interface GroupProps {
  readonly name: string; readonly racks: readonly Rack[]; readonly zoom: Zoom; readonly colour: Colour; readonly known: Knowledge;
  readonly chosen: string | null; readonly failing: string | null; readonly coming: ReadonlyMap<string, number>; readonly hasPage: boolean;
}

/** A group of nodes: how many have which colour, and its racks while it is open. Drawn again only if one of its tiles has changed. */
class GroupCard extends Component<GroupProps, { isOpen: boolean }> {
  override state = { isOpen: this.props.zoom !== "groups" };

  override shouldComponentUpdate(next: GroupProps, state: { isOpen: boolean }): boolean {
    const isOther = (Object.keys(next) as (keyof GroupProps)[]).some((key) => key !== "racks" && next[key] !== this.props[key]);
    return isOther || state.isOpen !== this.state.isOpen || !areSame(this.props.racks, next.racks);
  }

  override render({ name, racks, zoom, colour, known, chosen, failing, coming, hasPage }: GroupProps) {
    const tiles = racks.flatMap((rack) => rack.tiles);
    const tints = new Map(tiles.map((tile) => [tile.name, tintOf(tile, colour, known, isBadStatus)]));
    const names = t.map.tints[colour] as Record<string, string>;
    return (
      <details class="card group" open={this.state.isOpen} onToggle={(event) => this.setState({ isOpen: event.currentTarget.open })}>
        <summary>
          <h3>{t.map.group} {name}</h3>
          <small>{plural(tiles.length, "node")}, {plural(tiles.reduce((sum, tile) => sum + tile.instances.length, 0), "instance")}</small>
          <ul class="shares">{sharesOf(tints.values()).map(([tint, count]) => (
            <li key={tint} title={names[tint]}><i class={tint} aria-hidden="true" />{count}<span class="unseen"> {names[tint]}</span></li>
          ))}</ul>
        </summary>
        {this.state.isOpen && (
          <>
            <div class="racks">
              {racks.map((rack) => (
                <div key={rack.name} class={rack.name ? "rack" : "rack unnamed"} {...(rack.name ? { role: "group", "aria-label": `${t.map.rack} ${rack.name}` } : {})}>
                  {rack.name && <h4>{t.map.rack} {rack.name}</h4>}
                  <div class={zoom === "instances" ? "tiles" : "tiles dots"}>
                    {rack.tiles.map((tile) => (
                      <NodeTile
                        key={tile.name} tile={tile} tint={tints.get(tile.name) ?? "off"} value={valueOf(tile, colour, known)} isSmall={zoom !== "instances"}
                        isChosen={tile.name === chosen} isFailing={tile.name === failing} arriving={coming.get(tile.name) ?? 0}
                      />
                    ))}
                  </div>
                </div>
              ))}
            </div>
            {hasPage && <p><a href={href(["groups", name])}>{t.map.groupPage}</a></p>}
          </>
        )}
      </details>
    );
  }
}

function areSame(racks: readonly Rack[], others: readonly Rack[]): boolean {
  return racks.length === others.length && racks.every((rack, at) => {
    const other = others[at];
    return rack.name === other?.name && rack.tiles.length === other.tiles.length && rack.tiles.every((tile, index) => tile === other.tiles[index]);
  });
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
  tile: Tile; tint: Tint; value: string; isSmall: boolean; isChosen: boolean; isFailing: boolean; arriving: number;
}

/** Small tiles differ by more than their colour. */
const MARKS: Readonly<Record<Tint, string>> = { low: "", mid: "", warn: "·", bad: "!", off: "–" };

/** One node; drawn again only if something that it shows has changed. */
class NodeTile extends Component<TileProps> {
  override shouldComponentUpdate(next: TileProps): boolean {
    return (Object.keys(next) as (keyof TileProps)[]).some((key) => next[key] !== this.props[key]);
  }

  override render({ tile, tint, value, isSmall, isChosen, isFailing, arriving }: TileProps) {
    if (isSmall) {
      const said = [spokenTile(tile, value), arriving ? t.map.arriving(arriving) : ""].filter(Boolean).join(", ");
      return (
        <button class={`tile dot ${tint}${isFailing ? " failing" : ""}`} aria-pressed={isChosen} aria-label={said} title={said} data-node={tile.name}>
          {arriving > 0 ? <b class="arriving">+{arriving}</b> : MARKS[tint]}
        </button>
      );
    }
    const more = [
      t.role[String(tile.node["role"])] ?? "", plural(tile.instances.length, "instance"), arriving ? t.map.arriving(arriving) : "",
    ].filter(Boolean).join(", ");
    return (
      <button class={`tile ${tint}${isFailing ? " failing" : ""}`} aria-pressed={isChosen} title={`${tile.name}, ${more}`} data-node={tile.name}>
        <span class="tile-head"><strong>{short(tile.name)}</strong>{" "}{arriving > 0 && <b class="arriving">+{arriving}</b>}{" "}<span>{value}</span></span>
        <span class="unseen">{more}</span>
        <Squares instances={tile.instances} />
      </button>
    );
  }
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
  const maySimulate = useStore((state) => mayOpen(state.session, "whatif", false));
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
        {maySimulate && <p><a href={href(["whatif"], { nodes: name })}>{t.whatif.link}</a></p>}
      </section>
      {fates && <Impact {...fates} />}
    </aside>
  );
}
