"""Merge the nodes and instances of other clusters into the local one (S40, S41)."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from ganeti.config.fill import filled_beparams
from ganeti.config.index import index_of
from ganeti.config.kinds import entry_of, kind_of, problems_of, tables_of
from ganeti.config.merging.findings import Findings, some
from ganeti.config.merging.parameters import (
    kept_connections,
    kept_groups,
    kept_instances,
    kept_nodes,
    merged_cluster,
)
from ganeti.config.merging.places import Groups, Networks, merged_groups, merged_networks
from ganeti.config.merging.plan import Finding, MergeOptions, MergePlan, Part, Severity
from ganeti.config.reservations import PORT, PORTS
from ganeti.config.snapshot import Snapshot
from ganeti.model.backup_key import BackupKey
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.model.disk_templates import TEMPLATES
from ganeti.model.job_filter import JobFilter
from ganeti.model.objects import Cluster, DetachedDisk, Disk, Instance, Node
from ganeti.model.recovery import Recovery
from ganeti.model.stored import Stored
from ganeti.model.webhook import Webhook

_SHOWN_PROBLEMS = 20


def merge(
    ours: Snapshot, others: Sequence[Snapshot], options: MergeOptions | None = None
) -> MergePlan:
    """Return the local configuration with all nodes, groups, networks, instances and images of the others.

    UUIDs stay. New nodes are regular nodes, marked offline until they join. DRBD disks get new
    ports (S41), and displays do if their port is used. The function never raises: errors are in the
    plan.
    """
    plan = MergePlan(ours, tuple(_unknown_names(others, options or MergeOptions())))
    for theirs in others:
        plan = _with(plan, theirs, options or MergeOptions())
    return plan


def _unknown_names(others: Sequence[Snapshot], options: MergeOptions) -> Iterator[Finding]:
    """Report names in options that match no object there."""
    clusters = ", ".join(one.cluster.name for one in others)
    given = (("group", options.group_names), ("network", options.network_names))
    for what, names in given:
        tables = [
            (one.cluster.name, one.groups if what == "group" else one.networks) for one in others
        ]
        known = {thing.name for _, table in tables for thing in table.values()}
        known |= {f"{whose}/{thing.name}" for whose, table in tables for thing in table.values()}
        for name in sorted(names.keys() - known):
            text = f"--{what} {name}={names[name]}: the {what} {name} does not exist"
            yield Finding(Severity.ERROR, clusters, text)


def _with(plan: MergePlan, theirs: Snapshot, options: MergeOptions) -> MergePlan:
    ours = plan.snapshot
    findings = Findings(theirs.cluster.name, options)
    if _is_entangled(ours, theirs, findings):
        return _with_findings(plan, findings)
    cluster = merged_cluster(ours, theirs, findings)
    networks = merged_networks(ours, theirs, findings)
    connected = kept_connections(theirs, cluster, networks, findings)
    groups = kept_groups(
        theirs, cluster, merged_groups(ours, connected, cluster, findings), findings
    )
    online = [node for node in theirs.nodes_by_name() if not node.offline]
    nodes = [
        _joining(node, cluster, groups) for node in kept_nodes(theirs, cluster, groups, findings)
    ]
    _say_of_nodes(theirs, findings)
    instances = [
        _placed(one, networks) for one in kept_instances(theirs, cluster, groups, findings)
    ]
    instances = _with_ports(ours, instances, findings)
    filters = _merged_filters(theirs, findings)
    _say_of_schedules(theirs, findings)
    _say_of_webhooks(theirs, findings)
    images = theirs.images.values()
    keys = _kept_keys(ours, theirs)
    changed = [cluster, *networks.values(), *groups.values(), *nodes, *instances, *images, *filters, *keys]  # fmt: skip
    snapshot = _snapshot(ours, cluster, changed, findings)
    return MergePlan(
        snapshot,
        (*plan.findings, *findings.all),
        (*plan.joining, *(node.uuid for node in online)),
        (*plan.drained, *(node.uuid for node in online if node.drained)),
    )


def _with_findings(plan: MergePlan, findings: Findings) -> MergePlan:
    """Return the plan with more findings."""
    return MergePlan(plan.snapshot, (*plan.findings, *findings.all), plan.joining, plan.drained)


def _is_entangled(ours: Snapshot, theirs: Snapshot, findings: Findings) -> bool:
    """Return whether both have objects with the same UUIDs, which rules out any further analysis."""
    mine = {thing.uuid for thing in ours.objects()}
    both = [f"{kind_of(one)} {one.name}" for one in theirs.objects() if one.uuid in mine]
    if both:
        findings.error(f"exists here already, by its UUID: {some(both)}; was it merged before?")
    return bool(both)


# Nodes


def _joining(node: Node, cluster: Cluster, groups: Groups) -> Node:
    """Return a node as a non-member of the local cluster, whatever its configuration is."""
    return replace(
        node,
        group=groups[node.group].uuid if node.group in groups else node.group,
        master_candidate=False,
        offline=True,
        drained=False,
        recovery=None,  # it is of an epoch of the other cluster
        next_certificate="",
        certificate_generation=cluster.certificate_generation,
    )


def _say_of_nodes(theirs: Snapshot, findings: Findings) -> None:
    absent = [node.name for node in theirs.nodes_by_name() if node.offline]
    if absent:
        findings.note(
            f"offline, so not added again: {some(absent)}; when one is back, run"
            " 'gnt-node add --readd' for it"
        )
    unsettled = [one.name for one in theirs.instances.values() if one.migrating_to]
    detached = [one.what for one in theirs.table(DetachedDisk).values()]
    if detached:
        findings.error(f"no instance there has {some(detached)}; attach each first, and remove it")
    protected = [
        one.name
        for one in theirs.instances.values()
        if filled_beparams(theirs, one)["recovery"] != Recovery.NONE
    ]
    if protected:
        findings.error(
            f"automatic recovery protects {some(protected)} there, and their guests are killed when their nodes"
            " lose the master; set recovery=none there first (gnt-instance modify -B, or gnt-cluster modify -B),"
            " and protect them again after the merge"
        )
    if unsettled:
        findings.error(
            f"the migration of {some(unsettled)} is not settled; run 'gnt-instance migrate --cleanup'"
            " there first"
        )


# Instances


def _placed(instance: Instance, networks: Networks) -> Instance:
    """Return the instance with its interfaces in the merged networks; no node here knows it as protected."""
    nics = tuple(
        replace(nic, network=networks[nic.network].uuid) if nic.network in networks else nic
        for nic in instance.nics
    )
    return replace(instance, nics=nics, under_lease=False)


def _with_ports(ours: Snapshot, instances: list[Instance], findings: Findings) -> list[Instance]:
    """New ports for all DRBD disks, and for displays where another has the port (S41).

    Minors stay: they are a node's own, and no node is in two clusters.
    """
    is_taken = {
        port
        for port in PORTS
        if ours.index.owner(PORT, str(port)) is not None
        or any(one.network_port == port for one in instances)
    }
    free = (port for port in PORTS if port not in is_taken)
    merged = []
    for instance in instances:
        before = instance.network_port
        if before is not None and ours.index.owner(PORT, str(before)) is not None:
            port = next(free, None)
            findings.decision(f"the display of {instance.name} moves from port {before} to {port}")
            instance = replace(instance, network_port=port)  # noqa: PLW2901 - the same, changed
        disks = tuple(_with_new_port(disk, free, findings) for disk in instance.disks)
        if disks != instance.disks:
            ports = ", ".join(str(disk.logical_id[0]) for disk in disks if _has_port(disk))
            findings.decision(f"the DRBD disks of {instance.name} get the ports {ports}")
        merged.append(replace(instance, disks=disks))
    return merged


def _with_new_port(disk: Disk, free: Iterator[int], findings: Findings) -> Disk:
    if not _has_port(disk):
        return disk
    port = next(free, None)
    if port is None:
        findings.error(
            f"no port from {PORTS.start} to {PORTS.stop - 1} is left for the disk {disk.uuid}"
        )
        return disk
    return replace(disk, logical_id=(port, *disk.logical_id[1:]))


def _has_port(disk: Disk) -> bool:
    row = TEMPLATES.get(disk.template)
    return row is not None and row.has_port and bool(disk.logical_id)


# The rest


def _say_of_schedules(theirs: Snapshot, findings: Findings) -> None:
    """Name schedules of backups: their nodes, directories and the instances that they cover are to be chosen again."""
    if names := sorted(one.name for one in theirs.table(BackupSchedule).values()):
        findings.note(
            f"schedules of backups are not merged: {some(names)}; add them again: gnt-backup schedule add"
        )


def _kept_keys(ours: Snapshot, theirs: Snapshot) -> list[BackupKey]:
    """Return the keys of the other cluster's backups, which only they can read; new backups use the local key."""
    known = {one.name for one in ours.table(BackupKey).values()}
    return [
        replace(one, is_active=False)
        for one in theirs.table(BackupKey).values()
        if one.name not in known
    ]


