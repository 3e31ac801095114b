"""Ending the guests that a virtual node has left."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.base.process import Run
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.instance_spec import InstanceSpec
from ganeti.uidpool import DIRECTORY_VARIABLE
from ganeti.vcluster import leftovers
from ganeti.vcluster.layout import UID_LOCKS, VirtualNode


@pytest.mark.requirement("G11")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has ids of a pool")
async def test_the_lock_files_are_looked_for_where_the_nodes_of_this_host_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def made(paths: Paths, _run: Run) -> Mapping[str, Hypervisor]:
        seen.append(os.environ.get(DIRECTORY_VARIABLE))
        return {"fake": FakeHypervisor(paths)}

    monkeypatch.setattr(leftovers, "hypervisors", made)
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    node = VirtualNode(name="node1", root=str(tmp_path), address="127.0.0.1")
    assert await leftovers.end_guests(node, lambda _line: None) == []
    assert seen == [str(UID_LOCKS)]
    assert DIRECTORY_VARIABLE not in os.environ


async def test_guests_of_each_hypervisor_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = FakeHypervisor(Paths(tmp_path / "one")), FakeHypervisor(Paths(tmp_path / "other"))
    for number, driver in enumerate((one, other)):
        await driver.start(guest(number), [])
    monkeypatch.setattr(leftovers, "hypervisors", lambda *_: {"fake": one, "kvm": other})
    node = VirtualNode(name="node1", root=str(tmp_path), address="127.0.0.1")
    said: list[str] = []
    assert await leftovers.end_guests(node, said.append) == []
    assert said == ["ended instance web0 on node1", "ended instance web1 on node1"]
    assert [*await one.running(), *await other.running()] == []


def guest(number: int) -> InstanceSpec:
    return InstanceSpec(
        name=f"web{number}",
        uuid=f"uuid{number}",
        hypervisor="fake",
        os="",
        memory=64,
        vcpus=1,
        hvparams={},
    )
