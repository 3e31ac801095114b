"""Candidates with real stores and real changes of roles: cuts, kills, take-overs and races lose nothing.

A failure prints its seed; GANETI_HISTORY_SEED=SEED repeats it.
"""

import pytest

from tests.support.mastership_histories import run_history
from tests.support.seeds import FIRST, run_seeds

HISTORIES, LONG = 12, 2_000
BATCH = 3
"""As many as one process runs before it takes other tests."""


@pytest.mark.timeout(120)
@pytest.mark.requirement("G1", "G2", "G4", "G19", "F2", "F4")
@pytest.mark.parametrize("first", range(FIRST, FIRST + HISTORIES, BATCH))
def test_no_history_of_candidates_breaks_a_promise(first: int) -> None:
    assert run_seeds(run_history, __name__, first, BATCH) > 20 * BATCH


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.requirement("G1", "G2", "G4", "G19", "F2", "F4")
def test_no_history_of_candidates_breaks_a_promise_for_long() -> None:
    run_seeds(run_history, __name__, 1_000_000 + FIRST, LONG)
