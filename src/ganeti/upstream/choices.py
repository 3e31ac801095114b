"""An administrator's choices for an import, and the decisions by them."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.params import Params
from ganeti.upstream.report import Judge

RENAMED_KINDS = ("cluster", "group", "instance", "network", "node")
NOTHING: tuple[Any, ...] = (None, "", (), [], {}, False, 0)
"""Empty values, for an unknown field."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.-]+")

Check = Callable[[str, str], str]


@dataclass(frozen=True)
class Choices:
    """Options of an import."""

    keep_unknown: bool = False
    names: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Kind and old name -> new name."""
    hypervisors: Mapping[str, str] = field(default_factory=dict)
    """Hypervisor -> the replacement that its instances get."""


def parse_names(given: Collection[str]) -> dict[tuple[str, str], str]:
    """Parse `KIND:OLD=NEW` each, as in the command; InputError."""
    found = {}
    for text in given:
        kind, colon, rest = text.partition(":")
        old, equals, new = rest.rpartition("=")
        if kind not in RENAMED_KINDS or not colon or not equals or not old or not new:
            raise InputError(
                f"{text!r:.80} is not KIND:OLD=NEW with a kind of {', '.join(RENAMED_KINDS)}",
                "rename",
            )
        found[kind, old] = new
    return found


def parse_hypervisors(given: Collection[str], known: Collection[str]) -> dict[str, str]:
    """`OLD=NEW` each; InputError."""
    found = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not equals or not old or new not in known:
            raise InputError(
                f"{text!r:.80} is not OLD=NEW with a new hypervisor of {', '.join(known)}",
                "hypervisor",
            )
        found[old] = new
    return found


class Reading(Judge):
    """An import in progress."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(keep_unknown=choices.keep_unknown)
        self.choices = choices

    def name(self, kind: str, old: Any, check: Check) -> str:
        """Return the name here; a name that no object can have is refused, and returned unchanged."""
        new = self.choices.names.get((kind, str(old)), old)
        try:
            fit, why = check(str(new), "name"), "must be in lower case"
        except InputError as err:
            fit, why = None, err.message
        if fit != new:
            name = _NOT_IN_NAMES.sub("-", str(old)).strip("-.").lower() or kind
            self.refuse(
                f"{kind} {old}",
                "name",
                why,
                f"another name: --rename='{kind}:{old}={name}'",
            )
        elif new != old:
            self.change(f"{kind} {old}", "name", f"is {new} now")
        return str(new)

    def rest(self, what: str, given: Mapping[str, Any], known: Collection[str]) -> None:
        """Report unknown fields; empty ones are ignored."""
        for name in sorted(given.keys() - known):
            if given[name] not in NOTHING:
                self.unknown(what, name, "the field is not supported")

    def params(
        self, what: str, field: str, given: Any, check: Callable[[dict[str, Any]], Params]
    ) -> Params:
        """Return the parameters that pass the check, in stored form; the others are reported one by one."""
        if not isinstance(given, Mapping):
            if given not in NOTHING:
                self.refuse(what, field, "must be an object")
            return {}
        found: Params = {}
        for name, value in given.items():
            if value is None:
                continue
            try:
                found |= check({name: value})
            except InputError as err:
                if value not in NOTHING:
                    self.unknown(what, f"{field}.{name}", err.message)
                else:
                    self.change(what, f"{field}.{name}", f"is treated as unset: {err.message}")
        return found
