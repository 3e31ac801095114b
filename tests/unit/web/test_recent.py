"""Shared answers: one request to the master for clients that ask the same at the same time."""

import asyncio

import pytest

from ganeti.web.recent import AGE_S, RecentAnswers


class Source:
    """Makes answers when a test lets it."""

    def __init__(self) -> None:
        self.count = 0
        self.may_end = asyncio.Event()

    async def make(self) -> bytes:
        self.count += 1
        await self.may_end.wait()
        if self.count == 2:
            raise ConnectionError("the master is gone")
        return b"answer %d" % self.count


@pytest.mark.requirement("G17")
async def test_simultaneous_requests_have_one_answer_even_if_the_first_client_hangs_up() -> None:
    answers, source = RecentAnswers(), Source()
    clients = [asyncio.create_task(answers.answer("q", "1", 0.0, source.make)) for _ in range(5)]
    await asyncio.sleep(0)
    clients[0].cancel()
    source.may_end.set()
    assert [await one for one in clients[1:]] == [b"answer 1"] * 4
    assert await answers.answer("q", "1", AGE_S, source.make) == b"answer 1"


async def test_failed_answer_reaches_its_clients_and_is_not_kept() -> None:
    answers, source = RecentAnswers(), Source()
    source.may_end.set()
    source.count = 1
    clients = [asyncio.create_task(answers.answer("q", "1", 0.0, source.make)) for _ in range(2)]
    for one in clients:
        with pytest.raises(ConnectionError):
            await one
    assert await answers.answer("q", "1", 0.0, source.make) == b"answer 3"


@pytest.mark.parametrize(
    ("asked", "state", "now"), [("r", "1", 0.0), ("q", "2", 0.0), ("q", "1", AGE_S + 1)]
)
async def test_other_request_other_state_and_old_answer_are_asked_again(
    asked: str, state: str, now: float
) -> None:
    answers, source = RecentAnswers(), Source()
    source.may_end.set()
    assert await answers.answer("q", "1", 0.0, source.make) == b"answer 1"
    source.count = 2
    assert await answers.answer(asked, state, now, source.make) == b"answer 3"
