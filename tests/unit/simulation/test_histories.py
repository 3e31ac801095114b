"""Random histories of whole clusters: no guest runs twice, and in the end everything runs that should.

A failure prints the command that repeats it: GANETI_HISTORY_SEED=SEED with this file.
"""

from typing import Any

import pytest

from ganeti.jobs.run import Run
from tests.support.cluster_histories import Violation, run_history
from tests.support.seeds import FIRST, breaks, run_seeds

HISTORIES, BATCH = 30, 5
LONG = 5_000
TRIES = 40


@pytest.mark.sampled(1)
@pytest.mark.rotated(2)
@pytest.mark.timeout(180)
@pytest.mark.requirement("G1", "G5", "G6", "G8", "D6", "D7", "D9", "D11", "D12", "D13")
@pytest.mark.parametrize("first", range(FIRST, FIRST + HISTORIES, BATCH))
def test_no_history_of_a_cluster_breaks_a_promise(first: int) -> None:
    assert run_seeds(run_history, __name__, first, BATCH) > 2 * BATCH


@pytest.mark.requirement("D11")
def test_guest_whose_migration_is_undone_after_its_job_is_started_again() -> None:
    """Its guest is gone then, and no job ends: recovery's time must not stand still."""
    assert run_history(1_000_485)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_no_history_of_a_cluster_breaks_a_promise_for_long() -> None:
    run_seeds(run_history, __name__, 1_000_000 + FIRST, LONG)


async def _acquire_nothing(self: Any, requests: Any) -> None:
    del requests
    self.go()


LEFT_OUT: dict[str, tuple[Any, str, Any]] = {
    "locks": (Run, "acquire", _acquire_nothing),
}


@pytest.mark.sampled(0)
@pytest.mark.timeout(180)
@pytest.mark.parametrize("what", LEFT_OUT)
def test_without_it_a_promise_is_broken(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*LEFT_OUT[what])
    assert breaks(run_history, range(TRIES), Violation), f"{TRIES} histories do not need {what}"
