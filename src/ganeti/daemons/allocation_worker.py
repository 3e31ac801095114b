"""The process that computes large allocations for the master; it reads and writes frames.

A frame is an eight-byte length followed by JSON. The process answers `{"do": "answer", "message":
…, "options": …}` like an allocator. It answers `{"do": "explain", "message": …, "options": …,
"chosen": […]}` with a list of (node, reason).
"""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec

# numpy reads this when it is loaded. For products of small matrices, threads cost more than they
# save.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from ganeti.base.errors import PrereqError
from ganeti.model.iallocator import FRAME_LENGTH_BYTES, YES, asks_monitoring
from ganeti.placement.answers import Settings, answered, explanation, refusal, state_of
from ganeti.placement.description import Cluster, Instance
from ganeti.placement.load.message import KeptInstances, read
from ganeti.placement.places import Excluded, Rules
from ganeti.placement.state import State
from ganeti.placement.survey import impact, impacts, overview

SPARED = Excluded(lone_nodes=True)
"""Allow a cluster of one node; upstream refuses it."""


def computed(question: Mapping[str, Any], kept: KeptInstances | None = None) -> Any:
    """Return the answer to one question; a malformed message is answered with an error, never raised.

    `kept` has the instances of the question before, if both consist of objects of this process.
    """
    message, options = question["message"], question.get("options", {})
    settings, chosen = settings_of(options), question.get("chosen")
    try:
        cluster, request = read(message, kept=kept)
        if asks_monitoring(options):
            cluster = _monitored(cluster, message, options)
        state = state_of(cluster, settings)
        if question["do"] == "survey":
            return surveyed(state, request)
        if question["do"] == "explain":
            return explanation(state, request, settings, chosen or [])
        return answered(state, request, settings)
    except PrereqError as err:
        if question["do"] == "survey":
            return {"refused": err.message}
        return [("", err.message)] if question["do"] == "explain" else refusal(err.message)


def surveyed(state: State, request: Mapping[str, Any]) -> Any:
    """Return the answer to a request of the master's surveys."""
    if request["type"] == "impacts":
        return impacts(state)
    if request["type"] == "impact":
        names = [one.name for one in state.nodes]
        return impact(state, names.index(request["node"]))
    standard, size = request["standard"], request["standard"]["disk-size"]
    wanted = Instance(
        name="new",
        memory=standard["memory-size"],
        disk=size,
        vcpus=standard["cpu-count"],
        template=request["template"],
        spindle_use=standard.get("spindle-use", 1),
        spindles=standard.get("spindle-use", 1),
        disks=(size,),
    )
    return overview(state, wanted)


def _monitored(cluster: Cluster, message: Mapping[str, Any], options: Mapping[str, Any]) -> Cluster:
    """Return the cluster with the loads from monitoring, like `hail` with the same options (S181)."""
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
    """Return the settings that `hail`'s options change, keyed without dashes.

    Ignore options of other allocators.
    """
    rules = Rules(
        capacity=not options.get("no-capacity-checks", False),
        ignore_soft_errors=bool(options.get("ignore-soft-errors", False)),
        excluded=SPARED,
    )
    return Settings(rules=rules, ignore_load=bool(options.get("ignore-dynu", False)))


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer questions until the input ends."""
    while len(head := questions.read(FRAME_LENGTH_BYTES)) == FRAME_LENGTH_BYTES:
        question = msgspec.json.decode(questions.read(int.from_bytes(head, "big")))
        text = msgspec.json.encode(computed(question))
        answers.write(len(text).to_bytes(FRAME_LENGTH_BYTES, "big") + text)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
