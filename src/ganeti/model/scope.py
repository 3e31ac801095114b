"""The instances and other objects to which a user of the REST interface is limited."""

import fnmatch
from collections.abc import Iterable

import msgspec

from ganeti.model.fields import RefersTo

BY_PATTERN = (
    RefersTo.NODE,
    RefersTo.GROUP,
    RefersTo.NETWORK,
    RefersTo.IMAGE,
    RefersTo.LINK,
    RefersTo.DIRECTORY,
    RefersTo.STORAGE,
    RefersTo.PATH,
)
"""Objects that belong to no instance: the users file lists those that a limited user may name."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The instances that a limited user sees and changes, and the other objects that the user may name in requests."""

    names: tuple[str, ...] = ()
    """Patterns of names, for example `web*`."""
    tags: frozenset[str] = frozenset()
    others: tuple[tuple[str, str], ...] = ()
    """Pairs of a kind and a pattern, for example `("node", "node1*")`; see `BY_PATTERN`."""

    @property
    def is_restricted(self) -> bool:
        """True if the user is limited at all."""
        return bool(self.names or self.tags)

    def has(self, name: str, tags: Iterable[str]) -> bool:
        """Return whether an instance is within the scope."""
        return self.has_name(name) or not self.tags.isdisjoint(tags)

    def has_name(self, name: str) -> bool:
        """Return whether an instance of this name is within the scope, whatever its tags."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names)

    def has_other(self, kind: RefersTo, text: str) -> bool:
        """Return whether the users file lets the user name this object; a path with `..` never matches."""
        return ".." not in text.split("/") and any(
            kind.value == word and fnmatch.fnmatchcase(text, pattern)
            for word, pattern in self.others
        )

    def for_jobs_of_a_job(self) -> "Scope":
        """Return the scope of jobs that a job of this scope submits: the master chooses their nodes and groups."""
        every = tuple((kind.value, "*") for kind in BY_PATTERN)
        return msgspec.structs.replace(self, others=every)
