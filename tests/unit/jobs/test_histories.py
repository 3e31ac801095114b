"""Hundreds of short histories of jobs, configuration and units under kills, pauses, cuts and lost calls.

A failure prints its seed; GANETI_HISTORY_SEED=SEED repeats it.
"""

from typing import Any

import pytest

from ganeti.jobs.recovery import Recovery
from ganeti.rpc.stale_work import StaleWorkFence
from tests.support.histories import Violation, run_history
from tests.support.seeds import FIRST, breaks, run_seeds

HISTORIES, BATCH = 80, 10
MUTATIONS, LONG = 200, 10_000
"""More are run by `make soak`: so many for each change of `tests/mutations.toml`, and many with no change."""
TRIES = 100


@pytest.mark.sampled(1)
@pytest.mark.rotated(4)
@pytest.mark.timeout(120)
@pytest.mark.requirement("G1", "G4", "G5", "G6", "G7", "G8", "G11", "F2", "F3", "F11")
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.soak] if first >= FIRST + HISTORIES else [])
        for first in range(FIRST, FIRST + MUTATIONS, BATCH)
    ],
)
def test_no_history_of_a_cluster_breaks_a_promise(first: int) -> None:
    assert run_seeds(run_history, __name__, first, BATCH) > 15 * BATCH


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_history_of_a_cluster_breaks_a_promise_for_long() -> None:
    run_seeds(run_history, __name__, 1_000_000 + FIRST, LONG)


def test_history_190_sees_pending_undo_while_recovery_lasts() -> None:
    assert run_seeds(run_history, __name__, 190, 1) > 0


async def _call_at_once(self: Any, node: Any, procedure: Any, args: Any, *, key: str = "") -> Any:
    return await self._rpc.call(node, procedure, args, key=key)


async def _undo_nothing(self: Any, job: Any) -> Any:
    return "", ()


LEFT_OUT = {
    "ending what may still run": (StaleWorkFence, "call", _call_at_once),
    "undoing what a dead master began": (Recovery, "_undo", _undo_nothing),
}


@pytest.mark.sampled(0)
@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", LEFT_OUT)
def test_without_it_a_promise_is_broken(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*LEFT_OUT[what])
    assert breaks(run_history, range(TRIES), Violation), f"{TRIES} histories do not need {what}"
