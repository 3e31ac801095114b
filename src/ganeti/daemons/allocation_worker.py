"""The process that computes large allocations for the master, started once: a frame in, a frame out.

A frame is its length in eight bytes and JSON. `{"do": "answer", "message": …, "options": …}` is answered as an
allocator answers, `{"do": "explain", "message": …, "options": …, "chosen": […]}` by a list of (node, reason).
"""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec

# Read when numpy is loaded: threads for products of small matrices cost more than they save.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from ganeti.base.errors import PrereqError
from ganeti.model.iallocator import FRAME_LENGTH_BYTES, YES, asks_monitoring
from ganeti.placement.answers import Settings, answered, explanation, refusal, state_of
from ganeti.placement.description import Cluster
from ganeti.placement.load.message import read
from ganeti.placement.places import Excluded, Rules

SPARED = Excluded(lone_nodes=True)
"""A cluster of one node is to be usable; upstream refuses."""


def computed(question: Mapping[str, Any]) -> Any:
    """The answer to one question; nothing that a message can hold raises."""
    message, options = question["message"], question.get("options", {})
    settings, chosen = settings_of(options), question.get("chosen")
    try:
        cluster, request = read(message)
        if asks_monitoring(options):
            cluster = _monitored(cluster, message, options)
        state = state_of(cluster, settings)
        if question["do"] == "explain":
            return explanation(state, request, settings, chosen or [])
        return answered(state, request, settings)
    except PrereqError as err:
        return [("", err.message)] if question["do"] == "explain" else refusal(err.message)


def _monitored(cluster: Cluster, message: Mapping[str, Any], options: Mapping[str, Any]) -> Cluster:
    """The cluster with the loads that monitoring reports, as `hail` has it with the same options (S181)."""
    from ganeti.cli.placement_input import monitored  # noqa: PLC0415 - most clusters do not ask

    return monitored(
        cluster,
        Namespace(
            mond="yes" if options.get("mond") in YES else "no",
            mond_data=options.get("mond-data"),
            mond_xen=options.get("mond-xen") in YES,
            mond_required=options.get("exit-on-missing-mond-data") in YES,
            addresses={name: node["primary_ip"] for name, node in message["nodes"].items()},
        ),
    )


def settings_of(options: Mapping[str, Any]) -> Settings:
    """What `hail`'s options change, by their names without dashes; others are for other allocators."""
    rules = Rules(
        capacity=not options.get("no-capacity-checks", False),
        ignore_soft_errors=bool(options.get("ignore-soft-errors", False)),
        excluded=SPARED,
    )
    return Settings(rules=rules, ignore_load=bool(options.get("ignore-dynu", False)))


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until there are no more questions."""
    while len(head := questions.read(FRAME_LENGTH_BYTES)) == FRAME_LENGTH_BYTES:
        question = msgspec.json.decode(questions.read(int.from_bytes(head, "big")))
        text = msgspec.json.encode(computed(question))
        answers.write(len(text).to_bytes(FRAME_LENGTH_BYTES, "big") + text)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
