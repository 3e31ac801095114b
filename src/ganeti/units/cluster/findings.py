"""What `gnt-cluster verify` finds: pure checks of the configuration and of what nodes said.

The codes are Ganeti's, because scripts parse them (interfaces.md, section 2).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ganeti import __version__
from ganeti.base.errors import RpcError
from ganeti.config.fill import filled_ipolicy
from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.rpc.procedures import OsInfo, RunningInstance, VerifyReport
from ganeti.units.allocation import Demand
from ganeti.units.instance.requests import check_policy

CLOCK_SKEW_S = 150.0
"""How far a node's clock may be from the master's."""

CERTIFICATE_WARNING_S = 30 * 86400.0
"""How long before its end a certificate is reported (G27)."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: `kind` is cluster, group, node or instance; `name` which of them."""

    code: str
    kind: str
    name: str
    text: str
    is_error: bool = True

    def line(self, *, with_code: bool) -> str:
        """The finding as a line of the job's log; the form with codes is for scripts."""
        severity = "ERROR" if self.is_error else "WARNING"
        if with_code:
            return f"  - {severity}:{self.code}:{self.kind}:{self.name}:{self.text}"
        return f"  - {severity}: {self.kind} {self.name}: {self.text}"


def config_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Contradictions inside the configuration."""
    yield from _cluster_findings(snapshot)
    for node in snapshot.nodes.values():
        if node.group not in snapshot.groups:
            text = f"belongs to no known group ({node.group})"
            yield Finding("ECLUSTERDANGLINGNODES", "node", node.name, text)
    yield from _duplicates("MAC address", snapshot, lambda one: [nic.mac for nic in one.nics])
    yield from _duplicates("disk path", snapshot, _paths)
    for instance in snapshot.instances.values():
        for uuid in instance.all_nodes:
            if uuid not in snapshot.nodes:
                text = f"is on an unknown node ({uuid})"
                yield Finding("EINSTANCEBADNODE", "instance", instance.name, text)


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


def _paths(instance: Instance) -> list[str]:
    return [str(part) for disk in instance.disks for part in disk.logical_id[1:]]


def _duplicates(
    what: str, snapshot: Snapshot, values_of: Callable[[Instance], list[str]]
) -> Iterator[Finding]:
    owners: dict[str, str] = {}
    for instance in sorted(snapshot.instances.values(), key=lambda instance: instance.name):
        for value in values_of(instance):
            if value in owners:
                yield Finding(
                    "ECLUSTERCFG",
                    "instance",
                    instance.name,
                    f"has the {what} {value} of instance {owners[value]}",
                )
            owners[value] = instance.name


def policy_findings(snapshot: Snapshot, instances: Iterable[Instance]) -> Iterator[Finding]:
    """Instances that are outside the policy of their group; warnings, since they may be so on purpose."""
    for instance in instances:
        node = snapshot.nodes.get(instance.primary_node)
        group = snapshot.groups.get(node.group) if node else None
        demand = Demand.of(snapshot.cluster, instance)
        wrong = check_policy(filled_ipolicy(snapshot.cluster, group), demand.size())
        for text in wrong:
            yield Finding(
                "EINSTANCEfilled_ipolicy(snapshot.cluster, group)",
                "instance",
                instance.name,
                text,
                is_error=False,
            )


def node_findings(
    node: Node, report: VerifyReport | RpcError, now: float, position: int
) -> Iterator[Finding]:
    """What one node said about itself, against what the master knows: the configuration's `position`."""
    if isinstance(report, RpcError):
        yield Finding("ENODERPC", "node", node.name, f"does not answer: {report.reason}")
        return
    found = [
        *_version_findings(report),
        *_time_findings(report, now),
        *_position_findings(report, position),
        *(
            ("ENODEHV", f"hypervisor {hypervisor}: {problem}", True)
            for hypervisor, problems in sorted(report.hypervisor_problems.items())
            for problem in problems
        ),
        *(("ENODEFILESTORAGEPATHS", problem, True) for problem in report.storage_problems),
        *(("ENODESETUP", problem, True) for problem in report.writable_problems),
        *(
            ("ENODENET", f"cannot reach node {other}: {problem}", True)
            for other, problem in sorted(report.connection_problems.items())
        ),
    ]
    for code, text, is_error in found:
        yield Finding(code, "node", node.name, text, is_error)


Found = Iterator[tuple[str, str, bool]]
"""Code, text, and whether it is an error."""


def _version_findings(report: VerifyReport) -> Found:
    if report.software != __version__:
        text = f"runs version {report.software}, the master {__version__}"
        yield ("ENODEVERSION", text, False)


def _time_findings(report: VerifyReport, now: float) -> Found:
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


def _position_findings(report: VerifyReport, position: int) -> Found:
    if report.ssconf_position > position:
        yield ("ENODEFILECHECK", "has ssconf files newer than the master's configuration", True)
    elif report.ssconf_position < position:
        yield ("ENODEFILECHECK", "its ssconf files are not up to date yet", False)


def instance_findings(
    snapshot: Snapshot,
    instances: Iterable[Instance],
    running: Mapping[NodeUuid, list[RunningInstance] | RpcError],
) -> Iterator[Finding]:
    """Instances that are not as, or not where, they should be, and guests that nobody knows."""
    where: dict[str, set[NodeUuid]] = {}
    for node_uuid, found in running.items():
        for guest in [] if isinstance(found, RpcError) else found:
            where.setdefault(guest.uuid, set()).add(node_uuid)
            if guest.uuid not in snapshot.instances:
                name = snapshot.nodes[node_uuid].name
                yield Finding(
                    "ENODEORPHANINSTANCE", "node", name, f"runs the unknown instance {guest.name}"
                )
    for instance in instances:
        places = where.get(instance.uuid, set())
        primary = snapshot.nodes[instance.primary_node]
        for uuid in sorted(places - {instance.primary_node}):
            yield Finding(
                "EINSTANCEWRONGNODE",
                "instance",
                instance.name,
                f"is on {snapshot.nodes[uuid].name}, but should be on {primary.name};"
                f" run gnt-instance migrate --cleanup {instance.name}",
            )
        answer = running.get(instance.primary_node)
        if primary.offline:
            yield Finding(
                "EINSTANCEBADNODE",
                "instance",
                instance.name,
                f"its primary node {primary.name} is offline",
            )
        elif isinstance(answer, list) and instance.admin_state is AdminState.UP and not places:
            yield Finding(
                "EINSTANCEDOWN", "instance", instance.name, f"is not running on {primary.name}"
            )
        elif instance.admin_state is not AdminState.UP and instance.primary_node in places:
            yield Finding(
                "EINSTANCEWRONGNODE",
                "instance",
                instance.name,
                f"runs on {primary.name}, but should be down",
                is_error=False,
            )


def os_findings(answers: Mapping[str, list[OsInfo]]) -> Iterator[Finding]:
    """OS definitions that are broken, or differ between nodes (S141); by node name."""
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
