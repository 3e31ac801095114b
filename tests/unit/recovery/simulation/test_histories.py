"""Thousands of histories of lost nodes, partitions and masters; and each rule is needed."""

import os

import pytest

from tests.unit.recovery.simulation.history import History, Violation
from tests.unit.recovery.simulation.rules import LEFT_OUT, Rules

HISTORIES, BATCH = 2000, 100
TRIES = 600
FIRST = int(os.environ.get("GANETI_RECOVERY_SEED", "0"))
"""The first seed: a failure names the seed to begin with."""
RARE = {
    "D2 the copy's own record": ("late", 140),
    "D7 a lease from the sending": ("late", 440),
    "D7 a list that the node has": ("policies", 700),
    "D7 a master with a majority": ("long", 150),
    "D9 more than the generation": ("", 100),
    "D12 fencing of its own epoch": ("stuck", 0),
    "D9 records of a node that returns": ("late", 3330),
}
"""The theme and the first seed of the search for a rule that only few histories need."""


def run(first: int, count: int, theme: str = "") -> int:
    """How many guests were started; fails with the seed of a history that breaks a rule."""
    starts = 0
    for seed in range(first, first + count):
        try:
            starts += History(seed, Rules(), theme).run()
        except Violation as violation:
            pytest.fail(f"GANETI_RECOVERY_SEED={seed}: {violation}")
    return starts


@pytest.mark.sampled(1)
@pytest.mark.rotated(4)
@pytest.mark.timeout(180)
@pytest.mark.requirement("G1", "G5", "G8")
@pytest.mark.requirement("D1", "D2", "D3", "D4", "D5", "D6", "D7", "D8", "D9", "D11", "D12", "D13")
@pytest.mark.parametrize("first", range(FIRST, FIRST + HISTORIES, BATCH))
def test_no_disk_has_two_writers_and_no_write_is_lost(first: int) -> None:
    assert run(first, BATCH) > 3 * BATCH


@pytest.mark.sampled(1)
@pytest.mark.rotated(1)
@pytest.mark.timeout(180)
@pytest.mark.requirement("D2", "D8", "D9")
@pytest.mark.parametrize("first", range(FIRST, FIRST + 300, BATCH))
def test_guests_that_are_stopped_in_order_are_recovered_like_others(first: int) -> None:
    assert run(first, BATCH, "stops") > 3 * BATCH


@pytest.mark.requirement("D7", "D13")
def test_lost_node_is_fenced_once_its_management_controller_is_back() -> None:
    for seed in range(FIRST, FIRST + 5):
        try:
            History(seed, Rules(), "any").run_outage()
        except Violation as violation:
            pytest.fail(f"GANETI_RECOVERY_SEED={seed}: {violation}")


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_no_disk_has_two_writers_for_long() -> None:
    run(1_000_000 + FIRST, 100_000)


@pytest.mark.sampled(1)
@pytest.mark.rotated(4)
@pytest.mark.timeout(180)
@pytest.mark.parametrize("rule", LEFT_OUT)
def test_without_the_rule_a_disk_is_damaged(rule: str) -> None:
    theme, first = RARE.get(rule, ("", 0))
    for seed in range(first, first + TRIES):
        try:
            History(seed, LEFT_OUT[rule](), theme).run()
        except Violation as violation:
            if "although all is well" not in str(violation):
                return
    pytest.fail(f"none of {TRIES} histories from seed {first} on needs {rule}")
