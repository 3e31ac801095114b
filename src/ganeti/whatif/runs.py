"""The runs of a scenario, one for each seed, and their report."""

from collections.abc import Callable, Sequence

from ganeti.base.errors import InputError
from ganeti.simulation.durations import Durations
from ganeti.whatif.report import Report, report_of, run_of
from ganeti.whatif.scenario import Event, Scenario, parse_duration
from ganeti.whatif.scenario_options import spoken
from ganeti.whatif.simulate import simulate
from ganeti.whatif.source import Source

MOST_SEEDS = 1000
EventsOf = Callable[[Source, int], Sequence[Event]]
"""Returns the events of a scenario for a source and a seed; InputError names the wrong step."""


def seeds_of(first: int, count: int) -> range:
    """Return the seeds of a request; InputError."""
    if not 1 <= count <= MOST_SEEDS:
        raise InputError(f"must be from 1 to {MOST_SEEDS}", "seeds")
    return range(first, first + count)


def watch_s(text: str | None) -> float | None:
    """Return the time after the last event in seconds; None is until everything is settled. InputError."""
    return None if text is None else parse_duration(text, "watch")


def reported(
    source: Source,
    scenario: Scenario,
    events_of: EventsOf,
    *,
    durations: Durations,
    seeds: range,
    on_run: Callable[[int], None] = lambda _done: None,
) -> Report:
    """Return the report; `on_run` gets the number of complete runs. InputError if a step is wrong."""
    watched = watch_s(scenario.watch)
    runs = []
    for seed in seeds:
        history = simulate(source, events_of(source, seed), durations, seed=seed, watch_s=watched)
        runs.append(run_of(history, source.sizes, seed))
        on_run(len(runs))
    steps = [spoken(step) for step in scenario.steps]
    return report_of(source, scenario.name, steps, durations, runs)
