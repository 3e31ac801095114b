"""Messages of the store about nodes; the UUIDs of nodes become names only where a person reads them."""

import re
from collections.abc import Callable, Collection
from typing import Self

from ganeti.model.objects import NodeUuid


class Reason(str):  # noqa: SLOT000 - it has attributes
    """A message with UUIDs in logs; `with_names` replaces them with names."""

    template: str
    parts: tuple[str, ...]

    def __new__(cls, template: str, *parts: str) -> Self:
        """`parts`, one for each {} of the template: UUIDs of nodes, other reasons, or plain text."""
        self = super().__new__(cls, template.format(*parts))
        self.template, self.parts = template, parts
        return self


def with_names(text: str, name: Callable[[NodeUuid], str]) -> str:
    """Return the message for an administrator.

    `name` returns text unchanged that is not the UUID of a node.
    """
    if not isinstance(text, Reason):
        return text
    return text.template.format(
        *(
            with_names(part, name) if isinstance(part, Reason) else name(NodeUuid(part))
            for part in text.parts
        )
    )


def joined(between: str, parts: Collection[str]) -> Reason:
    """Return UUIDs or reasons as a list with separators."""
    return Reason(between.join("{}" for _ in parts), *parts)


def naming(text: str, nodes: Collection[NodeUuid]) -> Reason:
    """Return a reason from another node's plain text that may contain these UUIDs."""
    known = [node for node in nodes if node]
    if not known:
        return Reason("{}", text)
    pieces = re.split(f"({'|'.join(map(re.escape, known))})", text)
    return joined("", pieces)
