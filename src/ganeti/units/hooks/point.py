"""What a unit says about the hooks that run around it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ganeti.config.snapshot import Snapshot
from ganeti.model.hooks import HOOKS, ObjectType
from ganeti.model.objects import Node, NodeUuid


@dataclass(frozen=True)
class HookPoint:
    """One of the places of `model.hooks.HOOKS`: its variables, without their prefix, and on which nodes it is."""

    hook: str
    variables: Mapping[str, str] = field(default_factory=dict)
    pre: tuple[Node, ...] = ()
    post: tuple[Node, ...] = ()

    @property
    def object_type(self) -> ObjectType:
        return HOOKS[self.hook]


def master_of(snapshot: Snapshot) -> Node:
    """The master's node."""
    return snapshot.nodes[snapshot.cluster.master_node]


def on_nodes(
    hook: str, variables: Mapping[str, str], snapshot: Snapshot, nodes: Iterable[NodeUuid] = ()
) -> HookPoint:
    """A place on the master and on `nodes`, before and after."""
    uuids = dict.fromkeys((snapshot.cluster.master_node, *nodes))
    on = tuple(snapshot.nodes[uuid] for uuid in uuids if uuid in snapshot.nodes)
    return HookPoint(hook, variables, pre=on, post=on)
