"""One lock an instance."""

import asyncio

from ganeti.node.instance_locks import InstanceLocks


async def test_calls_about_one_instance_follow_each_other_and_others_do_not_wait() -> None:
    locks, order = InstanceLocks(), list[str]()

    async def work(instance: str, name: str) -> None:
        async with locks.of(instance):
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            order.append(f"{name} ends")

    await asyncio.gather(work("web1", "a"), work("web1", "b"), work("web2", "c"))
    mine = [one for one in order if one[0] in "ab"]
    assert mine == ["a begins", "a ends", "b begins", "b ends"]
    assert order.index("c begins") < order.index("a ends")
    assert locks.statistics() == {}


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    locks = InstanceLocks()

    async def wait() -> None:
        async with locks.of("web1"):
            pass

    async with locks.of("web1"):
        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        assert locks.statistics() == {"web1": 2}
        waiting.cancel()
        await asyncio.wait([waiting])
    assert locks.statistics() == {}
