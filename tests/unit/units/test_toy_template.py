"""A new disk template is a row, a planner and a driver: nothing else has to know of it."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from ganeti.base.paths import Paths
from ganeti.layouts.registry import PLANNERS, find_planners
from ganeti.model.disk_templates import DISK_TEMPLATES, TEMPLATES
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.model.opcodes.instance_changes import (
    OpInstanceActivateDisks,
    OpInstanceDeactivateDisks,
    OpInstanceGrowDisk,
)
from ganeti.node import storage as disk_calls
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Handlers
from ganeti.simulation.nodes.model import ModelNode
from ganeti.storage import assemble
from tests.support.toy import discovered
from tests.support.toy.row import TOY
from tests.support.units_cluster import Master, World, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


class ToyNode(ModelNode):
    """A model node whose disks are kept by real drivers, below a directory of its own."""

    top: ClassVar[Path]

    def handlers(self) -> Handlers:
        device = partial(assemble.device, Paths(self.top / self.name))
        return super().handlers() | disk_calls.handlers(device, InstanceLocks())


@pytest.fixture
async def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Master]:
    monkeypatch.setitem(TEMPLATES, TOY.name, TOY)
    monkeypatch.setitem(DISK_TEMPLATES, TOY.name, TOY)
    with discovered("layouts", "storage"):
        for name, planner in find_planners():
            monkeypatch.setitem(PLANNERS, name, planner)
        for name, driver in assemble.find_drivers():
            monkeypatch.setitem(assemble.DRIVERS, name, driver)
        monkeypatch.setattr(ToyNode, "top", tmp_path, raising=False)
        one = await Master.begin(World(node_type=ToyNode, enabled_disk_templates=(TOY.name,)))
        yield one
        await one.end()


def files(top: Path) -> dict[str, int]:
    """Of all nodes: how a disk's file ends, and its size in MiB."""
    found = sorted(top.glob("*/toys/*"))
    return {f"{path.parts[-3]} {path.suffix}": path.stat().st_size >> 20 for path in found}


async def test_disk_of_a_new_template_lives_through_the_units(
    master: Master, tmp_path: Path
) -> None:
    disk = DiskRequest(size=64, params={"colour": "blue"})
    succeeded(
        await master.run(create(disk_template="toy", disks=[disk], start=False, no_install=True))
    )
    (made,) = master.instance(NAME).disks
    assert made.logical_id[0] == "toy"
    assert made.params == {"colour": "blue"}
    assert files(tmp_path) == {"node1.example.com .disk0": 64}
    succeeded(await master.run(OpInstanceActivateDisks(instance_name=NAME)))
    assert files(tmp_path) == {"node1.example.com .open": 64}
    succeeded(await master.run(OpInstanceGrowDisk(instance_name=NAME, disk=0, amount=16)))
    assert files(tmp_path) == {"node1.example.com .open": 80}
    succeeded(await master.run(OpInstanceDeactivateDisks(instance_name=NAME)))
    assert files(tmp_path) == {"node1.example.com .disk0": 80}
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert files(tmp_path) == {}
