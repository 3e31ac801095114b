"""The interpretation of a request to change devices: pure, the same for disks and NICs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.suggestions import did_you_mean
from ganeti.model.opcodes.base import is_none

LAST = -1
ACTIONS = ("add", "modify", "remove")
DISK_ACTIONS = (*ACTIONS, "attach", "detach")


class Device(Protocol):
    """A disk or a NIC of the configuration."""

    @property
    def uuid(self) -> str: ...

    @property
    def name(self) -> str | None: ...


D = TypeVar("D", bound=Device)


@dataclass(frozen=True)
class DeviceChange:
    """One change; `identifier` is an index (-1: the last device, or the end), a name or a UUID."""

    action: str
    identifier: int | str
    params: dict[str, Any]


def parse_changes(
    given: Sequence[Sequence[Any]], field: str, actions: Sequence[str] = ACTIONS
) -> list[DeviceChange]:
    """Return changes, given in any of the forms that clients use; InputError."""
    return [_parse(one, f"{field}[{number}]", actions) for number, one in enumerate(given)]


def _parse(given: Sequence[Any], field: str, actions: Sequence[str]) -> DeviceChange:
    match list(given):
        case [str(action), int() | str() as identifier, dict() as params]:
            pass
        case ["add" | "attach" | "remove" | "detach" as action, dict() as params]:
            identifier = LAST
        case [int() | str() as identifier, dict() as params]:
            action = "modify"
        case _:
            raise InputError("must be [action, index or name or UUID, parameters]", field)
    if action not in actions:
        raise InputError(f"{action!r:.40} must be one of {', '.join(actions)}", field)
    if isinstance(identifier, bool) or identifier == "":
        raise InputError("must name a device by index, name or UUID", field)
    if isinstance(identifier, str) and identifier.lstrip("-").isdecimal():
        identifier = int(identifier)
    if action in ("remove", "detach") and params:
        raise InputError(f"a device that is {action.rstrip('e')}ed accepts no parameters", field)
    if action == "modify" and not params:
        raise InputError("nothing to change: pass at least one parameter", field)
    return DeviceChange(action, identifier, params)


def _count(number: int) -> str:
    """Return the number of devices and the range of their indices, as a text."""
    return (
        f"{number}, numbered from 0 to {number - 1}"
        if number > 1
        else "only number 0"
        if number
        else "none"
    )


def position_of(devices: Sequence[D], identifier: int | str, field: str) -> int:
    """Return the index of the named device; negative ones count from the end."""
    if isinstance(identifier, int):
        if not -len(devices) <= identifier < len(devices):
            raise InputError(
                f"number {identifier} does not exist: the instance has {_count(len(devices))}",
                field,
            )
        return identifier % len(devices)
    found = [at for at, one in enumerate(devices) if identifier in (one.uuid, one.name)]
    if not found:
        raise PrereqError(
            f"{field}: no device has the name or UUID {identifier!r:.80}", ErrorCode.UNKNOWN_ENTITY
        )
    if len(found) > 1:
        raise PrereqError(
            f"{field}: {len(found)} devices have the name {identifier!r:.80}; use an index or a UUID",
            ErrorCode.NOT_UNIQUE,
        )
    return found[0]


def insert_position(count: int, identifier: int | str, field: str) -> int:
    """Return the index of a new device among `count`; -1 stands for the end."""
    if not isinstance(identifier, int):
        raise InputError("a new device needs an index here; its name is a parameter", field)
    if identifier == LAST:
        return count
    if not 0 <= identifier <= count:
        raise InputError(f"index {identifier} is not possible: the instance has {count}", field)
    return identifier


def check_device_names(
    after: Iterable[str | None], field: str, before: Iterable[str | None] = ()
) -> None:
    """Refuse ambiguous names, and names that look like an index; names that existed `before` may stay."""
    had = Counter(before)
    for name, count in Counter(after).items():
        if name is None or had[name] >= count:
            continue
        if name.lstrip("-").isdecimal():
            raise InputError(
                f"{name!r:.80} is a number, so it cannot be the name of a device", field
            )
        if count > 1:
            raise InputError(f"{count} devices have the name {name!r:.80}", field)


def only_known(params: dict[str, Any], known: Sequence[str], field: str) -> None:
    """Refuse parameters that a device does not have."""
    for name in params:
        if name not in known:
            close = did_you_mean(name, known)
            raise InputError(
                f"unknown parameter{close}; known: {', '.join(known)}", f"{field}.{name}"
            )


def text_or_none(value: Any, field: str) -> str | None:
    """Return a text; None for None, for `none` in any case, and for the empty text."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError("must be text", field)
    return None if not value or is_none(value) else value
