"""OS definitions that the administrator hides or forbids, whether or not they exist (S154)."""

from collections.abc import Iterable, Sequence

from ganeti.base.errors import InputError
from ganeti.base.identifiers import plain_name
from ganeti.model.objects import Cluster

ADD, REMOVE = "add", "remove"
OsChanges = Sequence[tuple[str, str]]
"""Pairs of `add` or `remove` and a name, in order."""
FIELDS = ("hidden_os", "blacklisted_os")


def base_name(os: str) -> str:
    """The name without its variant."""
    return os.partition("+")[0]


def is_blacklisted(cluster: Cluster, os: str) -> bool:
    """Whether new instances may not be installed from an OS, whatever its variant (S156, S157)."""
    return base_name(os) in cluster.blacklisted_os


def changed_os_list(old: Iterable[str], changes: OsChanges, field: str) -> tuple[str, ...]:
    """The names after the changes, in order of the alphabet; InputError.

    To add what is there or to remove what is not there changes nothing.
    """
    names = set(old)
    for action, name in changes:
        if "+" in name:
            raise InputError(
                f"{name!r:.80} names a variant; an OS is hidden or blacklisted with all its variants",
                field,
            )
        plain_name(name, field)
        if action not in (ADD, REMOVE):
            raise InputError(f"{action!r:.40} must be {ADD} or {REMOVE}", field)
        if action == ADD:
            names.add(name)
        else:
            names.discard(name)
    return tuple(sorted(names))
