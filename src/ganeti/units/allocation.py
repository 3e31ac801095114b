"""Asking an allocator where an instance is to go."""

from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.fill import filled_beparams, filled_ipolicy, filled_ndparams, filled_nicparams
from ganeti.config.snapshot import Snapshot
from ganeti.model import wire
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Cluster, Disk, Instance, Nic, Node, NodeGroup
from ganeti.model.params import IPOLICY_DEFAULTS
from ganeti.placement.policy import InstanceSize
from ganeti.protocols import iallocator
from ganeti.rpc.procedures.host import NODE_INFO, NodeInfo
from ganeti.rpc.procedures.programs import ALLOCATOR_RUN, AllocatorArgs, AllocatorOutput
from ganeti.units.context import UnitContext
from ganeti.units.node_choice import info_args, less_planned
from ganeti.units.placements import Placement


@dataclass(frozen=True)
class Demand:
    """What an instance needs of a node; sizes in MiB."""

    name: str
    memory: int
    vcpus: int
    spindle_use: int
    disks: tuple[Disk, ...]
    nics: tuple[dict[str, Any], ...]
    disk_template: str
    hypervisor: str
    os: str
    tags: tuple[str, ...]

    @classmethod
    def of(cls, cluster: Cluster, instance: Instance) -> "Demand":
        """What `instance` needs, defaults included."""
        beparams = filled_beparams(cluster, instance)
        return cls(
            name=instance.name,
            memory=beparams["maxmem"],
            vcpus=beparams["vcpus"],
            spindle_use=beparams["spindle_use"],
            disks=instance.disks,
            nics=tuple(_nic(cluster, nic) for nic in instance.nics),
            disk_template=instance.disk_template,
            hypervisor=instance.hypervisor,
            os=instance.os,
            tags=instance.tags,
        )

    def size(self) -> InstanceSize:
        """What an instance policy looks at."""
        disks = tuple(disk.size for disk in self.disks)
        return InstanceSize(
            self.memory, self.vcpus, disks, len(self.nics), self.disk_template, self.spindle_use
        )

    @property
    def disk_space_total(self) -> int:
        return sum(disk.size for disk in self.disks)

    @property
    def required_nodes(self) -> int:
        return DISK_TEMPLATES[self.disk_template].nodes_needed

    def message(self) -> dict[str, Any]:
        """The demand in the allocator's form (S171)."""
        return {
            "memory": self.memory,
            "vcpus": self.vcpus,
            "spindle_use": self.spindle_use,
            "disks": [
                {"mode": disk.mode, "size": disk.size, "spindles": None} for disk in self.disks
            ],
            "disk_space_total": self.disk_space_total,
            "disk_template": self.disk_template,
            "nics": list(self.nics),
            "hypervisor": self.hypervisor,
            "os": self.os,
            "tags": list(self.tags),
        }


def _nic(cluster: Cluster, nic: Nic) -> dict[str, Any]:
    params = filled_nicparams(cluster, nic)
    bridge = params["link"] if params["mode"] == "bridged" else None
    return {
        "ip": nic.ip,
        "mac": nic.mac,
        "mode": params["mode"],
        "link": params["link"],
        "bridge": bridge,
    }


@dataclass(frozen=True)
class Wish:
    """What is asked of an allocator for one instance."""

    demand: Demand
    will_run: bool = True
    relocate_from: Node | None = None
    ignore_policy: bool = False

    def placed_on(self, ctx: UnitContext, node: Node) -> Placement:
        """The placement that granting the wish on `node` makes."""
        message = {
            **self.demand.message(),
            "admin_state": AdminState.UP if self.will_run else AdminState.DOWN,
            "nodes": [node.name],
        }
        return Placement(ctx.job_id, node.uuid, self.demand.name, message, self.will_run)


async def choose_nodes(ctx: UnitContext, allocator: str, wish: Wish) -> list[Node]:
    """The nodes that `allocator` names for the instance; PrereqError says why there are none (S182)."""
    placements = ctx.services.placements
    async with placements.deciding:
        message = await allocator_message(ctx, wish)
        answer = iallocator.parse_answer(
            allocator, (await run_allocator(ctx, allocator, message)).stdout
        )
        nodes = []
        for name in iallocator.chosen_names(allocator, answer, wish.demand.required_nodes):
            node = ctx.snapshot.node_by_name(name)
            if node is None or node.offline or node.drained or not node.vm_capable:
                raise PrereqError(
                    f"iallocator '{allocator}' chose {name!r:.80}, which is not a node that takes instances",
                    ErrorCode.ENVIRONMENT,
                )
            nodes.append(node)
        placements.place(wish.placed_on(ctx, nodes[0]))
    return nodes


