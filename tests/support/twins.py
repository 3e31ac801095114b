"""A real cluster that is simulated from its own answers, and compared with what then happens to it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec

from ganeti.model.objects import Instance
from ganeti.simulation.durations import Durations
from ganeti.whatif.history import History
from ganeti.whatif.scenario import events
from ganeti.whatif.scenario_options import step_of
from ganeti.whatif.simulate import simulate
from ganeti.whatif.source import Source
from ganeti.whatif.sources import running_source
from tests.support.agreement import MOST_SLOWNESS, SLACK_S, Watch, differences
from tests.support.calm import unended_jobs, wait_calm
from tests.support.local_cluster import LocalCluster, wait_until

SEEDS = 20
ATTEMPTS = 3


@dataclass(frozen=True)
class Twin(ABC):
    """A real cluster, and what is needed to simulate it."""

    cluster: LocalCluster
    durations: Durations
    names: Mapping[str, str]
    """UUID -> name of each instance."""

    watch_s: ClassVar[float] = 60.0
    """How long the simulation goes on after the last event."""
    limit_s: ClassVar[float] = 120.0
    least_slack_s: ClassVar[float] = SLACK_S

    @abstractmethod
    def watched(self) -> Watch:
        """Return what sees the guests."""

    @abstractmethod
    def bring_home(self) -> None:
        """Put every instance where it was at first, and wait until all is well."""

    @property
    def most_slack_s(self) -> float:
        """Return the widest interval of a comparison: a model that is wrong by more is noticed."""
        return self.least_slack_s * MOST_SLOWNESS

    def source(self) -> Source:
        """Return the cluster as it is now."""
        with self.cluster.luxi() as client:
            return running_source(client)

    def simulated(
        self, option: str, source: Source, durations: Durations | None = None
    ) -> list[History]:
        """Return what happens with each seed."""
        step, times = step_of(*option.split("=", 1)), durations or self.durations
        return [
            simulate(source, events([step], source, seed), times, seed=seed, watch_s=self.watch_s)
            for seed in range(1, SEEDS + 1)
        ]

    def compared(
        self, simulated: Sequence[History], act: Callable[[Watch], object]
    ) -> tuple[History, float | None]:
        """Do to the real cluster what was simulated; fail at a difference. Return the history, and the slack of its times.

        Where instances end and in which order jobs come is compared each time. It is done again if the machine was too
        slow for a comparison of times, and these are not compared if it was so each time (None).
        """
        for _ in range(ATTEMPTS):
            self.bring_home()
            with self.watched() as watch:
                act(watch)
            real, slack = watch.history(), watch.slack_s
            found = differences(simulated, real, slack)
            assert not found, f"slowness {watch.slowness:.1f}:\n" + "\n".join(found)
            if slack is not None:
                break
        return real, slack

    def wait_until_calm(self) -> None:
        """Return once all is well; see `wait_calm`."""
        wait_calm(self.cluster, self.limit_s)

    def ended(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, and the jobs that led to it have ended."""
        wait_until(
            lambda: is_so() and not unended_jobs(self.cluster),
            "the scenario has ended",
            self.limit_s,
        )


def uuids(cluster: LocalCluster) -> dict[str, str]:
    """Return the name of each instance by its UUID."""
    with cluster.luxi() as client:
        rows = client.query("instance", ["uuid", "name"])["data"]
    return {row[0][1]: row[1][1] for row in rows}


def with_priorities(source: Source, priorities: Mapping[str, int]) -> Source:
    """Return a source in which these instances have other priorities of their recovery."""
    old = {one.name: one.beparams for one in source.objects if isinstance(one, Instance)}
    turned = {name: {**old[name], "recovery_priority": one} for name, one in priorities.items()}
    return changed(source, {name: {"beparams": one} for name, one in turned.items()})


def changed(source: Source, fields: Mapping[str, Mapping[str, Any]]) -> Source:
    """Return a source with other values of some instances."""
    objects = tuple(
        msgspec.structs.replace(one, **fields.get(one.name, {}))
        if isinstance(one, Instance)
        else one
        for one in source.objects
    )
    return replace(source, objects=objects)
