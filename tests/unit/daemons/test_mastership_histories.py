"""Candidates with real stores and real changes of roles: cuts, kills, take-overs and races lose nothing.

A failure prints its seed; GANETI_HISTORY_SEED=SEED repeats it.
"""

import pytest

from tests.support.mastership_histories import run_history
from tests.support.seeds import FIRST, run_seeds

HISTORIES, LONG = 6, 2_000


@pytest.mark.sampled(1)
@pytest.mark.rotated(2)
@pytest.mark.timeout(120)
@pytest.mark.requirement("G1", "G2", "G4", "G19", "F2", "F4")
@pytest.mark.parametrize("seed", range(FIRST, FIRST + HISTORIES))
def test_no_history_of_candidates_breaks_a_promise(seed: int) -> None:
    assert run_seeds(run_history, __name__, seed, 1) > 20


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.requirement("G1", "G2", "G4", "G19", "F2", "F4")
def test_no_history_of_candidates_breaks_a_promise_for_long() -> None:
    run_seeds(run_history, __name__, 1_000_000 + FIRST, LONG)
