"""`hbal -X` at SIGINT and SIGTERM: what runs is finished, what has not begun is canceled."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ganeti.base.errors import StoreError
from ganeti.cli import hbal
from tests.unit.cli.fake_master import FakeMaster
from tests.unit.cli.test_placement_commands import luxi_answers

Printed = pytest.CaptureFixture[str]
FINAL = ("success", "canceled")


class Queue:
    """Three jobs; the first one runs, and ends once `ends_when` holds."""

    def __init__(self, master: FakeMaster, number: signal.Signals, times: int = 1) -> None:
        self.status = {7: "running", 8: "waiting", 9: "queued"}
        self.canceled: list[int] = []
        self.is_canceled = threading.Event()
        self._signal, self._times = number, times
        luxi_answers(master)
        master.job()
        master.replies["QueryJobs"] = self._query
        master.replies["CancelJob"] = self._cancel
        master.replies["WaitForJobChange"] = self._wait

    def _query(self, ids: list[int], _fields: list[str]) -> list[list[Any]]:
        return [[self.status[job_id]] for job_id in ids]

    def _cancel(self, job_id: int, _is_forced: object) -> list[Any]:
        self.canceled.append(job_id)
        self.status[job_id] = "canceled"
        if len(self.canceled) == 2:
            self.is_canceled.set()
        return [True, "canceled"]

    def _wait(self, job_id: int, *_more: object) -> list[Any]:
        if self.status[job_id] not in FINAL:
            for _ in range(self._times):
                os.kill(os.getpid(), self._signal)
                assert self.is_canceled.wait(10)
            self.status[job_id] = "success"
        return [[self.status[job_id]], []]


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_runs_is_finished_and_the_rest_is_canceled_last_first(
    master: FakeMaster, capsys: Printed, number: signal.Signals
) -> None:
    before = handlers()
    queue = Queue(master, number)
    assert hbal.main(["-L", "-X", "-l", "3"]) == 1
    out, err = capsys.readouterr()
    assert [line.rsplit(": ")[1] for line in out.splitlines() if line.startswith("job ")] == [
        "success", "canceled", "canceled",
    ]  # fmt: skip
    assert queue.canceled == [9, 8]
    assert "waiting for running jobs" in err
    assert "Exiting early" in err
    assert handlers() == before


def test_a_second_signal_exits_at_once_and_leaves_the_jobs(
    master: FakeMaster, capsys: Printed
) -> None:
    before = handlers()
    queue = Queue(master, signal.SIGTERM, times=2)
    with pytest.raises(SystemExit) as end:
        hbal.main(["-L", "-X", "-l", "3"])
    assert end.value.code == 2
    assert queue.canceled == [9, 8]
    assert "the jobs continue to run" in capsys.readouterr().err
    assert handlers() == before


def test_a_master_that_refuses_to_cancel_is_no_reason_to_leave(
    master: FakeMaster, capsys: Printed
) -> None:
    queue = Queue(master, signal.SIGINT)

    def refuse(_job_id: int, _is_forced: object) -> StoreError:
        queue.is_canceled.set()
        return StoreError("the disk is full")

    master.replies["CancelJob"] = refuse
    waits: Callable[..., list[Any]] = master.replies["WaitForJobChange"]

    def wait(job_id: int, *more: object) -> list[Any]:
        if job_id != 7:
            queue.status[job_id] = "success"
        return waits(job_id, *more)

    master.replies["WaitForJobChange"] = wait
    assert hbal.main(["-L", "-X", "-l", "3"]) == 0
    out, err = capsys.readouterr()
    assert "cannot cancel the waiting jobs: the disk is full" in err
    assert out.count(": success") == 3
