"""A three-node cluster in one process, in virtual time."""

from collections.abc import AsyncIterator

import pytest

from tests.support.units_cluster import Master, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()
