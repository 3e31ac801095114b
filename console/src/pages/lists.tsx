/** The pages with one table each. */
import { useState } from "preact/hooks";
import { GROUP_ACTS, INSTANCE_ACTS, JOB_ACTS, NETWORK_ACTS, NODE_ACTS } from "../actions/actions";
import type { OperationId } from "../actions/actions";
import { may } from "../core/access";
import { href } from "../core/route";
import { useStore } from "../core/store";
import { t } from "../texts/en";
import { Empty, Icon } from "../ui/bits";
import { OperationDialog } from "../ui/form";
import { ListPage } from "../ui/listpage";

export function Instances() {
  const session = useStore((state) => state.session);
  const create = may(session, "post_instances") && (
    <a class="button primary" href={href(["create"])}><Icon name="plus" />{t.instances.create}</a>
  );
  return (
    <ListPage
      kind="instance" title={t.instances.title} page="instances" sortedBy="name" acts={INSTANCE_ACTS} actions={create}
      chips={[
        { label: t.status["running"] ?? "", filter: "status == running" },
        { label: t.status["ADMIN_down"] ?? "", filter: "status == ADMIN_down" },
        { label: t.overview.attention, filter: "status =~ ^ERROR" },
      ]}
      empty={<Empty title={t.instances.emptyTitle}>{t.instances.empty}</Empty>}
    />
  );
}

export function Nodes() {
  return (
    <ListPage
      kind="node" title={t.nodes.title} page="nodes" sortedBy="name" acts={NODE_ACTS}
      empty={<Empty icon="nodes" title={t.nodes.emptyTitle}>{t.nodes.empty}</Empty>}
    />
  );
}

export function Groups() {
  return (
    <ListPage
      kind="group" title={t.groups.title} page="groups" sortedBy="name" acts={GROUP_ACTS}
      actions={<Add operation="post_groups" label={t.more.addGroup} first={["name", "alloc_policy"]} />}
      empty={<Empty icon="groups" title={t.groups.emptyTitle}>{t.groups.empty}</Empty>}
    />
  );
}

export function Networks() {
  return (
    <ListPage
      kind="network" title={t.networks.title} page="networks" sortedBy="name" acts={NETWORK_ACTS}
      actions={<Add operation="post_networks" label={t.more.addNetwork} first={["name", "network", "gateway", "tags"]} />}
      empty={<Empty icon="networks" title={t.networks.emptyTitle}>{t.networks.empty}</Empty>}
    />
  );
}

/** A button for the form that adds an object, for users who may. */
function Add({ operation, label, first }: { operation: OperationId; label: string; first: readonly string[] }) {
  const session = useStore((state) => state.session);
  const [isOpen, setOpen] = useState(false);
  if (!may(session, operation)) return null;
  return (
    <>
      <button class="primary" onClick={() => setOpen(true)}><Icon name="plus" />{label}</button>
      {isOpen && <OperationDialog id={operation} title={label} fixed={{}} first={first} onClose={() => setOpen(false)} />}
    </>
  );
}

export function Jobs() {
  return (
    <ListPage
      kind="job" title={t.jobs.title} page="jobs" sortedBy="-id" acts={JOB_ACTS}
      chips={[
        { label: t.jobs.running, filter: "status != success and status != error and status != canceled" },
        { label: t.job["error"] ?? "", filter: "status == error" },
      ]}
      empty={<Empty icon="jobs" title={t.jobs.emptyTitle}>{t.jobs.empty}</Empty>}
    />
  );
}
