"""Rights of users of the REST interface: roles, single permissions, and restrictions to objects.

Options of the users file, separated by commas:

    read, write, operator          role of the user; default: only lists and facts
    @readonly, @admin, @operator   the same
    +PERMISSION, -PERMISSION       add or remove one opcode, for example `-instance_remove`
    name=PATTERN, tag=TAG          only instances with such a name (`web*`) or tag; may be repeated
    KIND=PATTERN                   a user with `name=` or `tag=` may name such a node, group, network, image, link,
                                   directory, storage or path in requests; may be repeated; none without
    until=2027-12-31               last day of the account (UTC)
"""

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ganeti.base.errors import InputError
from ganeti.model.operation import ROLES, Right
from ganeti.model.scope import BY_PATTERN, Scope

_ALIASES = {"@readonly": "read", "@admin": "write", "@operator": "operator"}
_KINDS = frozenset(kind.value for kind in BY_PATTERN)
_UNLIMITED = Scope()
_PERMISSION = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class Rights:
    """The rights of one user."""

    rights: frozenset[Right] = frozenset((Right.KNOWN,))
    more: frozenset[str] = frozenset()
    less: frozenset[str] = frozenset()
    scope: Scope = _UNLIMITED
    until: dt.date | None = None

    @property
    def role(self) -> str:
        """Return the greatest role whose rights the user has, '' without one."""
        return max(
            (name for name, rights in ROLES.items() if rights <= self.rights),
            key=lambda name: len(ROLES[name]),
            default="",
        )

    def may(self, right: Right, permission: str) -> bool:
        """Return True if an operation with this right and permission (its opcode's name) is allowed."""
        if permission and permission in self.less:
            return False
        return right in self.rights or (bool(permission) and permission in self.more)

    def has_ended(self, today: dt.date) -> bool:
        """Return True if the account has expired."""
        return self.until is not None and today > self.until


def parse_options(words: Sequence[str]) -> Rights:
    """Return the rights for options; InputError for an unknown option."""
    rights: frozenset[Right] = frozenset((Right.KNOWN,))
    more, less, tags = set[str](), set[str](), set[str]()
    names: list[str] = []
    others: list[tuple[str, str]] = []
    until = None
    for word in words:
        name, is_pair, value = word.partition("=")
        role = _ALIASES.get(word, word)
        if role in ROLES:
            rights |= ROLES[role]
        elif word[0] in "+-" and _PERMISSION.fullmatch(word[1:]):
            (more if word[0] == "+" else less).add(word[1:])
        elif is_pair and value and name == "name":
            names.append(value)
        elif is_pair and value and name == "tag":
            tags.add(value)
        elif is_pair and value and name in _KINDS:
            others.append((name, value))
        elif is_pair and name == "until":
            until = _day(value)
        else:
            raise InputError(f"unknown option {word!r:.40}")
    scope = Scope(names=tuple(names), tags=frozenset(tags), others=tuple(others))
    if others and not scope.is_restricted:
        raise InputError(f"{others[0][0]}=PATTERN requires name= or tag=")
    return Rights(rights, frozenset(more), frozenset(less), scope, until)


def _day(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError as err:
        raise InputError(f"{text!r:.40} is not a day; write it as 2027-12-31") from err
