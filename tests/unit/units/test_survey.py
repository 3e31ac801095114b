"""Surveys by the master: kept for some seconds, and computed once for many."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ganeti.base.errors import PrereqError
from ganeti.daemons.allocation_client import AllocationClient
from ganeti.daemons.allocation_worker import Worker
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.units.survey import FRESH_S, Survey
from tests.support.units_cluster import Master, World, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


class Inline:
    """Computes surveys in this process."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def survey(self, message: dict[str, Any]) -> Any:
        self.asked.append(message["request"])
        await asyncio.sleep(0.1)
        return await AllocationClient(Worker().exchange).survey(message)


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()


async def test_overview_is_computed_once_for_many_and_again_after_a_change(
    master: Master,
) -> None:
    inline = Inline()
    survey = Survey(master.services, inline)
    first, second = await asyncio.gather(survey.overview(), survey.overview())
    assert first == second
    assert len(inline.asked) == 1
    assert first["nodes"]["total"] == len(master.services.config.snapshot.nodes)
    assert first["instances"] == {"total": 0, "running_wanted": 0, "down_wanted": 0}
    assert first["standard"]["fits"] >= 0
    succeeded(await master.run(create()))
    assert (await survey.overview())["instances"]["total"] == 1
    assert len(inline.asked) == 2
    await asyncio.sleep(FRESH_S + 1)
    await survey.overview()
    assert len(inline.asked) == 3


async def test_impact_has_the_instances_of_the_node(master: Master) -> None:
    succeeded(await master.run(create()))
    snapshot = master.services.config.snapshot
    (instance,) = snapshot.instances.values()
    survey = Survey(master.services, Inline())
    found = await survey.impact(snapshot.nodes[instance.primary_node].name)
    assert [one["name"] for one in found["instances"]] == [NAME]
    counts = {one.pop("name"): one for one in (await survey.impacts())["nodes"]}
    assert sum(counts[found["node"]].values()) == 1
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert (await survey.impact(found["node"]))["instances"] == []
    with pytest.raises(PrereqError):
        await survey.impact("no-such-node")
