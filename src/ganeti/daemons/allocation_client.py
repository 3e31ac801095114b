"""Questions to a computing side of the built-in allocator, which keeps the nodes and instances of earlier questions.

The message of a large cluster has megabytes, nearly all of which its predecessor had, too. So a question has only the
nodes and instances that differ from those of the last one that was answered. Questions are numbered: a side that has
not read that one, because it was started again or refused a message, says so and gets all.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

Exchange = Callable[[bytes], Awaitable[bytes]]
"""Sends a `Question` and returns an `Answer`, encoded."""


class Question(msgspec.Struct):
    """A message of an allocator, and what is wanted to be known."""

    do: str
    """`answer`, `explain` or `survey`."""
    message: dict[str, Any]
    """Without the instances that are the same as in the last question; such nodes are null."""
    options: Mapping[str, Any]
    number: int
    since: int
    """The number of the question to which the nodes and instances are the differences; 0: they are all."""
    gone: list[str]
    """Names of instances that no longer exist."""
    chosen: list[str] = []


class Answer(msgspec.Struct):
    """What a side has computed."""

    found: Any = None
    is_lost: bool = False
    """It does not know the question that `since` names."""


class AllocationClient:
    """Asks one side, one question at a time."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._told_nodes: Mapping[str, object] = {}
        """The nodes of the last question that was answered; the same object has not changed."""
        self._told: Mapping[str, object] = {}
        """Its instances, likewise."""
        self._since = self._number = 0

    async def answer(self, message: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Return success, info and result."""
        found: dict[str, Any] = await self._ask("answer", message, options)
        return found

    async def explain(
        self, message: dict[str, Any], chosen: list[str], options: Mapping[str, Any]
    ) -> list[tuple[str, str]]:
        """Return (node, reason) for each node that was not chosen."""
        found = await self._ask("explain", message, options, chosen)
        return [(node, why) for node, why in found]

    async def survey(self, message: dict[str, Any]) -> Any:
        """Return the answer to a request of `placement/survey.py`."""
        return await self._ask("survey", message, {})

    async def _ask(
        self,
        do: str,
        message: dict[str, Any],
        options: Mapping[str, Any],
        chosen: list[str] | None = None,
    ) -> Any:
        instances: Mapping[str, object] = message["instances"]
        nodes: Mapping[str, object] = message["nodes"]
        while True:
            told, told_nodes = (self._told, self._told_nodes) if self._since else ({}, {})
            # All nodes keep their places: of two that are equally good, the order decides.
            others = {
                name: None if told_nodes.get(name) is one else one for name, one in nodes.items()
            }
            changed = {name: one for name, one in instances.items() if told.get(name) is not one}
            gone = [name for name in told if name not in instances]
            self._number += 1
            question = Question(
                do=do,
                message={**message, "nodes": others, "instances": changed},
                options=options,
                number=self._number,
                since=self._since,
                gone=gone,
                chosen=chosen or [],
            )
            text = await self._exchange(msgspec.json.encode(question))
            answer = msgspec.json.decode(text, type=Answer)
            if not answer.is_lost:
                self._told, self._told_nodes = instances, nodes
                self._since = question.number
                return answer.found
            if not self._since:
                raise EOFError  # it must know question 0
            self._since = 0
