"""The declaration of one kind of objects in the configuration."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import ErrorCode, InputError
from ganeti.config.index import Claim
from ganeti.config.view import View
from ganeti.model.objects import Cluster
from ganeti.model.stored import Stored

Problem = tuple[ErrorCode, str]


def _nothing(*_args: object) -> Iterator[Any]:
    return iter(())


@dataclass(frozen=True)
class Kind:
    """One kind: its stored form, the claims of its objects, and the rules for them."""

    name: str
    """The name of its rows; also its name in errors."""
    type: type[Stored]
    claims: Callable[[Cluster, Any], Iterator[Claim]] = _nothing
    """Returns the claims of an object."""
    problems: Callable[[View, Any], Iterator[Problem]] = _nothing
    """Returns the problems of one object and of its references."""
    references: Callable[[View, Any], Iterator[Problem]] = _nothing
    """Returns the references to an object that is to be removed."""
    nodes: Callable[[Any], tuple[str, ...]] = lambda _thing: ()
    """Returns the nodes of an object."""
    merged: Callable[[Any, Any], Any] = lambda _current, stale: stale
    """Returns a stale version with those fields of the current one that change without the object's lock."""
    upgraded: Callable[[Any], Any] = lambda thing: thing
    """Converts the object to this version's stored form."""


def name_problems(check: Callable[[str, str], str], text: str, field: str) -> Iterator[Problem]:
    """Return the problems of a name, after the definitive check of its form."""
    try:
        if check(text, field) != text:
            yield ErrorCode.WRONG_INPUT, f"{field}: {text!r} must be in lower case"
    except InputError as err:
        yield err.code, err.message
