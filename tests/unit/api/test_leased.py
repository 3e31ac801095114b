"""Clients are answered under a valid lease or not at all (F6)."""

import asyncio

import pytest

from ganeti.api.leased import LeasedDispatcher
from ganeti.api.luxi_server import Caller
from ganeti.protocols.luxi import Answer, Request
from ganeti.store.lease_gate import LeaseGate

CALLER = Caller(0, 0, 1)
READ, SUBMIT = Request("QueryJobs", []), Request("SubmitJob", [])
pytestmark = pytest.mark.requirement("F6", "G4")


class Lease:
    """Valid until it is told otherwise; the master is frozen in the middle of an answer."""

    def __init__(self, *, ends_while_asked: bool = False) -> None:
        self.is_valid, self.asked = True, 0
        self.is_over = ends_while_asked
        self.ends_while_asked = ends_while_asked

    def is_abandonable(self, method: str) -> bool:
        return method == "WaitForJobChange"

    def answer_at_once(self, request: Request, caller: Caller) -> Answer | None:
        del request, caller
        self.asked += 1
        return Answer(True, "at once")

    async def answer(self, request: Request, caller: Caller) -> Answer:
        del request, caller
        self.asked += 1
        self.is_valid = self.is_valid and not self.ends_while_asked
        return Answer(True, "later")


def leased(lease: Lease) -> LeasedDispatcher:
    gate = LeaseGate(lambda: lease.is_valid, lambda: lease.is_over)
    return LeasedDispatcher(lease, gate, {"SubmitJob"})


async def test_valid_lease_answers() -> None:
    one = leased(Lease())
    assert one.answer_at_once(READ, CALLER) == Answer(True, "at once")
    assert await one.answer(READ, CALLER) == Answer(True, "later")
    assert one.is_abandonable("WaitForJobChange")


async def test_master_that_wakes_without_a_lease_answers_nothing() -> None:
    lease = Lease()
    lease.is_valid, lease.is_over = False, True
    one = leased(lease)
    assert one.answer_at_once(READ, CALLER) is None
    answer = await one.answer(SUBMIT, CALLER)
    assert not answer.success
    assert "not the master" in str(answer.result)
    assert lease.asked == 0


async def test_request_waits_until_the_lease_is_confirmed_again() -> None:
    lease = Lease()
    lease.is_valid = False
    one = leased(lease)
    answering = asyncio.create_task(one.answer(READ, CALLER))
    await asyncio.sleep(0.05)
    assert not answering.done()
    assert lease.asked == 0
    lease.is_valid = True
    assert await answering == Answer(True, "later")


async def test_answer_that_was_read_when_the_lease_ended_is_not_given_out() -> None:
    assert not (await leased(Lease(ends_while_asked=True)).answer(READ, CALLER)).success


async def test_durable_success_is_reported_after_the_lease_ended() -> None:
    assert (await leased(Lease(ends_while_asked=True)).answer(SUBMIT, CALLER)).success
