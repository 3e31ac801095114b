"""A three-node cluster in one process, in virtual time."""

from collections.abc import AsyncIterator

import pytest

from ganeti.units import name_lookup
from tests.support.units_cluster import Master, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every name has the address 192.0.2.77, where somebody answers; who was asked for what, in order."""
    asked: list[str] = []

    async def address_of(name: str) -> str:
        asked.append(name)
        return "192.0.2.77"

    async def is_answering(address: str) -> bool:
        asked.append(address)
        return True

    monkeypatch.setattr(name_lookup, "address_of", address_of)
    monkeypatch.setattr(name_lookup, "is_answering", is_answering)
    return asked
