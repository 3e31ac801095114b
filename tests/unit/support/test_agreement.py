"""What counts as a difference between the simulation and a real cluster."""

from dataclasses import replace

import pytest

from ganeti.simulation.example import configuration, instance_name, node_name
from ganeti.whatif.history import GuestChange, GuestState, History, JobRecord, OpRecord
from tests.support.agreement import differences, facts_of

WEB, DB = instance_name(1), instance_name(2)
HOME, OTHER = node_name(1), node_name(2)


def history(
    *,
    down_s: float = 12.0,
    work_s: float = 2.0,
    target: str = HOME,
    order: tuple[str, ...] = (WEB, DB),
) -> History:
    """The first instance is down for a while; jobs about two instances, in an order."""
    objects = tuple(configuration(2, 2))
    guests = [
        GuestChange(-60.0, WEB, HOME, GuestState.UP),
        GuestChange(-60.0, DB, OTHER, GuestState.UP),
        GuestChange(0.0, WEB, HOME, GuestState.DOWN),
        GuestChange(down_s, WEB, target, GuestState.UP),
    ]
    jobs = [
        JobRecord(
            number,
            "success",
            1.0,
            (OpRecord(f"INSTANCE_STARTUP({name})", "success", 1.0, 1.5, 1.5 + work_s),),
        )
        for number, name in enumerate(order, 1)
    ]
    return History(ended=60.0, before=(), after=objects, guests=guests, jobs=jobs)


SEEDS = [history(), history(down_s=13.0)]


def test_facts_have_places_jobs_and_times() -> None:
    facts = facts_of(history())
    assert facts.homes == {WEB: HOME, DB: OTHER}
    assert facts.running == {WEB: HOME, DB: OTHER}
    assert facts.jobs == [("INSTANCE_STARTUP", WEB, 0), ("INSTANCE_STARTUP", DB, 0)]
    assert facts.downtimes == {(WEB, 0): 12.0}
    assert facts.works[facts.jobs[0]] == pytest.approx(2.0)


@pytest.mark.parametrize("down_s", [12.0, 12.4, 13.0, 13.9, 11.1])
def test_time_within_the_widened_interval_agrees(down_s: float) -> None:
    assert differences(SEEDS, history(down_s=down_s), 1.0) == []


def test_each_difference_is_told() -> None:
    def found(real: History) -> str:
        return "\n".join(differences(SEEDS, real, 1.0))

    assert "is down for 10.90 s, in the simulation 12.00 to 13.00 s, ± 1.00 s" in found(
        history(down_s=10.9)
    )
    assert "is down for 14.10 s" in found(history(down_s=14.1))
    assert "INSTANCE_STARTUP(web1.example.com) works for 4.00 s" in found(history(work_s=4.0))
    assert f"{WEB} runs at the end on {OTHER}, in the simulation {HOME}" in found(
        history(target=OTHER)
    )
    swapped = found(history(order=(DB, WEB)))
    assert (
        f"INSTANCE_STARTUP({DB}) comes before INSTANCE_STARTUP({WEB}), in the simulation after it"
        in swapped
    )
    assert f"INSTANCE_STARTUP({DB}) ends as nothing" in found(history(order=(WEB,)))
    assert f"INSTANCE_STARTUP({WEB}) number 2 ends as success" in found(
        history(order=(WEB, DB, WEB))
    )
    never_down = replace(history(), guests=history().guests[:2])
    assert f"{WEB} is down for no time" in found(never_down)


def test_order_on_which_the_seeds_do_not_agree_is_not_compared() -> None:
    both = [history(), history(order=(DB, WEB))]
    assert differences(both, history(), 1.0) == []
    assert differences(both, history(order=(DB, WEB)), 1.0) == []


def test_jobs_of_commands_around_a_scenario_do_not_count() -> None:
    real = history()
    verify = OpRecord("CLUSTER_VERIFY", "success", 0.0, 0.0, 9.0)
    real.jobs.append(JobRecord(9, "success", 0.0, (verify,)))
    assert differences(SEEDS, real, 1.0) == []
