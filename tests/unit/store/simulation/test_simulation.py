"""Thousands of short histories of crashes, cuts and lost messages; and each rule is needed (section 5)."""

import os

import pytest

from tests.unit.store.simulation.history import History, Violation, short_times
from tests.unit.store.simulation.rules import LEFT_OUT, Rules

HISTORIES = 400
BATCH = 50
TRIES = 4000
RARE = {
    "R2 granting only greater epochs": 330,
    "R2 refusing older replication": 120,
    "R4 every member": 310,
    "R5 a new member has everything": 280,
    "R9 ending without a majority": 380,
    "R9 stopping when fenced": 120,
    "R10 an epoch even by force": 240,
}
"""Where the search begins for a rule that only a rare history needs."""
FIRST = int(os.environ.get("GANETI_SIMULATION_SEED", "0"))
"""The first seed: a failure names the seed to begin with."""


def run(first: int, count: int, rules: type[Rules]) -> int:
    """How many writes were acknowledged; fails with the seed of a history that breaks a promise."""
    acknowledged = 0
    with short_times():
        for seed in range(first, first + count):
            try:
                acknowledged += History(seed, rules()).run()
            except Violation as violation:
                pytest.fail(f"GANETI_SIMULATION_SEED={seed}: {violation}")
    return acknowledged


@pytest.mark.sampled(1)
@pytest.mark.rotated(4)
@pytest.mark.timeout(120)
@pytest.mark.requirement("G1", "G2", "G4", "G8", "F2")
@pytest.mark.parametrize("first", range(FIRST, FIRST + HISTORIES, BATCH))
def test_no_history_breaks_a_promise(first: int) -> None:
    assert run(first, BATCH, Rules) > BATCH


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_history_breaks_a_promise_for_long() -> None:
    run(1_000_000 + FIRST, 50_000, Rules)


@pytest.mark.sampled(1)
@pytest.mark.rotated(6)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("rule", LEFT_OUT)
def test_without_the_rule_a_promise_is_broken(rule: str) -> None:
    first = RARE.get(rule, 0)
    with short_times():
        for seed in range(first, first + TRIES):
            try:
                History(seed, LEFT_OUT[rule]()).run()
            except Violation:
                return
    pytest.fail(f"none of {TRIES} histories from seed {first} needs {rule}")
