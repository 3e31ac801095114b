"""An index of claims: names, addresses and files that two objects must never share (G11).

Each snapshot has its index, which changes with it, so that a check costs as much as the change.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ganeti.model.objects import NodeUuid


class Claim(NamedTuple):
    """A value that only one object may have; `kind` is its name in errors."""

    kind: str
    value: str


class Entry(NamedTuple):
    """The index entry of one object: its claims, and its nodes."""

    uuid: str
    claims: tuple[Claim, ...] = ()
    nodes: tuple[str, ...] = ()


NOTHING = Entry("")


class Conflict(NamedTuple):
    """A claim of one object that another one (`owner`) has already; both are UUIDs."""

    claim: Claim
    claimant: str
    owner: str


def part_claim(template: str, node: NodeUuid, part: tuple[str | int, ...]) -> Claim:
    """Return the claim for a node's name of a part of a disk layer, unique within the template."""
    return Claim(f"{template} on a node", f"{node} {' '.join(str(word) for word in part)}")


def address_claim(network: str, ip: str) -> Claim:
    """Return the claim for an address of a network, by its UUID."""
    return Claim("IP address", f"{ip} in {network}")


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
        """Return the UUID of the object that claims this."""
        return self._claims.get(kind, {}).get(value)

    @property
    def is_empty(self) -> bool:
        return not self._claims

    def instances_of(self, node_uuid: str) -> frozenset[str]:
        """Return the UUIDs of the instances with this node as primary or secondary."""
        return self._users.get(node_uuid, frozenset())


class IndexDraft(Index):
    """An index that follows the changes of a draft; copies only changed parts."""

    def __init__(self, base: Index) -> None:
        super().__init__(base._claims, base._users)  # noqa: SLF001 - the same class
        self._copied: set[str] = set()

    def replace(self, old: Entry, new: Entry) -> Conflict | None:
        """Replace `old` (`NOTHING`: none) with `new`; after a conflict nothing is changed."""
        for claim in new.claims:
            owner = self.owner(*claim)
            if owner is not None and owner != new.uuid:
                return Conflict(claim, new.uuid, owner)
        before, after = set(old.claims), set(new.claims)
        if len(after) < len(new.claims):
            twice = next(claim for claim in new.claims if new.claims.count(claim) > 1)
            return Conflict(twice, new.uuid, new.uuid)
        for claim in before - after:
            del self._writable(claim.kind)[claim.value]
        for claim in after - before:
            self._writable(claim.kind)[claim.value] = new.uuid
        self._replace_users(old, new)
        return None

    def finished(self) -> Index:
        """Return the present index; the draft must not be changed afterwards."""
        return Index(self._claims, self._users)

    def _writable(self, kind: str) -> dict[str, str]:
        found = self._claims.get(kind, {})
        if kind in self._copied and isinstance(found, dict):
            return found
        copy = dict(found)
        self._claims[kind] = copy
        self._copied.add(kind)
        return copy

    def _replace_users(self, old: Entry, new: Entry) -> None:
        before, after = set(old.nodes), set(new.nodes)
        for node_uuid in before - after:
            left = self._users[node_uuid] - {old.uuid}
            if left:
                self._users[node_uuid] = left
            else:
                del self._users[node_uuid]
        for node_uuid in after - before:
            self._users[node_uuid] = self.instances_of(node_uuid) | {new.uuid}


def index_of(entries: Iterable[Entry]) -> tuple[Index, list[Conflict]]:
    """Return an index of all objects, and the conflicting claims (the first owner keeps them)."""
    claims: dict[str, dict[str, str]] = {}
    users: dict[str, set[str]] = {}
    conflicts: list[Conflict] = []
    for entry in entries:
        for claim in entry.claims:
            owner = claims.setdefault(claim.kind, {}).setdefault(claim.value, entry.uuid)
            if owner != entry.uuid:
                conflicts.append(Conflict(claim, entry.uuid, owner))
        for node_uuid in entry.nodes:
            users.setdefault(node_uuid, set()).add(entry.uuid)
    frozen = {node_uuid: frozenset(uuids) for node_uuid, uuids in users.items()}
    return Index(claims, frozen), conflicts
