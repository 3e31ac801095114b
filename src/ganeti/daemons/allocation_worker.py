"""The process that computes large allocations for the master, started once: a frame in, a frame out.

A frame is its length in eight bytes and JSON. `{"do": "answer", "message": …, "options": …}` is answered as an
allocator answers, `{"do": "explain", "message": …, "options": …, "chosen": […]}` by a list of (node, reason).
"""

import os
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec

# Read when numpy is loaded: threads for products of small matrices cost more than they save.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from ganeti.base.errors import PrereqError
from ganeti.model.iallocator import FRAME_LENGTH_BYTES
from ganeti.placement.answers import Settings, answer, explanation, state_of
from ganeti.placement.load.message import read
from ganeti.placement.places import Exempt, Rules

SPARED = Exempt(lone_nodes=True)
"""A cluster of one node is to be usable; upstream refuses."""


def computed(question: Mapping[str, Any]) -> Any:
    """The answer to one question; nothing that a message can hold raises."""
    message, settings = question["message"], settings_of(question.get("options", {}))
    if question["do"] == "explain":
        return explained(message, question["chosen"], settings)
    return answer(message, settings)


def settings_of(options: Mapping[str, Any]) -> Settings:
    """What `hail`'s options change, by their names without dashes; others are for other allocators."""
    rules = Rules(
        capacity=not options.get("no-capacity-checks", False),
        ignore_soft_errors=bool(options.get("ignore-soft-errors", False)),
        exempt=SPARED,
    )
    return Settings(rules=rules, ignore_load=bool(options.get("ignore-dynu", False)))


def explained(
    message: Mapping[str, Any], chosen: list[str], settings: Settings
) -> list[tuple[str, str]]:
    """Why the instance of an `allocate` message does not go to the nodes that were not chosen."""
    try:
        cluster, request = read(message)
        return explanation(state_of(cluster, settings), request, settings, chosen)
    except PrereqError as err:
        return [("", err.message)]


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until there are no more questions."""
    while len(head := questions.read(FRAME_LENGTH_BYTES)) == FRAME_LENGTH_BYTES:
        question = msgspec.json.decode(questions.read(int.from_bytes(head, "big")))
        text = msgspec.json.encode(computed(question))
        answers.write(len(text).to_bytes(FRAME_LENGTH_BYTES, "big") + text)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
