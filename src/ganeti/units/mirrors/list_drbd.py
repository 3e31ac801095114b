"""The mirrored devices of a node: the configured ones, and those that exist."""

from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.requests import LockRequest
from ganeti.model.objects import Node, NodeUuid
from ganeti.model.opcodes.mirrors import OpNodeListDrbd
from ganeti.rpc.procedures.disks import MIRRORED_DEVICES
from ganeti.rpc.procedures.form import Nothing
from ganeti.units.base import LogicalUnit
from ganeti.units.cluster.mirror_findings import minors
from ganeti.units.context import UnitContext
from ganeti.units.node_choice import check_online

Row = list[str | int]


def numbered(snapshot: Snapshot, node: Node) -> dict[str, Row]:
    """Return, by UUIDs of disks, the rows of the node's configured devices."""
    here, found = NodeUuid(node.uuid), dict[str, Row]()
    for uuid, (number, instance, at) in minors(snapshot, node).items():
        others = [snapshot.nodes[one].name for one in instance.disks[at].parts if one != here]
        role = "primary" if here == instance.primary_node else "secondary"
        found[uuid] = [
            *(node.name, number, instance.name, f"disk/{at}", role, ",".join(others), "-")
        ]
    return found


class LUNodeListDrbd(LogicalUnit[OpNodeListDrbd, Node]):
    """List the devices by their numbers."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        del snapshot
        return []

    async def check_prereq(self, ctx: UnitContext) -> Node:
        node = resolve_node(ctx.snapshot, self.op.node_uuid or self.op.node_name)
        check_online(node)
        return node

    async def execute(self, ctx: UnitContext, plan: Node) -> Outcome:
        rows = numbered(ctx.snapshot, plan)
        for device in await ctx.call(plan, MIRRORED_DEVICES, Nothing()):
            row = rows.setdefault(
                device.name, [plan.name, device.number, "", "", "nobody's", device.name, "-"]
            )
            row[-1] = device.state
        return Outcome(sorted(rows.values(), key=lambda one: (one[1], one[2])))
