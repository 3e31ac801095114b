"""Examination of the hosts of a cluster."""

from dataclasses import asdict

import msgspec

from ganeti.base.errors import RpcError
from ganeti.config.fill import cluster_hvparams, default_nicparams
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import storage_units
from ganeti.doctor.judge import findings_of_cluster, findings_of_host
from ganeti.jobs.executor import Outcome
from ganeti.model.disk_templates import DRBD, VOLUME_GROUP
from ganeti.model.host_facts import Finding, HostFacts, HostQuestion, Level
from ganeti.model.objects import Node
from ganeti.model.opcodes.cluster import OpClusterDoctor
from ganeti.model.params import Params
from ganeti.rpc.procedures.host import HOST_FACTS
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.node.storage import chosen_nodes


def host_question(snapshot: Snapshot) -> HostQuestion:
    """Return the parts of a host that this cluster uses."""
    cluster = snapshot.cluster
    qemu = qemu_hvparams(snapshot)
    units = storage_units(cluster)
    return HostQuestion(
        runs_kvm=qemu is not None,
        kvm_path=str(qemu["kvm_path"] or "") if qemu else "",
        volume_group=next((one.key for one in units if one.kind == VOLUME_GROUP), ""),
        uses_drbd=DRBD.name in cluster.enabled_disk_templates,
        directories=tuple(one.key for one in units if one.key.startswith("/")),
        links=_links(snapshot) if qemu else (),
    )


def qemu_hvparams(snapshot: Snapshot) -> Params | None:
    """Return the cluster's parameters of the hypervisor that runs QEMU; None if none is enabled."""
    cluster = snapshot.cluster
    rows = (cluster_hvparams(cluster, name) for name in cluster.enabled_hypervisors)
    return next((row for row in rows if "kvm_path" in row), None)


def _links(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the bridges of the default interface and of the networks of groups."""
    params = [default_nicparams(snapshot.cluster)]
    for group in snapshot.groups.values():
        params += group.networks.values()
    return tuple(dict.fromkeys(str(one["link"]) for one in params if one.get("mode") != "routed"))


class LUClusterDoctor(LogicalUnit[OpClusterDoctor, list[Node]]):
    """Ask each node for its host's facts, and judge them."""

    async def check_prereq(self, ctx: UnitContext) -> list[Node]:
        return chosen_nodes(ctx.snapshot, self.op.nodes)

    async def execute(self, ctx: UnitContext, plan: list[Node]) -> Outcome:
        question = host_question(ctx.snapshot)
        answers = await ctx.call_all(plan, HOST_FACTS, question)
        findings: list[Finding] = []
        hosts: dict[str, HostFacts] = {}
        for node in plan:
            answer = answers[node.uuid]
            if isinstance(answer, RpcError):
                findings.append(_unreachable(node, answer))
                continue
            hosts[node.name] = answer
            of_node = question if node.vm_capable else without_guests(question)
            findings += findings_of_host(of_node, answer, node.name)
        capable = {node.name for node in plan if node.vm_capable}
        guests = {name: facts for name, facts in hosts.items() if name in capable}
        cpu_type = str((qemu_hvparams(ctx.snapshot) or {}).get("cpu_type") or "")
        findings += findings_of_cluster(question, guests, cpu_type)
        return Outcome([asdict(one) for one in findings])


def without_guests(question: HostQuestion) -> HostQuestion:
    """Return the question for a node that runs no instances (`vm_capable=no`)."""
    return msgspec.structs.replace(
        question, runs_kvm=False, links=(), volume_group="", uses_drbd=False
    )


def _unreachable(node: Node, error: RpcError) -> Finding:
    text = f"the node daemon does not answer: {error.reason}"
    return Finding(
        node.name, "host", Level.ERROR, "no-answer", text, "systemctl restart ganeti-noded"
    )
