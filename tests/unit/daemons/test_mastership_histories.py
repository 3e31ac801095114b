"""Candidates with real stores and real changes of roles: cuts, kills, take-overs and races lose nothing.

A failure prints its seed; GANETI_HISTORY_SEED=SEED repeats it.
"""

from collections.abc import Coroutine
from typing import Any

import pytest

from ganeti.store import local_log
from tests.support.mastership_histories import Violation, run_history
from tests.support.seeds import FIRST, breaks, run_seeds

HISTORIES, LONG = 12, 2_000
BATCH = 3
"""As many as one process runs before it takes other tests."""
TRIES = (47, 52, *range(16, 300))
"""The first often find it, not always the same: the files are written by real threads."""


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


async def _half_way(work: Coroutine[Any, Any, None]) -> None:
    await work


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_follower_that_forgets_what_it_wrote_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a session must not come between what is on the disk and what is said of it."""
    monkeypatch.setattr(local_log, "to_the_end", _half_way)
    assert breaks(run_history, TRIES, Violation)
