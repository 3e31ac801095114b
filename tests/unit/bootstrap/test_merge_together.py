"""Doing the same on many nodes at once."""

import asyncio

import pytest

from ganeti.base.errors import ErrorCode, ExecError, PrereqError
from ganeti.bootstrap.merge.together import together

pytestmark = pytest.mark.virtual_time


async def test_so_many_at_a_time_and_the_results_in_order() -> None:
    busy, most = 0, 0

    async def work(number: int) -> int:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(10 - number)
        busy -= 1
        return number * 2

    assert await together(range(10), work, most=3) == [number * 2 for number in range(10)]
    assert most == 3


async def test_all_are_tried_and_each_failure_is_named() -> None:
    tried = []

    async def work(number: int) -> None:
        tried.append(number)
        if number == 1:
            raise PrereqError("n1: no", ErrorCode.ENVIRONMENT)
        if number in failing:
            raise OSError(f"n{number}: no file")

    failing = {3}
    with pytest.raises(ExecError, match=r"^n1: no; n3: no file$"):
        await together(range(5), work)
    assert tried == list(range(5))
    failing = set()
    with pytest.raises(PrereqError, match=r"^n1: no$"):
        await together(range(5), work)


async def test_an_error_of_the_program_itself_is_not_hidden_among_others() -> None:
    async def work(number: int) -> None:
        if number == 1:
            raise ValueError("a mistake")
        raise ExecError("no")

    with pytest.raises(ValueError, match="a mistake"):
        await together(range(3), work)
