"""A new hypervisor is a row with its parameters and a driver: nothing else has to know of it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.registry import hypervisors
from ganeti.model import hypervisors as rows
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.instance import OpInstanceShutdown, OpInstanceStartup
from ganeti.node import instance as instance_calls
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Handlers
from ganeti.simulation.nodes.model import ModelNode
from ganeti.storage.assemble import device
from tests.support.toy import discovered
from tests.support.units_cluster import Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


@dataclass
class ToyNode(ModelNode):
    """A model node whose guests are started by real drivers, below a directory of its own."""

    top: ClassVar[Path]
    hypervisors: tuple[str, ...] = ("fake", "kvm", "toy")

    def handlers(self) -> Handlers:
        paths = Paths(self.top / self.name)
        calls = instance_calls.handlers(
            hypervisors(paths, run), partial(device, paths), InstanceLocks(), lambda _uuid: False
        )
        return super().handlers() | calls


@pytest.fixture
async def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Master]:
    with discovered("hypervisor", "model.hypervisors"):
        (toy,) = {
            row.name: row for row in rows.find_rows() if row.name not in rows.HYPERVISORS
        }.values()
        monkeypatch.setitem(rows.HYPERVISORS, toy.name, toy)
        monkeypatch.setitem(HYPERVISOR_PARAMS, toy.name, {one.name: one for one in toy.params})
        monkeypatch.setattr(ToyNode, "top", tmp_path, raising=False)
        one = await Master.begin(World(node_type=ToyNode))
        yield one
        await one.end()


def playing(top: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in top.glob("*/guests/*")}


async def test_guest_of_a_new_hypervisor_starts_and_stops(master: Master, tmp_path: Path) -> None:
    succeeded(await master.run(OpClusterSetParams(enabled_hypervisors=["toy"])))
    made = create(disk_template="diskless", disks=[], hypervisor="toy", hvparams={"tune": "polka"})
    succeeded(await master.run(made))
    assert playing(tmp_path) == {NAME: "polka"}
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    assert playing(tmp_path) == {}
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME, hvparams={"tune": "waltz"})))
    assert playing(tmp_path) == {NAME: "waltz"}


async def test_parameter_of_a_new_hypervisor_is_checked(master: Master) -> None:
    succeeded(await master.run(OpClusterSetParams(enabled_hypervisors=["toy"])))
    made = create(disk_template="diskless", disks=[], hypervisor="toy", hvparams={"tune": "rock"})
    assert "tune" in str(failed(await master.run(made)))
