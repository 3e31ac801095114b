"""Who claims what: names, addresses and files that two objects must never share (G11).

The index goes with a snapshot and changes with it, so that a check costs as much as the change.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from ganeti.config.fill import filled_nicparams
from ganeti.model.objects import Cluster, Instance, Node, NodeGroup

Claimable = Node | NodeGroup | Instance


class Claim(NamedTuple):
    """Something that only one object may have; `kind` is the word that an error shows."""

    kind: str
    value: str


class Conflict(NamedTuple):
    """A claim that another object (`owner`, a UUID) has already."""

    claim: Claim
    owner: str


def claims_of(cluster: Cluster, thing: Claimable) -> list[Claim]:
    """All that an object claims."""
    if isinstance(thing, Instance):
        return list(_claims_of_instance(cluster, thing))
    if isinstance(thing, Node):
        return list(_claims_of_node(thing))
    return [Claim("group name", thing.name)]


def _claims_of_node(node: Node) -> Iterator[Claim]:
    # Nodes and instances are both hosts on the network: one name, one host.
    yield Claim("host name", node.name)
    for address in sorted({node.primary_ip, node.secondary_ip} - {""}):
        yield Claim("node address", f"{address} port {node.port}")
    if node.certificate:
        yield Claim("certificate", node.certificate)


def _claims_of_instance(cluster: Cluster, instance: Instance) -> Iterator[Claim]:
    yield Claim("host name", instance.name)
    for nic in instance.nics:
        yield Claim("UUID", nic.uuid)
        yield Claim("MAC address", nic.mac)
        if nic.ip:
            link = filled_nicparams(cluster, nic).get("link", "")
            yield Claim("IP address", f"{nic.ip} on {link}")
    if instance.network_port is not None:
        yield Claim("network port", str(instance.network_port))
    for disk in instance.disks:
        yield Claim("UUID", disk.uuid)
        if disk.logical_id:
            yield Claim("disk", " ".join(str(part) for part in disk.logical_id))


class Index:
    """Claims and their owners, and the instances of each node."""

    def __init__(
        self,
        claims: Mapping[str, Mapping[str, str]] | None = None,
        users: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self._claims: dict[str, Mapping[str, str]] = dict(claims or {})
        self._users: dict[str, frozenset[str]] = dict(users or {})

    def owner(self, kind: str, value: str) -> str | None:
        """The UUID of the object that claims this."""
        return self._claims.get(kind, {}).get(value)

    @property
    def is_empty(self) -> bool:
        return not self._claims

    def instances_of(self, node_uuid: str) -> frozenset[str]:
        """UUIDs of the instances with this node as primary or secondary."""
        return self._users.get(node_uuid, frozenset())


class IndexDraft(Index):
    """An index that follows the changes of a draft; copies only what changes."""

    def __init__(self, base: Index) -> None:
        super().__init__(base._claims, base._users)  # noqa: SLF001 - the same class
        self._copied: set[str] = set()

    def replace(
        self, cluster: Cluster, old: Claimable | None, new: Claimable | None
    ) -> Conflict | None:
        """Let `new` take the place of `old`; on a conflict nothing is changed and it is returned."""
        before = set() if old is None else set(claims_of(cluster, old))
        after = [] if new is None else claims_of(cluster, new)
        uuid = "" if new is None else new.uuid
        for claim in after:
            owner = self.owner(*claim)
            if owner is not None and owner != uuid:
                return Conflict(claim, owner)
        if len(set(after)) < len(after):
            twice = next(claim for claim in after if after.count(claim) > 1)
            return Conflict(twice, uuid)
        for claim in before - set(after):
            del self._writable(claim.kind)[claim.value]
        for claim in set(after) - before:
            self._writable(claim.kind)[claim.value] = uuid
        self._replace_users(old, new)
        return None

    def finished(self) -> Index:
        """The index as it is now; the draft must not be changed any more."""
        return Index(self._claims, self._users)

    def _writable(self, kind: str) -> dict[str, str]:
        found = self._claims.get(kind, {})
        if kind in self._copied and isinstance(found, dict):
            return found
        copy = dict(found)
        self._claims[kind] = copy
        self._copied.add(kind)
        return copy

    def _replace_users(self, old: Claimable | None, new: Claimable | None) -> None:
        before = set(old.all_nodes) if isinstance(old, Instance) else set()
        after = set(new.all_nodes) if isinstance(new, Instance) else set()
        for node_uuid in before - after:
            left = self._users[node_uuid] - {old.uuid if old else ""}
            if left:
                self._users[node_uuid] = left
            else:
                del self._users[node_uuid]
        for node_uuid in after - before:
            self._users[node_uuid] = self.instances_of(node_uuid) | {new.uuid if new else ""}


def index_of(
    cluster: Cluster, *parts: Iterable[Claimable]
) -> tuple[Index, list[tuple[Claimable, Conflict]]]:
    """An index of everything, made at once, and what is claimed twice (the first one has it)."""
    claims: dict[str, dict[str, str]] = {}
    users: dict[str, set[str]] = {}
    conflicts: list[tuple[Claimable, Conflict]] = []
    for thing in chain.from_iterable(parts):
        for claim in claims_of(cluster, thing):
            owner = claims.setdefault(claim.kind, {}).setdefault(claim.value, thing.uuid)
            if owner != thing.uuid:
                conflicts.append((thing, Conflict(claim, owner)))
        if isinstance(thing, Instance):
            for node_uuid in thing.all_nodes:
                users.setdefault(node_uuid, set()).add(thing.uuid)
    frozen = {node_uuid: frozenset(uuids) for node_uuid, uuids in users.items()}
    return Index(claims, frozen), conflicts
