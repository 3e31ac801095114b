"""How fast passwords can be guessed, from one address and at one name, side by side and after a right one."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from ganeti.web.delays import LONGEST_S, WAITING_LIMIT, LoginDelays
from ganeti.web.refusals import Refusal

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("A6")]


SECONDS = 20


class Passwords:
    """Counts comparisons; `eve` and `anna` have the password `right`."""

    def __init__(self) -> None:
        self.delays = LoginDelays(lambda: asyncio.get_running_loop().time())
        self.compared: Counter[str] = Counter()

    def check(self, name: str, password: str) -> Callable[[], Awaitable[str | None]]:
        async def compare() -> str | None:
            self.compared[name] += 1
            return name if password == "right" else None

        return compare

    async def guess(self, address: str, name: str, password: str = "wrong") -> str | None:
        try:
            check = self.check(name, password)
            return await self.delays.login(address, name, f"{name}:{password}", check)
        except Refusal as refusal:
            return str(refusal.status.value)


async def guess_for(
    one: Passwords, seconds: float, clients: int, make: Callable[[int, int], tuple[str, str]]
) -> None:
    """Clients that guess as fast as they can, and hang up when an answer takes more than 50 ms."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds

    async def client(number: int) -> None:
        count = 0
        while loop.time() < end:
            count += 1
            try:
                async with asyncio.timeout(0.05):
                    await one.guess(*make(number, count))
            except TimeoutError:
                continue
            await asyncio.sleep(0.02)

    await asyncio.gather(*(client(number) for number in range(clients)))


async def test_clients_of_one_address_guess_slowly_however_many_they_are() -> None:
    one = Passwords()
    await guess_for(one, SECONDS, 8, lambda number, count: ("192.0.2.1", f"user{number}-{count}"))
    assert one.compared.total() <= 6 + SECONDS / LONGEST_S


async def test_a_name_is_guessed_at_slowly_from_however_many_addresses() -> None:
    one = Passwords()
    await guess_for(one, SECONDS, 8, lambda number, _count: (f"192.0.2.{number}", "anna"))
    assert one.compared["anna"] <= 6 + SECONDS / LONGEST_S


async def test_the_addresses_of_one_ipv6_network_are_one() -> None:
    one = Passwords()
    await guess_for(
        one, SECONDS, 5, lambda number, count: (f"2001:db8::{number:x}:{count:x}", f"u{count}")
    )
    assert one.compared.total() <= 6 + SECONDS / LONGEST_S


async def test_a_right_password_does_not_end_the_delays_of_its_address() -> None:
    one = Passwords()
    loop = asyncio.get_running_loop()
    begun, guesses = loop.time(), 0
    while loop.time() - begun < SECONDS:
        await one.guess("192.0.2.1", "anna", f"wrong{guesses}")
        assert await one.guess("192.0.2.1", "eve", "right") == "eve"
        guesses += 1
    assert guesses <= 6 + SECONDS / LONGEST_S


async def test_known_credentials_are_not_delayed_by_other_guesses() -> None:
    one = Passwords()
    assert await one.guess("192.0.2.1", "anna", "right") == "anna"
    guessing = asyncio.create_task(
        guess_for(one, SECONDS, 8, lambda number, _count: (f"192.0.2.{number % 3}", "anna"))
    )
    loop = asyncio.get_running_loop()
    for _ in range(100):
        await asyncio.sleep(0.1)
        begun = loop.time()
        assert await one.guess("192.0.2.1", "anna", "right") == "anna"
        assert loop.time() == begun
    await guessing


async def test_many_that_wait_are_refused_at_once() -> None:
    one = Passwords()
    await one.guess("192.0.2.1", "anna")
    begun = asyncio.get_running_loop().time()
    made = [asyncio.create_task(one.guess("192.0.2.1", f"u{n}")) for n in range(WAITING_LIMIT + 5)]
    done, waiting = await asyncio.wait(made, timeout=0.05)
    assert (len(done), len(waiting)) == (4, WAITING_LIMIT + 1)
    assert {one.result() for one in done} == {"429"}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*made, return_exceptions=True)
    assert asyncio.get_running_loop().time() - begun < 1
    assert await one.guess("192.0.2.1", "eve", "right") == "eve"


async def test_delays_are_forgotten_after_a_minute() -> None:
    one = Passwords()
    loop = asyncio.get_running_loop()
    for _ in range(8):
        await one.guess("192.0.2.1", "anna")
    await asyncio.sleep(120)
    begun = loop.time()
    await one.guess("192.0.2.1", "anna")
    assert loop.time() - begun == pytest.approx(0.1)
