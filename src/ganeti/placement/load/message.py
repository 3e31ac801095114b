"""Version 2 of the allocator's message (seed 004), as a description and a request."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import msgspec

from ganeti.base.errors import InputError
from ganeti.placement.description import Cluster, Group, Instance, Node
from ganeti.placement.load.text import DEFAULT_POLICY
from ganeti.placement.policy_form import AllocationPolicy, checked_policy

T = TypeVar("T")

_STATUS = {"up": "running", "down": "ADMIN_down", "offline": "ADMIN_offline"}


Number = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
"""Beyond these bounds floats are no longer exact."""


class _Disk(msgspec.Struct, gc=False):
    size: Number
    spindles: Number | None = None


class _Nic(msgspec.Struct, gc=False):
    network: str | None = None


class Wanted(msgspec.Struct, gc=False):
    """An instance in a message; a request also has a name and the number of nodes."""

    memory: Number
    vcpus: Number
    disk_template: str
    disk_space_total: Number
    disks: list[_Disk] = []
    nics: list[_Nic] = []
    tags: tuple[str, ...] = ()
    spindle_use: Number = 1
    nodes: list[str] = []
    admin_state: str = "up"
    name: str = ""
    required_nodes: int = 1

    def described(self, name: str) -> Instance:
        """Return the instance on its nodes; InputError if a required node is missing."""
        spindles = [one.spindles for one in self.disks]
        known = None if None in spindles else float(sum(one or 0 for one in spindles))
        nodes = self.nodes
        return Instance(
            name=name,
            memory=self.memory,
            disk=self.disk_space_total,
            vcpus=self.vcpus,
            status=_STATUS.get(self.admin_state, "running"),
            primary=nodes[0] if nodes else "",
            secondary=nodes[1] if len(nodes) > 1 else "",
            template=self.disk_template,
            tags=self.tags,
            spindle_use=self.spindle_use,
            spindles=known,
            disks=tuple([one.size for one in self.disks]),
            nics=len(self.nics),
            networks=tuple([one.network for one in self.nics if one.network]),
        )


class _NodeParameters(msgspec.Struct, frozen=True):
    spindle_count: Number = 1
    exclusive_storage: bool = False


class _Node(msgspec.Struct, gc=False):
    group: str
    offline: bool = False
    drained: bool = False
    vm_capable: bool | None = True
    total_memory: Number = 0
    reserved_memory: Number = 0
    free_memory: Number = 0
    total_disk: Number = 0
    free_disk: Number = 0
    total_cpus: Number = 0
    reserved_cpus: Number = 1
    total_spindles: Number = 0
    free_spindles: Number = 0
    tags: tuple[str, ...] = ()
    ndparams: _NodeParameters = _NodeParameters()
    primary_ip: str | None = None

    def described(self, name: str) -> Node:
        why = next(
            (
                word
                for word, holds in (
                    ("offline", self.offline),
                    ("drained", self.drained),
                    ("not vm_capable", self.vm_capable is False),
                )
                if holds
            ),
            "",
        )
        exclusive = self.ndparams.exclusive_storage
        if self.offline or self.vm_capable is False:
            # Live values in a message are outdated; upstream does not read them either.
            spindles = 0 if exclusive else self.ndparams.spindle_count
            return Node(name=name, group=self.group, node_cpus=0, offline=True, why_offline=why,
                        total_spindles=spindles, exclusive_storage=exclusive, tags=self.tags)  # fmt: skip
        return Node(
            name=name,
            group=self.group,
            total_memory=self.total_memory,
            node_memory=self.reserved_memory,
            free_memory=self.free_memory,
            total_disk=self.total_disk,
            free_disk=self.free_disk,
            total_cpus=self.total_cpus,
            node_cpus=self.reserved_cpus,
            offline=bool(why),
            why_offline=why or "offline",
            total_spindles=self.total_spindles if exclusive else self.ndparams.spindle_count,
            free_spindles=self.free_spindles,
            exclusive_storage=exclusive,
            tags=self.tags,
        )


class _Group(msgspec.Struct):
    name: str
    alloc_policy: AllocationPolicy = "preferred"
    networks: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    ipolicy: dict[str, Any] | None = None

    def described(self, uuid: str) -> Group:
        policy = DEFAULT_POLICY
        if self.ipolicy is not None:
            policy = checked_policy(self.ipolicy, f"nodegroups[{uuid}].ipolicy")
        return Group(self.name, uuid, self.alloc_policy, self.tags, self.networks, policy)


class _Message(msgspec.Struct):
    request: dict[str, Any]  # first: a message without a request is not a message of an allocator
    nodegroups: dict[str, _Group]
    nodes: dict[str, _Node]
    instances: dict[str, Wanted]
    cluster_tags: tuple[str, ...] = ()


class _Changes(msgspec.Struct):
    """A message whose instances are the new and changed ones, and whose nodes are null if they are the same."""

    request: dict[str, Any]
    nodegroups: dict[str, _Group]
    nodes: dict[str, _Node | None]
    instances: dict[str, Wanted]
    cluster_tags: tuple[str, ...] = ()


@dataclass
class Known:
    """The nodes and instances of the last message."""

    nodes: dict[str, Node] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    """The primary addresses of nodes, by name."""
    instances: dict[str, Instance] = field(default_factory=dict)


_FORM = "an allocator's message is a JSON object with nodegroups, nodes, instances and request"


def read(
    message: bytes | Mapping[str, Any], source: str = "message"
) -> tuple[Cluster, dict[str, Any]]:
    """Return (cluster, request) of a message, encoded or not; InputError names `source` and the fault.

    Scripts match the first words of these errors, so those words are upstream's.
    """
    parsed = _parsed(message, source, _Message)
    nodes = [one.described(name) for name, one in parsed.nodes.items()]
    instances = [_on_nodes(name, one) for name, one in parsed.instances.items()]
    return _cluster(parsed, nodes, instances), parsed.request


def read_changes(
    message: bytes, known: Known, gone: Iterable[str]
) -> tuple[Cluster, dict[str, Any]]:
    """Read a message that has only what is new and changed; `known` has that of the last one, and is changed.

    `gone` are the instances that it has no more. InputError: `known` is then of no use.
    """
    parsed = _parsed(message, "message", _Changes)
    instances = known.instances
    for name in gone:
        instances.pop(name, None)
    instances.update((name, _on_nodes(name, one)) for name, one in parsed.instances.items())
    try:
        known.nodes = {
            name: known.nodes[name] if one is None else one.described(name)
            for name, one in parsed.nodes.items()
        }
    except KeyError as err:
        raise InputError("is not known", f"nodes[{err.args[0]}]") from None
    known.addresses.update(
        (name, one.primary_ip or "") for name, one in parsed.nodes.items() if one is not None
    )
    return _cluster(parsed, list(known.nodes.values()), list(instances.values())), parsed.request


def _parsed(message: bytes | Mapping[str, Any], source: str, form: type[T]) -> T:
    try:
        if isinstance(message, bytes):
            return msgspec.json.decode(message, type=form)
        return msgspec.convert(message, form)
    except msgspec.ValidationError as err:
        raise InputError(
            f"invalid iallocator message: {_wrong(err)}, in {source}; {_FORM}"
        ) from err
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        why = f"is not JSON ({err})" if message else "is empty"
        raise InputError(
            f"Parsing input IAllocator message: Invalid JSON: {source} {why}; {_FORM}"
        ) from err


def _cluster(
    parsed: _Message | _Changes, nodes: Sequence[Node], instances: Sequence[Instance]
) -> Cluster:
    return Cluster(
        groups=[one.described(uuid) for uuid, one in parsed.nodegroups.items()],
        nodes=nodes,
        instances=instances,
        tags=parsed.cluster_tags,
        policy=DEFAULT_POLICY,  # upstream's tools do not read the cluster's policy here either
    )


def _on_nodes(name: str, wanted: Wanted) -> Instance:
    if not wanted.nodes:
        raise InputError("has no nodes", f"instances[{name}]")
    return wanted.described(name)


def wanted_instance(request: Mapping[str, Any]) -> Instance:
    """Return the instance that a request describes; InputError if it is malformed."""
    try:
        wanted = msgspec.convert(request, Wanted)
    except (msgspec.ValidationError, RecursionError) as err:
        raise InputError(f"invalid request dict: {_wrong(err)}") from err
    one = wanted.described(wanted.name)
    if one.nodes_needed != wanted.required_nodes:
        raise InputError(
            f"is {wanted.required_nodes}, but {one.template} needs {one.nodes_needed}",
            "request.required_nodes",
        )
    return one


def names(request: Mapping[str, Any], key: str) -> Sequence[str]:
    """Return a list of names in a request; InputError if it is malformed."""
    try:
        found: list[str] = msgspec.convert(request.get(key), list[str])
    except msgspec.ValidationError as err:
        raise InputError(f"invalid request dict: key '{key}': {_wrong(err)}") from err
    return found


def instance_name(request: Mapping[str, Any]) -> str:
    """Return the name in a request; InputError if it is malformed."""
    try:
        return msgspec.convert(request.get("name"), str)
    except msgspec.ValidationError as err:
        raise InputError(f"invalid request dict: key 'name': {_wrong(err)}") from err


def _wrong(err: Exception) -> str:
    """Return the complaint of msgspec in upstream's words."""
    what, _, path = str(err).partition(" - at `$")
    what = re.sub(r"Object missing required field `(\w+)`", r"key '\1' not found", what)
    for ours, theirs in (("str", "String"), ("object", "JSObject")):
        what = re.sub(f"Expected `{ours}`, got `(.+)`", rf"Unable to read {theirs}, got \1", what)
    key = path.strip(".`")
    return f"key '{key}': {what}" if key else what
