"""The process that computes large allocations for the master; it reads and writes frames.

A frame is an eight-byte length followed by JSON: a `Question`, or the `Answer` to it. `answer` means to answer like an
allocator, `explain` to return a list of (node, reason).
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
from ganeti.daemons.allocation_client import Answer
from ganeti.model.iallocator import FRAME_LENGTH_BYTES, YES, asks_monitoring
from ganeti.placement.answers import Settings, answered, explanation, refusal, state_of
from ganeti.placement.description import Cluster, Instance
from ganeti.placement.load.message import Known, read_changes
from ganeti.placement.places import Excluded, Rules
from ganeti.placement.state import KeptColumns, State
from ganeti.placement.survey import impact, impacts, overview

SPARED = Excluded(lone_nodes=True)
"""Allow a cluster of one node; upstream refuses it."""


class _Asked(msgspec.Struct):
    """A `Question` as it arrives: the message has a form of its own."""

    do: str
    message: msgspec.Raw
    number: int
    since: int
    options: dict[str, Any]
    gone: list[str]
    chosen: list[str]


class Worker:
    """Answers questions, and keeps the nodes and instances of the last one."""

    def __init__(self) -> None:
        self._known = Known()
        self._columns = KeptColumns()
        self._number = 0

    async def exchange(self, question: bytes) -> bytes:
        """Answer in this process."""
        return self.answer(question)

    def answer(self, question: bytes) -> bytes:
        """Return the answer to one question; a malformed message is answered with an error, never raised."""
        asked = msgspec.json.decode(question, type=_Asked)
        if asked.since not in (0, self._number):
            return msgspec.json.encode(Answer(is_lost=True))
        return msgspec.json.encode(Answer(self._computed(asked)))

    def _computed(self, asked: _Asked) -> Any:
        options, settings = asked.options, settings_of(asked.options)
        self._number = -1  # whatever happens while it reads
        if not asked.since:
            self._known = Known()
        try:
            cluster, request = read_changes(bytes(asked.message), self._known, asked.gone)
            self._number = asked.number
            if asks_monitoring(options):
                cluster = _monitored(cluster, self._known.addresses, options)
            state = state_of(cluster, settings, self._columns)
            if asked.do == "survey":
                return surveyed(state, request)
            if asked.do == "explain":
                return explanation(state, request, settings, asked.chosen)
            return answered(state, request, settings)
        except PrereqError as err:
            if asked.do == "survey":
                return {"refused": err.message}
            return [("", err.message)] if asked.do == "explain" else refusal(err.message)


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


def _monitored(
    cluster: Cluster, addresses: Mapping[str, str], options: Mapping[str, Any]
) -> Cluster:
    """Return the cluster with the loads from monitoring, like `hail` with the same options (S181)."""
    from ganeti.cli.placement_input import monitored  # noqa: PLC0415 - most clusters do not ask

    return monitored(
        cluster,
        Namespace(
            mond="yes" if options.get("mond") in YES else "no",
            mond_data=options.get("mond-data"),
            mond_xen=options.get("mond-xen") in YES,
            mond_required=options.get("exit-on-missing-mond-data") in YES,
            addresses={one.name: addresses[one.name] for one in cluster.nodes},
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
    worker = Worker()
    while len(head := questions.read(FRAME_LENGTH_BYTES)) == FRAME_LENGTH_BYTES:
        text = worker.answer(questions.read(int.from_bytes(head, "big")))
        answers.write(len(text).to_bytes(FRAME_LENGTH_BYTES, "big") + text)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
