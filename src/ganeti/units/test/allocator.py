"""Requests to an allocator without creating anything (S188)."""

from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import host_name
from ganeti.config.resolve import (
    full_name,
    resolve_group,
    resolve_instance,
    resolve_network,
    resolve_node,
)
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import disk_usage
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model import wire
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.iallocator import RequestType, named_allocators
from ganeti.model.objects import Disk, Instance, Nic
from ganeti.model.opcodes.base import NicRequest
from ganeti.model.opcodes.test import OpTestAllocator
from ganeti.protocols import iallocator_requests as requests
from ganeti.units.allocation import allocators_for, ask_one
from ganeti.units.allocator_message import cluster_message
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand, nic_message
from ganeti.units.instance.requests import check_disks, check_nics, check_template

COUNT_LIMIT = 1000
_NEW = (RequestType.ALLOCATE, RequestType.MULTI_ALLOCATE, RequestType.CAPACITY)


@dataclass(frozen=True)
class AllocatorPlan:
    """Request, disk template, allocators (empty: only build the request)."""

    request: dict[str, Any]
    template: str
    allocators: tuple[str, ...]


class LUTestAllocator(LogicalUnit[OpTestAllocator, AllocatorPlan]):
    """Show the message to an allocator (`in`), or its answer (`out`)."""

    def check_arguments(self) -> None:
        op = self.op
        if op.mode not in tuple(RequestType):
            raise InputError(
                f"{op.mode!r:.40} cannot be tested; known: {', '.join(RequestType)}", "mode"
            )
        if op.direction not in ("in", "out"):
            raise InputError("must be in or out", "direction")
        host_name(op.name, "name")
        named_allocators(op.iallocator)
        for field in ("memory", "vcpus", "count"):
            if getattr(op, field) < 1:
                raise InputError("must be at least 1", field)
        if op.count > COUNT_LIMIT:
            raise InputError(f"must be at most {COUNT_LIMIT}", "count")
        if op.mode == RequestType.NODE_EVACUATE and op.evac_mode is None:
            raise InputError("is needed for node-evacuate", "evac_mode")
        check_disks(op.disks, None)
        check_nics(op.nics)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return [lock(Level.NODE, ALL, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> AllocatorPlan:
        op, cluster = self.op, ctx.snapshot.cluster
        kind = RequestType(op.mode)
        allocators = allocators_for(cluster, kind, op.iallocator)
        if not allocators and op.direction == "out":
            raise PrereqError(
                "name an allocator: the cluster has no default allocator", ErrorCode.WRONG_INPUT
            )
        request, template = self._request(ctx.snapshot, kind)
        return AllocatorPlan(request, template, allocators if op.direction == "out" else ())

    def _request(self, snapshot: Snapshot, kind: RequestType) -> tuple[dict[str, Any], str]:
        """Return the request, and the disk template whose storage the message covers."""
        if kind in _NEW:
            demand = self._demand(snapshot)
            return self._for_new(demand, kind), demand.disk_template
        instances = self._instances(snapshot, kind)
        templates = [instance.disk_template for instance in instances]
        template = next(
            (name for name in templates if DISK_TEMPLATES[name].has_disks),
            snapshot.cluster.enabled_disk_templates[0],
        )
        return self._for_known(snapshot, kind, instances), template

    def _for_new(self, demand: Demand, kind: RequestType) -> dict[str, Any]:
        op, spec = self.op, demand.message()
        if kind is RequestType.CAPACITY:
            return requests.capacity(demand.required_nodes, spec)
        if kind is RequestType.ALLOCATE:
            return requests.allocate(demand.name, demand.required_nodes, spec, op.group_name)
        names = [op.name] if op.count == 1 else [f"{op.name}-{n + 1}" for n in range(op.count)]
        return requests.multi_allocate(
            [requests.allocate(name, demand.required_nodes, spec, op.group_name) for name in names]
        )

    def _for_known(
        self, snapshot: Snapshot, kind: RequestType, instances: list[Instance]
    ) -> dict[str, Any]:
        op = self.op
        names = [instance.name for instance in instances]
        if kind is RequestType.NODE_EVACUATE:
            return requests.node_evacuate(names, op.evac_mode or "")
        if kind is RequestType.CHANGE_GROUP:
            groups = [resolve_group(snapshot, name).uuid for name in op.target_groups]
            return requests.change_group(names, groups)
        if kind is RequestType.MULTI_EVACUATE:
            return requests.multi_evacuate(
                resolve_node(snapshot, name).name for name in op.evac_nodes
            )
        if kind is RequestType.BALANCE:
            return requests.balance(op.max_moves)
        (instance,) = instances
        demand = Demand.of(snapshot.cluster, instance)
        leaves = snapshot.nodes[instance.all_nodes[-1]].name
        return requests.relocate(demand.name, 1, demand.disk_space_total, [leaves])

    def _instances(self, snapshot: Snapshot, kind: RequestType) -> list[Instance]:
        op = self.op
        if kind is RequestType.RELOCATE:
            return [resolve_instance(snapshot, full_name(snapshot, op.name))]
        return [resolve_instance(snapshot, full_name(snapshot, name)) for name in op.instances]

    def _demand(self, snapshot: Snapshot) -> Demand:
        op, cluster = self.op, snapshot.cluster
        template = check_template(op.disk_template, cluster)
        check_disks(op.disks, template)
        disks = tuple(
            Disk(uuid="", size=disk.size, mode=disk.mode, template=template.name)
            for disk in op.disks
        )
        return Demand(
            name=op.name,
            memory=op.memory,
            vcpus=op.vcpus,
            spindle_use=op.spindle_use,
            disks=disks,
            disk_space_total=disk_usage(cluster, disks),
            nics=tuple(_nic(snapshot, nic) for nic in op.nics),
            disk_template=template.name,
            hypervisor=op.hypervisor or cluster.enabled_hypervisors[0],
            os=op.os,
            tags=tuple(op.tags),
        )

    async def execute(self, ctx: UnitContext, plan: AllocatorPlan) -> Outcome:
        message = await cluster_message(ctx, plan.request, template=plan.template)
        if not plan.allocators:
            return Outcome(wire.encode(message).decode())
        answer = await ask_one(ctx, plan.allocators[0], message)
        return Outcome(wire.encode(answer).decode())


def _nic(snapshot: Snapshot, nic: NicRequest) -> dict[str, Any]:
    """Return an interface in an allocator's message, its network by UUID."""
    network = resolve_network(snapshot, nic.network).uuid if nic.network else None
    given = {"mode": nic.mode, "link": nic.link, "vlan": nic.vlan}
    params = {name: value for name, value in given.items() if value is not None}
    made = Nic(uuid="", mac=nic.mac, ip=nic.ip, network=network, nicparams=params)
    return nic_message(snapshot.cluster, made)
