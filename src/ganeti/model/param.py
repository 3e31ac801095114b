"""The declaration of one parameter of any object, and the check of a value."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.base.suggestions import did_you_mean

_DECIMAL = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)


@dataclass(frozen=True)
class Bounds:
    """A check that a number is within bounds, which clients show beside the field."""

    low: int
    high: int | None = None
    unit: str = ""

    def __call__(self, value: float) -> str | None:
        """Return the fault of a value, or None."""
        if self.high is None:
            return None if value >= self.low else f"must be at least {self.low}{self.unit}"
        is_within = self.low <= value <= self.high
        return None if is_within else f"must be from {self.low} to {self.high}{self.unit}"


@dataclass(frozen=True)
class OneOf:
    """A check that a number is one of a few, which clients offer as choices."""

    numbers: tuple[int, ...]

    def __call__(self, value: int) -> str | None:
        """Return the fault of a value, or None."""
        text = ", ".join(map(str, self.numbers))
        return None if value in self.numbers else f"must be one of {text}"


class Param(msgspec.Struct, frozen=True):
    """One parameter. The type of `default` is the type of every value."""

    name: str
    default: bool | int | float | str
    doc: str
    choices: tuple[str, ...] = ()
    check: Callable[[Any], str | None] | None = None
    """Returns the fault of a value, or None."""
    stored: Callable[[Any, str], Any] | None = None
    """Returns the stored form of a value that has several spellings; InputError."""
    is_size: bool = False
    """MiB; text may have a unit."""
    title: str = ""
    """The heading of its column in lists, if it differs from its name."""
    reaches_guest: bool = True
    """True if it affects a running guest; False: only the cluster uses it."""
    is_upstream: bool = True
    """Whether upstream Ganeti has it, too."""


def by_name(*params: Param) -> dict[str, Param]:
    """A table of parameters."""
    return {param.name: param for param in params}


def defaults(params: Mapping[str, Param]) -> dict[str, Any]:
    """Return the default values of parameters."""
    return {name: param.default for name, param in params.items()}


def checked_value(param: Param, value: Any, where: str) -> Any:
    """Return a value in its stored form; InputError."""
    if param.is_size and isinstance(value, str):
        value = parse_mib(value, where)
    typed = typed_value(value, param.default, where)
    if param.stored:
        typed = param.stored(typed, where)
    if param.choices and typed not in param.choices:
        raise InputError(f"must be one of {', '.join(param.choices)}", where)
    if param.check and (wrong := param.check(typed)):
        raise InputError(wrong, where)
    return typed


def check_params(
    known: Mapping[str, Param], given: Mapping[str, Any], field: str, what: str
) -> dict[str, Any]:
    """Return values in their stored form, including None, which removes one; unknown names are refused."""
    checked: dict[str, Any] = {}
    for name, value in given.items():
        where = f"{field}.{name}"
        if name not in known:
            close = did_you_mean(name, known)
            raise InputError(f"is not a {what} parameter{close}; known: {', '.join(known)}", where)
        checked[name] = None if value is None else checked_value(known[name], value, where)
    return checked


def typed_value(value: Any, like: float | str, field: str) -> Any:
    """Return `value` in the type of `like`; text from a command line is converted."""
    kind: type[Any] = type(like)
    if type(value) is kind:
        return value
    if isinstance(value, str):
        if kind is bool and value.lower() in ("true", "yes", "on"):
            return True
        if kind is bool and value.lower() in ("false", "no", "off"):
            return False
        if kind is int and value.lstrip("-").isdecimal() and value.isascii():
            return int(value)
        if kind is float and _DECIMAL.fullmatch(value):
            return float(value)
    if kind is float and type(value) is int:
        return float(value)
    wanted = {bool: "true or false", int: "a whole number", str: "text", float: "a number"}[kind]
    raise InputError(f"{value!r:.60} is not {wanted}", field)
