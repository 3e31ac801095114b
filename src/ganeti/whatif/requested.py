"""The process that runs one scenario for the REST server: a request on its input, lines of JSON on its output.

The process limits its own memory and processor time and has the lowest priority. It ends with its input, so it cannot
outlive the server that wants its answer.
"""

import logging
import os
import resource
import sys
import threading
from collections.abc import Callable

from ganeti.base.errors import GanetiError, InputError
from ganeti.model import wire
from ganeti.protocols.simulation_requests import Line, Request
from ganeti.simulation.durations import Durations
from ganeti.whatif.durations import durations_of
from ganeti.whatif.html import html_report
from ganeti.whatif.messages import Path
from ganeti.whatif.report import json_report
from ganeti.whatif.runs import reported, seeds_of, watch_s
from ganeti.whatif.scenario import Event, Scenario, StepError, events
from ganeti.whatif.scenario_file import scenario_of
from ganeti.whatif.source import Source
from ganeti.whatif.sources import RUNNING, measured_model, parse_node_size, read_source

MEMORY_BYTES = 2 * 1024**3
PROCESSOR_S = 1800
LOWEST_PRIORITY = 19
_TOO_LARGE = (
    f"needs more than {MEMORY_BYTES // 1024**3} GiB of memory; run 'gnt-whatif' on a host instead"
)

Tell = Callable[[Line], None]


def answer(text: bytes, tell: Tell) -> None:
    """Simulate what a request asks for, and tell its progress and its report."""
    try:
        request = wire.decode(text, Request, what="body")
        seeds = seeds_of(request.seed, request.seeds)
        scenario = scenario_of(request.scenario, "scenario", _place)
        watch_s(scenario.watch)
        size = parse_node_size(request.node_size) if request.node_size else None
        durations = _durations(request)
        source = read_source(RUNNING, size)
        _events_of(scenario, source, seeds[0])
    except GanetiError as err:
        tell(Line(refused=str(err)))
        return
    tell(Line())
    try:
        report = reported(
            source,
            scenario,
            lambda source, seed: _events_of(scenario, source, seed),
            durations=durations,
            seeds=seeds,
            on_run=lambda done: tell(Line(done=done)),
        )
        tell(Line(done=len(seeds), report=json_report(report), html=html_report(report)))
    except GanetiError as err:
        tell(Line(failed=str(err)))
    except MemoryError:
        tell(Line(failed=_TOO_LARGE))


def _place(path: Path) -> str:
    """Return where a value of the request is."""
    numbers = [one for one in path if isinstance(one, int)]
    return f"step {numbers[0] + 1}" if numbers else "scenario"


def _durations(request: Request) -> Durations:
    if not request.measured:
        return durations_of(request.durations, "body")
    model = measured_model()
    return durations_of({**model.durations, **request.durations}, "body", model.measured)


def _events_of(scenario: Scenario, source: Source, seed: int) -> list[Event]:
    try:
        return events(scenario.steps, source, seed)
    except StepError as err:
        raise InputError(f"step {err.number + 1}: {err.cause}") from err


def _tell(line: Line) -> None:
    sys.stdout.buffer.write(wire.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Answer the request in the first line of the input."""
    os.nice(LOWEST_PRIORITY)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
    # The simulated master logs what a real one would; the report has what matters of it.
    logging.getLogger("ganeti").addHandler(logging.NullHandler())
    text = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_input, daemon=True).start()
    answer(text, _tell)


if __name__ == "__main__":
    main()
