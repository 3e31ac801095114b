"""The findings of `gnt-cluster verify`: pure checks of the configuration and of node reports.

The codes are upstream's, because scripts parse them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, RpcError
from ganeti.config.fill import is_exclusive
from ganeti.config.index import index_of
from ganeti.config.kinds import entry_of, kind_of, problems_of
from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import DISK_TEMPLATES, TEMPLATES
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.verify_codes import Severity, VerifyCode
from ganeti.model.verify_lines import finding_line
from ganeti.rpc.procedures.host import VerifyReport
from ganeti.rpc.procedures.instances import RunningInstance
from ganeti.rpc.procedures.programs import OsInfo
from ganeti.units.hooks.results import NodeResults
from ganeti.units.instance.access import switch_remedy
from ganeti.units.instance.policy import policy_breaches
from ganeti.units.node.candidate_pool import missing_candidates, wanted_candidates
from ganeti.units.spindles import REPAIR, misfit

CLOCK_SKEW_S = 150.0
"""The allowed difference between a node's clock and the master's."""

CERTIFICATE_WARNING_S = 30 * 86400.0
"""The time before its end at which a certificate is reported (G27)."""


@dataclass(frozen=True)
class Finding:
    """One fault: `kind` is cluster, group, node or instance; `name` identifies the object."""

    code: str
    kind: str
    name: str
    text: str
    is_error: bool = True

    def __post_init__(self) -> None:
        if self.code not in VerifyCode.__members__:  # scripts rely on a complete list of codes
            raise ValueError(f"{self.code} is not the code of a finding")

    def line(self, *, with_code: bool) -> str:
        """Return the finding as a line of the job's log; the form with codes is for scripts."""
        severity = Severity.ERROR if self.is_error else Severity.WARNING
        code = self.code if with_code else None
        return finding_line(severity, code, self.kind, self.name, self.text)


def config_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield contradictions inside the configuration."""
    yield from _cluster_findings(snapshot)
    for node in snapshot.nodes.values():
        if node.group not in snapshot.groups:
            text = f"belongs to an unknown group ({node.group})"
            yield Finding("ECLUSTERDANGLINGNODES", "node", node.name, text)
    for instance in snapshot.instances.values():
        for uuid in instance.all_nodes:
            if uuid not in snapshot.nodes:
                text = f"is on an unknown node ({uuid})"
                yield Finding("EINSTANCEBADNODE", "instance", instance.name, text)
    for thing in snapshot.objects():
        for code, text in problems_of(snapshot, thing):
            if code is not ErrorCode.UNKNOWN_ENTITY:  # reported above, with codes of their own
                yield Finding("ECLUSTERCFG", kind_of(thing), thing.name, text)
    yield from _conflicts(snapshot)


def hook_findings(ran: Iterable[NodeResults]) -> Iterator[Finding]:
    """Yield errors of the administrator's checks on nodes; a successful check is reported if it has output."""
    for one in ran:
        for text, is_error in one.lines():
            if is_error:
                yield Finding("ENODEHOOKS", "node", one.node, text)


