"""A unit's declaration of the hooks that run around it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ganeti.config.snapshot import Snapshot
from ganeti.model.hooks import HOOKS, ObjectType
from ganeti.model.objects import Node, NodeUuid


class Later(Mapping[str, str]):
    """Variables that are put together once a hook needs them, which nearly no node has; from values that never change."""

    def __init__(self, make: Callable[[], dict[str, str]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> dict[str, str]:
        return self._make()

    def __getitem__(self, name: str) -> str:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


@dataclass(frozen=True)
class HookPoint:
    """One point of `model.hooks.HOOKS`: its variables, without their prefix, and its nodes."""

    hook: str
    variables: Mapping[str, str] = field(default_factory=dict)
    pre: tuple[Node, ...] = ()
    post: tuple[Node, ...] = ()
    about: ObjectType | None = None
    """None: the objects of the point itself."""

    @property
    def object_type(self) -> ObjectType:
        return self.about or HOOKS[self.hook]


def master_of(snapshot: Snapshot) -> Node:
    """The master's node."""
    return snapshot.nodes[snapshot.cluster.master_node]


def on_nodes(
    hook: str,
    variables: Mapping[str, str],
    snapshot: Snapshot,
    nodes: Iterable[NodeUuid] = (),
    post: Iterable[NodeUuid] | None = None,
) -> HookPoint:
    """Return a point on the master and on `nodes`; afterwards on `post`, if that differs."""
    master, before = snapshot.cluster.master_node, tuple(nodes)

    def on(uuids: Iterable[NodeUuid]) -> tuple[Node, ...]:
        known = (snapshot.nodes.get(uuid) for uuid in dict.fromkeys((master, *uuids)))
        return tuple(node for node in known if node is not None)

    return HookPoint(hook, variables, pre=on(before), post=on(before if post is None else post))
