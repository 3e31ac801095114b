"""Calls about networks: asked of the drivers that have any."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.abilities import ChecksNics, Options
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.hypervisor.interface import Hypervisor
from ganeti.hypervisor.registry import hypervisors
from ganeti.model.instance_spec import NicSpec
from ganeti.node import networks
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.networks import NICS_CHECK, NicsArgs
from tests.support.fake_rpc import FakeRpc

NIC = NicSpec(uuid="n", index=0, mac="m", link="nosuchbridge")


class Networked(FakeHypervisor, ChecksNics):
    @property
    def options(self) -> Options:
        return Options(networks=self)

    async def wrong_nics(self, nics: Sequence[NicSpec]) -> list[str]:
        return [f"NIC {nic.index}: no {nic.link}" for nic in nics]


async def check(drivers: dict[str, Hypervisor], name: str) -> list[str]:
    handler = networks.handlers(drivers)[NICS_CHECK.name]
    wrong: list[str] = await handler(NicsArgs(hypervisor=name, nics=[NIC]), Call())
    return wrong


async def test_a_driver_with_networks_is_asked(tmp_path: Path) -> None:
    drivers: dict[str, Hypervisor] = {"fake": Networked(Paths(tmp_path))}
    assert await check(drivers, "fake") == ["NIC 0: no nosuchbridge"]


async def test_a_driver_without_networks_needs_none(tmp_path: Path) -> None:
    assert await check({"fake": FakeHypervisor(Paths(tmp_path))}, "fake") == []


async def test_kvm_is_a_driver_with_networks(tmp_path: Path) -> None:
    drivers = dict(hypervisors(Paths(tmp_path), FakeRpc({})))  # type: ignore[arg-type]  # runs nothing
    [problem] = await check(drivers, "kvm")
    assert "nosuchbridge" in problem


async def test_an_unknown_hypervisor_is_named(tmp_path: Path) -> None:
    with pytest.raises(HypervisorError, match="no hypervisor 'xen'"):
        await check({}, "xen")
