"""Sentences of the store about nodes: the nodes are data, and get names only where somebody reads them."""

import re
from collections.abc import Callable, Collection
from typing import Self

from ganeti.model.objects import NodeUuid


class Reason(str):  # noqa: SLOT000 - it has attributes
    """A sentence that reads with UUIDs in logs, and with names where `told` makes them."""

    template: str
    parts: tuple[str, ...]

    def __new__(cls, template: str, *parts: str) -> Self:
        """`parts`, for each {} of the template: UUIDs of nodes, other reasons, or plain text."""
        self = super().__new__(cls, template.format(*parts))
        self.template, self.parts = template, parts
        return self


def told(text: str, name: Callable[[NodeUuid], str]) -> str:
    """What an administrator reads; `name` gives back what is no UUID of a node."""
    if not isinstance(text, Reason):
        return text
    return text.template.format(
        *(
            told(part, name) if isinstance(part, Reason) else name(NodeUuid(part))
            for part in text.parts
        )
    )


def joined(between: str, parts: Collection[str]) -> Reason:
    """UUIDs or reasons, one after the other."""
    return Reason(between.join("{}" for _ in parts), *parts)


def naming(text: str, nodes: Collection[NodeUuid]) -> Reason:
    """A sentence that another node has made, in which these may be named: it came as plain text."""
    known = [node for node in nodes if node]
    if not known:
        return Reason("{}", text)
    pieces = re.split(f"({'|'.join(map(re.escape, known))})", text)
    return joined("", pieces)
