"""Rules from tags: mutual exclusion of instances, failure domains, desired locations, migration.

Cluster tags enable them: `htools:iextags:P` (instances that share a tag `P:…` exclude each other),
`htools:nlocation:P` (nodes that share a tag `P:…` fail together), `htools:desiredlocation:P` (instances prefer nodes
with the location tag), `htools:migration:P` and `htools:allowmigration:X::Y` (allowed migrations).
"""

import copy
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ganeti.placement.description import Cluster, Instance

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

EXCLUSION, LOCATION = "htools:iextags:", "htools:nlocation:"
DESIRED, MIGRATION = "htools:desiredlocation:", "htools:migration:"
ALLOWED = "htools:allowmigration:"


class TagRules:
    """The rules of one cluster as matrices; rules that no tag enables have no rows and cost nothing."""

    def __init__(self, cluster: Cluster, primary: Indices, exclusion: Sequence[str] = ()) -> None:
        tags = cluster.tags
        nodes, instances = cluster.nodes, cluster.instances
        self._exclusion = (*_suffixes(tags, EXCLUSION), *exclusion)
        self._desired = _suffixes(tags, DESIRED)
        self._names = _known(
            _under(one.tags, self._exclusion)
            for one in (instances if self._exclusion else ())
            if one.tags
        )
        locations = _suffixes(tags, LOCATION)
        self._places = _known(_under(one.tags, locations) for one in (nodes if locations else ()))
        self.location = _matrix(self._places, [one.tags for one in nodes]).T
        """(locations, nodes): 1 where the node has the location tag."""
        self.exclusive = self._of(instances, self._names, self._exclusion)
        """(instances, tags): 1 where the instance has the exclusion tag."""
        self.desired = self._of(instances, self._places, self._desired)
        self.desires = self._number_of_desires(instances)
        self.counts = np.zeros((len(self._names), len(nodes)))
        """(tags, nodes): how many primaries have the tag."""
        np.add.at(self.counts.T, primary, self.exclusive)
        self.forbidden = _forbidden(tags, [one.tags for one in nodes])
        """(from, to): True where a migration is not possible; None if all are possible."""

    def _of(
        self, given: Sequence[Instance], names: dict[str, int], prefixes: Sequence[str]
    ) -> Floats:
        if not names or not prefixes:
            return np.zeros((len(given), len(names)))
        return _matrix(names, [_under(one.tags, prefixes) for one in given])

    def _number_of_desires(self, given: Sequence[Instance]) -> Floats:
        if not self._desired:
            return np.zeros(len(given))
        return np.array([len(_under(one.tags, self._desired)) for one in given], dtype=np.float64)

    @property
    def has_exclusion(self) -> bool:
        return len(self._names) > 0

    @property
    def has_locations(self) -> bool:
        return len(self._places) > 0

    def copy(self) -> "TagRules":
        twin = copy.copy(self)
        twin.counts = self.counts.copy()
        return twin

    def admit(self, wanted: Sequence[Instance]) -> None:
        """Append instances that are on no node yet."""
        fresh = _known([self._names, *(_under(one.tags, self._exclusion) for one in wanted)])
        missing = len(fresh) - len(self._names)
        if missing:
            self._names = fresh
            self.counts = np.pad(self.counts, ((0, missing), (0, 0)))
            self.exclusive = np.pad(self.exclusive, ((0, 0), (0, missing)))
        self.exclusive = np.vstack([self.exclusive, self._of(wanted, self._names, self._exclusion)])
        self.desired = np.vstack([self.desired, self._of(wanted, self._places, self._desired)])
        self.desires = np.concatenate([self.desires, self._number_of_desires(wanted)])

    def dismiss(self, number: int) -> None:
        """Remove the last instances, which are on no node."""
        self.exclusive, self.desired = self.exclusive[:-number], self.desired[:-number]
        self.desires = self.desires[:-number]

    def count(self, index: int, node: int, sign: float) -> None:
        """Count an instance that became (1) or ceased to be (-1) primary on a node."""
        if self.has_exclusion:
            self.counts[:, node] += sign * self.exclusive[index]

    def clashes(self, which: Indices) -> Floats:
        """Return (instances, nodes): how many of the instance's exclusion tags a primary of the node has."""
        return self.exclusive[which] @ (self.counts >= 1)

    def relief(self, which: Indices, node: Indices) -> Floats:
        """Return how many clashes end if each instance leaves its primary `node`."""
        return np.asarray((self.exclusive[which] * (self.counts[:, node].T > 1)).sum(axis=1))

    def conflicts(self) -> Floats:
        """Return, by node, the primaries beyond the first of each exclusion tag."""
        return np.asarray(np.maximum(0.0, self.counts - 1).sum(axis=0))

    def shared_places(self) -> Floats:
        """Return (nodes, nodes): how many failure domains two nodes share."""
        shared: Floats = self.location.T @ self.location
        return shared

    def unmet(self, which: Indices) -> Floats:
        """Return (instances, nodes): the desired locations that this primary does not provide."""
        return self.desires[which, None] - self.desired[which] @ self.location

    def same_domain(self, online: Floats) -> float:
        """Return the primaries with the same exclusion tag in the same failure domain, beyond the first of each."""
        together = self.location @ (self.counts * online).T
        return float(np.maximum(0.0, together - 1).sum())

    def same_domain_change(self, which: Indices, source: Indices, online: Floats) -> Floats:
        """Return (instances, nodes): the change of `same_domain` if the primary moves from `source` to the node."""
        together = self.location @ (self.counts * online).T  # (locations, tags)
        gained = self.exclusive[which] @ (together >= 1).T
        lost = self.exclusive[which] @ (together > 1).T
        here = self.location[:, source].T * online[source, None]
        change: Floats = (gained * (1 - here)) @ self.location - (lost * here) @ (1 - self.location)
        return change


def _suffixes(tags: Iterable[str], prefix: str) -> tuple[str, ...]:
    found = (tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix))
    return tuple(one for one in found if one)


def _under(tags: Sequence[str], prefixes: Sequence[str]) -> tuple[str, ...]:
    """Return the tags `P:…` of the prefixes P; a prefix ends at a colon, so `rack` does not match `rack-2:a`."""
    whole = tuple(f"{one.removesuffix(':')}:" for one in prefixes)
    return tuple(tag for tag in tags if tag.startswith(whole)) if tags else ()


def _known(groups: Iterable[Iterable[str]]) -> dict[str, int]:
    names: dict[str, int] = {}
    for group in groups:
        for name in group:
            names.setdefault(name, len(names))
    return names


def _matrix(names: dict[str, int], rows: Sequence[Sequence[str]]) -> Floats:
    matrix = np.zeros((len(rows), len(names)))
    if names:
        for number, row in enumerate(rows):
            for name in row:
                if name in names:
                    matrix[number, names[name]] = 1
    return matrix


def _forbidden(tags: Sequence[str], rows: Sequence[Sequence[str]]) -> npt.NDArray[np.bool_] | None:
    """Return the forbidden migrations: the target needs all migration tags of the source, or substitutes."""
    prefixes = _suffixes(tags, MIGRATION)
    if not prefixes:
        return None
    allowed: dict[str, set[str]] = {}
    for rule in _suffixes(tags, ALLOWED):
        wanted, _, receiver = rule.partition("::")
        allowed.setdefault(receiver, set()).add(wanted)
    own = [set(_under(row, prefixes)) for row in rows]
    taken = [
        one.union(*(allowed.get(tag, set()) for tag in row))
        for one, row in zip(own, rows, strict=True)
    ]
    return np.array([[not source <= target for target in taken] for source in own], dtype=bool)
