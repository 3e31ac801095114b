/** The cluster itself: what `gnt-cluster info` says, its settings, and its history. */
import { useStore } from "../core/store";
import type { AnyRow } from "../core/state";
import { clock } from "../core/format";
import { t } from "../texts/en";
import { ObjectLink, PageTitle } from "../ui/bits";
import { useEdit } from "../ui/editbutton";
import { Loading } from "../ui/listpage";
import { Values } from "../ui/values";
import { History } from "./audit";

const list = (value: unknown) => ((value as unknown[] | undefined) ?? []).map(String);
const FACTS = ["name", "master", "software_version", "default_hypervisor", "enabled_hypervisors", "enabled_disk_templates", "mac_prefix", "volume_group_name", "file_storage_dir", "shared_file_storage_dir", "default_iallocator"];

export function Cluster() {
  const cluster = useStore((state) => state.cluster);
  const edit = useEdit("cluster", String(cluster?.["name"] ?? ""), cluster);
  if (!cluster) return <div class="page"><PageTitle text={t.cluster.title} /><Loading /></div>;
  const tags = list(cluster["tags"]);
  return (
    <div class="page">
      <PageTitle text={String(cluster["name"])}>{edit.button}</PageTitle>
      <dl class="facts">
        {FACTS.slice(1).filter((name) => cluster[name] !== undefined && cluster[name] !== "").map((name) => (
          <div key={name}><dt>{t.cluster.facts[name]}</dt><dd>{name === "master" ? <ObjectLink kind="node" name={cluster[name]} whole /> : Array.isArray(cluster[name]) ? list(cluster[name]).join(", ") : String(cluster[name])}</dd></div>
        ))}
        <div><dt>{t.cluster.created}</dt><dd>{clock(cluster["ctime"])}</dd></div>
        <div><dt>{t.cluster.changed}</dt><dd>{clock(cluster["mtime"])}</dd></div>
        {tags.length > 0 && <div><dt>{t.instance.tags}</dt><dd>{tags.map((tag) => <span class="tag" key={tag}>{tag}</span>)}</dd></div>}
      </dl>
      {edit.form}
      <details class="card"><summary><h3>{t.cluster.all}</h3></summary><Values value={withoutTags(cluster)} /></details>
      <History name={String(cluster["name"])} version={cluster} />
    </div>
  );
}

function withoutTags(cluster: AnyRow): AnyRow {
  const { tags: _tags, ...others } = cluster;
  return others;
}
