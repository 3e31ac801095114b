"""What the configuration must know of one kind of objects."""

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
    """One kind: how it is stored, what its objects claim, and the rules that hold for them."""

    name: str
    """Of its rows; also the word for it in an error."""
    type: type[Stored]
    claims: Callable[[Cluster, Any], Iterator[Claim]] = _nothing
    """What only one object may have."""
    problems: Callable[[View, Any], Iterator[Problem]] = _nothing
    """What is wrong with one object, and with what it refers to."""
    references: Callable[[View, Any], Iterator[Problem]] = _nothing
    """What still refers to one that is to be removed."""
    nodes: Callable[[Any], tuple[str, ...]] = lambda _thing: ()
    """The nodes that an object is on."""
    upgraded: Callable[[Any], Any] = lambda thing: thing
    """The object in the stored form of this version."""


def name_problems(check: Callable[[str, str], str], text: str, field: str) -> Iterator[Problem]:
    """What is wrong with a name, after the check that has the last word on its form."""
    try:
        if check(text, field) != text:
            yield ErrorCode.WRONG_INPUT, f"{field}: {text!r} must be in lower case"
    except InputError as err:
        yield err.code, err.message