async def run_allocator(
    ctx: UnitContext, allocator: str, message: dict[str, Any]
) -> AllocatorOutput:
    """Run the program on the master; its failure is reported with all that it said (S162)."""
    problem = f"Can't compute nodes using iallocator '{allocator}'"
    master = ctx.snapshot.nodes[ctx.snapshot.cluster.master_node]
    text = wire.encode(message).decode()
    try:
        output: AllocatorOutput = await ctx.call(
            master, ALLOCATOR_RUN, AllocatorArgs(name=allocator, message=text)
        )
    except RpcError as err:
        raise PrereqError(f"{problem}: {err}", ErrorCode.ENVIRONMENT) from err
    if not output.found:
        raise PrereqError(
            f"Can't find iallocator '{allocator}' on {master.name}: no directory of its search path has it",
            ErrorCode.UNKNOWN_ENTITY,
        )
    if output.status:
        said = f"{output.stdout}{output.stderr}".strip()
        raise PrereqError(
            f"{problem}: it ended with status {output.status}: {said}", ErrorCode.ENVIRONMENT
        )
    return output


async def allocator_message(ctx: UnitContext, wish: Wish) -> dict[str, Any]:
    """What an allocator is sent for one instance; nodes are asked for what is free now."""
    snapshot, demand = ctx.snapshot, wish.demand
    pending = ctx.services.placements.pending()
    answers = await ctx.call_all(snapshot.online_nodes(), NODE_INFO, info_args(snapshot))
    nodes = {}
    for node in snapshot.nodes.values():
        answer = answers.get(node.uuid)
        if answer is not None and not isinstance(answer, RpcError):
            info = less_planned(answer, snapshot, node, pending)
            nodes[node.name] = _node(snapshot, node) | _live(info, demand.disk_template)
        else:
            nodes[node.name] = _node(snapshot, node) | {"offline": True}
    instances = {
        instance.name: _instance(snapshot, instance) for instance in snapshot.instances.values()
    }
    for placement in pending:
        instances.setdefault(placement.name, placement.message)
    cluster = snapshot.cluster
    return iallocator.message(
        {
            "cluster_name": cluster.name,
            "cluster_tags": list(cluster.tags),
            "enabled_hypervisors": list(cluster.enabled_hypervisors),
            "ipolicy": filled_ipolicy(cluster, None),
        },
        {group.uuid: _group(cluster, group, wish) for group in snapshot.groups.values()},
        nodes,
        instances,
        _request(wish),
    )


def _request(wish: Wish) -> dict[str, Any]:
    request = {
        "type": "allocate",
        "name": wish.demand.name,
        "required_nodes": wish.demand.required_nodes,
        **wish.demand.message(),
    }
    if wish.relocate_from is None:
        return request
    return request | {"type": "relocate", "relocate_from": [wish.relocate_from.name]}


def _group(cluster: Cluster, group: NodeGroup, wish: Wish) -> dict[str, Any]:
    ipolicy = filled_ipolicy(cluster, group)
    if wish.ignore_policy:
        ipolicy = {**ipolicy, "minmax": IPOLICY_DEFAULTS["minmax"]}
    return {
        "name": group.name,
        "alloc_policy": group.alloc_policy,
        "networks": list(group.networks),
        "ipolicy": ipolicy,
        "tags": list(group.tags),
    }


def _instance(snapshot: Snapshot, instance: Instance) -> dict[str, Any]:
    is_up = instance.admin_state is AdminState.UP
    return {
        **Demand.of(snapshot.cluster, instance).message(),
        "admin_state": instance.admin_state,
        "admin_state_source": "admin",
        "should_run": is_up,
        "nodes": [snapshot.nodes[uuid].name for uuid in instance.all_nodes],
    }


def _node(snapshot: Snapshot, node: Node) -> dict[str, Any]:
    """What the configuration says about one node, in the allocator's form (S167, X14)."""
    primaries = snapshot.instances_on(node.uuid)
    memory = [filled_beparams(snapshot.cluster, instance)["maxmem"] for instance in primaries]
    up = [
        size
        for size, instance in zip(memory, primaries, strict=True)
        if instance.admin_state is AdminState.UP
    ]
    ndparams = filled_ndparams(snapshot, node)
    return {
        "tags": list(node.tags),
        "primary_ip": node.primary_ip,
        "secondary_ip": node.secondary_ip,
        "offline": node.offline,
        "drained": node.drained,
        "master_candidate": node.master_candidate,
        "master_capable": node.master_capable,
        "vm_capable": node.vm_capable,
        "group": node.group,
        "ndparams": {
            key: ndparams[key] for key in ("spindle_count", "exclusive_storage", "oob_program")
        },
        "hv_state": {},
        "disk_state": {},
        "i_pri_memory": sum(memory),
        "i_pri_up_memory": sum(up),
    }


def _live(info: NodeInfo, template: str) -> dict[str, Any]:
    """What a node has now, as the allocator is told; only nodes that answered have it."""
    space = next((space for space in info.storage if space.kind == template), None)
    return {
        "total_memory": info.memory_total,
        "reserved_memory": info.memory_node,
        "free_memory": info.memory_free,
        "total_disk": space.total if space else 0,
        "free_disk": space.free if space else 0,
        "total_spindles": 0,
        "free_spindles": 0,
        "total_cpus": info.cpu_total,
        "reserved_cpus": info.cpu_node,
    }