def _say_of_webhooks(theirs: Snapshot, findings: Findings) -> None:
    """Name webhooks: their rules name the other cluster's groups, and their receivers would see another cluster."""
    if names := sorted(one.name for one in theirs.table(Webhook).values()):
        findings.note(
            f"webhooks are not merged: {some(names)}; add them again: gnt-cluster webhook add"
        )


def _merged_filters(theirs: Snapshot, findings: Findings) -> list[JobFilter]:
    filters = list(theirs.table(JobFilter).values())
    if not filters:
        return []
    text = f"the other cluster has {len(filters)} job filters"
    if not findings.differs(
        Part.FILTERS, text, keep="they apply to new jobs of the whole merged cluster"
    ):
        return []
    return [replace(one, watermark=findings.options.watermark) for one in filters]


def _snapshot(
    ours: Snapshot, cluster: Cluster, changed: Iterable[Stored], findings: Findings
) -> Snapshot:
    """Return the local objects with the new and changed ones.

    Claims of both clusters and broken rules are errors.
    """
    things = {thing.uuid: thing for thing in ours.objects()}
    new = {thing.uuid: thing for thing in changed if things.get(thing.uuid) != thing}
    tables = tables_of({**things, **new}.values())
    index, conflicts = index_of(
        entry_of(cluster, thing) for table in tables.values() for thing in table.values()
    )
    snapshot = Snapshot(ours.position, cluster, tables, index)
    for conflict in conflicts[:_SHOWN_PROBLEMS]:
        findings.error(_conflict(snapshot, *conflict))
    problems = [text for thing in new.values() for _code, text in problems_of(snapshot, thing)]
    for text in problems[:_SHOWN_PROBLEMS]:
        findings.error(text)
    more = len(conflicts) + len(problems) - 2 * _SHOWN_PROBLEMS
    if more > 0:
        findings.error(f"and about {more} more conflicts")
    return snapshot


def _conflict(snapshot: Snapshot, claim: tuple[str, str], claimant: str, owner: str) -> str:
    what, value = claim
    one, two = snapshot.find(claimant), snapshot.find(owner)
    names = " and ".join(f"{kind_of(thing)} {thing.name}" for thing in (two, one) if thing)
    advice = "; rename one of them first" if what.endswith("name") else "; change one of them first"
    return f"the {what} {value} is used by {names}{advice}"