def _conflicts(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield names, addresses and files that two objects share."""
    things = sorted(snapshot.objects(), key=lambda thing: thing.name)
    for conflict in index_of(entry_of(snapshot.cluster, thing) for thing in things)[1]:
        thing, owner = snapshot.find(conflict.claimant), snapshot.find(conflict.owner)
        if thing is not None and owner is not None:
            claim = conflict.claim
            text = f"has the {claim.kind} {claim.value} of {kind_of(owner)} {owner.name}"
            yield Finding("ECLUSTERCFG", kind_of(thing), thing.name, text)


def _cluster_findings(snapshot: Snapshot) -> Iterator[Finding]:
    cluster = snapshot.cluster
    hypervisors = set(cluster.enabled_hypervisors) - set(HYPERVISOR_PARAMS)
    templates = set(cluster.enabled_disk_templates) - set(DISK_TEMPLATES)
    wrong = [
        *(f"unknown hypervisor {name} is enabled" for name in sorted(hypervisors)),
        *(f"unknown disk template {name} is enabled" for name in sorted(templates)),
    ]
    if cluster.master_node not in snapshot.nodes:
        wrong.append("the master node is not in the configuration")
    for text in wrong:
        yield Finding("ECLUSTERCFG", "cluster", cluster.name, text)


def candidate_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a warning if there are too few master candidates; the cluster works without them."""
    pool_size = snapshot.cluster.candidate_pool_size
    have = len(snapshot.master_candidates())
    wanted = wanted_candidates(pool_size, snapshot.nodes.values())
    if have < wanted:
        missing = missing_candidates(snapshot, pool_size)
        text = (
            f"has {have} master candidates instead of {wanted};"
            f" run gnt-node modify --master-candidate=yes {missing[0].name}"
        )
        yield Finding("ECLUSTERCFG", "cluster", snapshot.cluster.name, text, is_error=False)


def policy_findings(snapshot: Snapshot, instances: Iterable[Instance]) -> Iterator[Finding]:
    """Yield instances outside the policy of their group; warnings, since this can be intended."""
    for instance in instances:
        node = snapshot.nodes.get(instance.primary_node)
        group = snapshot.groups.get(node.group) if node else None
        if is_exclusive(snapshot.cluster, group):
            yield from _spindle_findings(instance)
        for text in policy_breaches(snapshot.cluster, group, instance):
            yield Finding(
                "EINSTANCEPOLICY",
                "instance",
                instance.name,
                text,
                is_error=False,
            )


def _spindle_findings(instance: Instance) -> Iterator[Finding]:
    """Yield disks on a node with exclusive storage that share devices, or have no number of spindles."""
    for index, disk in enumerate(instance.disks):
        if why := misfit(disk):
            able = TEMPLATES[disk.template].can_be_exclusive
            code = "EINSTANCEMISSINGCFGPARAMETER" if able else "EINSTANCEUNSUITABLENODE"
            more = f"; {REPAIR}" if able else ""
            text = f"disk/{index} is on a node with exclusive storage: {why}{more}"
            yield Finding(code, "instance", instance.name, text)


@dataclass(frozen=True)
class Expected:
    """The master's facts: the time, and positions of the configuration.

    Each node should have at least the ssconf files of `distributed`, and none later than `newest`.
    """

    now: float
    distributed: int
    newest: int


def node_findings(
    node: Node, report: VerifyReport | RpcError, expected: Expected
) -> Iterator[Finding]:
    """Yield faults in one node's report, compared with the master's facts."""
    if isinstance(report, RpcError):
        yield Finding("ENODERPC", "node", node.name, f"does not answer: {report.reason}")
        return
    found = [
        *_time_findings(report, expected.now),
        *_position_findings(report, expected),
        *(
            ("ENODEHV", f"hypervisor {hypervisor}: {problem}", True)
            for hypervisor, problems in sorted(report.hypervisor_problems.items())
            for problem in problems
        ),
        *(("ENODEFILESTORAGEPATHS", problem, True) for problem in report.storage_problems),
        *(("ENODELVM", problem, True) for problem in report.sharing_problems),
        *(("ENODESETUP", problem, True) for problem in report.writable_problems),
        *(("ENODESETUP", problem, True) for problem in report.permission_problems),
        *(
            ("ENODENET", f"cannot reach node {other}: {problem}", True)
            for other, problem in sorted(report.connection_problems.items())
        ),
    ]
    for code, text, is_error in found:
        yield Finding(code, "node", node.name, text, is_error)


Problems = Iterator[tuple[str, str, bool]]
"""Code, text, and whether it is an error."""


def _time_findings(report: VerifyReport, now: float) -> Problems:
    skew = report.time - now
    if abs(skew) > CLOCK_SKEW_S:
        direction = "ahead of" if skew > 0 else "behind"
        yield ("ENODETIME", f"its clock is {abs(skew):.0f} s {direction} the master's", True)
    if report.certificate_not_after - now < CERTIFICATE_WARNING_S:
        days = (report.certificate_not_after - now) / 86400
        text = (
            f"its certificate ends in {days:.0f} days" if days > 0 else "its certificate has ended"
        )
        yield ("ECLUSTERCERT", text, days <= 0)


def _position_findings(report: VerifyReport, expected: Expected) -> Problems:
    if report.ssconf_position > expected.newest:
        yield ("ENODEFILECHECK", "has ssconf files newer than the master's configuration", True)
    elif report.ssconf_position < expected.distributed:
        yield ("ENODEFILECHECK", "its ssconf files are not up to date yet", False)


Running = Mapping[NodeUuid, list[RunningInstance] | RpcError]
"""The guests of each node that was queried."""


def orphan_findings(
    snapshot: Snapshot, known: Collection[str], running: Running
) -> Iterator[Finding]:
    """Yield guests without an instance; `known` are UUIDs of instances."""
    for node_uuid, found in running.items():
        for guest in [] if isinstance(found, RpcError) else found:
            if guest.uuid not in known:
                text = f"runs the unknown instance {guest.name}"
                name = snapshot.nodes[node_uuid].name
                yield Finding("ENODEORPHANINSTANCE", "node", name, text)


def instance_findings(
    snapshot: Snapshot, instances: Iterable[Instance], running: Running
) -> Iterator[Finding]:
    """Yield instances in a wrong state or on a wrong node."""
    where: dict[str, dict[NodeUuid, RunningInstance]] = {}
    for node_uuid, found in running.items():
        for guest in [] if isinstance(found, RpcError) else found:
            where.setdefault(guest.uuid, {})[node_uuid] = guest
    for instance in instances:
        places = where.get(instance.uuid, {})
        for code, text, is_error in (
            *_place_findings(snapshot, instance, places),
            *_state_findings(snapshot, instance, places, running),
        ):
            yield Finding(code, "instance", instance.name, text, is_error)


def _place_findings(
    snapshot: Snapshot, instance: Instance, places: Mapping[NodeUuid, RunningInstance]
) -> Problems:
    primary = snapshot.nodes[instance.primary_node]
    remedy = f"run gnt-instance migrate --cleanup {instance.name}"
    for uuid in sorted(set(places) - {instance.primary_node}):
        text = f"is on {snapshot.nodes[uuid].name}, but should be on {primary.name}; {remedy}"
        yield ("EINSTANCEWRONGNODE", text, True)
    if instance.switching is not None:
        text = f"a move of its disks was interrupted, and only {primary.name} knows which have the last writes"
        yield ("EINSTANCEWRONGNODE", f"{text}; run {switch_remedy(instance)}", True)
    elif instance.migrating_to is not None:
        text = f"a migration was interrupted, so its node is unknown; {remedy}"
        yield ("EINSTANCEWRONGNODE", text, True)


def _state_findings(
    snapshot: Snapshot,
    instance: Instance,
    places: Mapping[NodeUuid, RunningInstance],
    running: Running,
) -> Problems:
    primary = snapshot.nodes[instance.primary_node]
    here = places.get(instance.primary_node)
    is_up = here is not None and here.has_guest
    runs_elsewhere = any(
        guest.has_guest for uuid, guest in places.items() if uuid != instance.primary_node
    )
    if primary.offline:
        yield ("EINSTANCEBADNODE", f"its primary node {primary.name} is offline", True)
    elif not isinstance(running.get(instance.primary_node), list):
        return
    elif here is not None and here.state == "shutdown":
        return  # the guest's user has shut it down
    elif instance.admin_state is AdminState.UP and not is_up and not runs_elsewhere:
        yield ("EINSTANCEDOWN", f"is not running on {primary.name}", True)
    elif here is not None and here.state == "paused" and instance.admin_state is AdminState.UP:
        text = f"is paused on {primary.name}; gnt-instance startup {instance.name} resumes it"
        yield ("EINSTANCEDOWN", text, False)
    elif instance.admin_state is not AdminState.UP and is_up:
        yield ("EINSTANCEWRONGNODE", f"runs on {primary.name}, but should be down", False)


def os_findings(answers: Mapping[str, list[OsInfo]]) -> Iterator[Finding]:
    """Yield OS definitions that are broken, or differ between nodes (S141); by node name."""
    versions: dict[str, dict[str, str]] = {}
    for node, infos in sorted(answers.items()):
        for info in infos:
            if info.problem:
                yield Finding("ENODEOS", "node", node, f"OS {info.name}: {info.problem}")
            versions.setdefault(info.name, {})[node] = info.version
    for name, by_node in sorted(versions.items()):
        if len(set(by_node.values())) > 1:
            shown = ", ".join(
                f"{node}: {version or 'none'}" for node, version in sorted(by_node.items())
            )
            first = min(by_node)
            yield Finding("ENODEOS", "node", first, f"OS {name} has different versions ({shown})")
