"""The cluster's address comes up with the master."""

import asyncio

import pytest
from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.daemons.master_address import MasterAddress
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import MasterIpArgs
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("F5")]


async def with_address(netdev: str) -> Master:
    master = await Master.begin(World())
    await master.change(
        lambda draft: draft.put(
            replace(draft.cluster, master_ip="192.0.2.99", master_netdev=netdev)
        )
    )
    return master


async def test_it_is_tried_until_it_is_up() -> None:
    master = await with_address("eth0")
    master.rpc.fail(1, Fault.REFUSED)
    others = len(master.config.snapshot.nodes) - 1
    master.rpc.fail(2 + others, Fault.NOT_SENT)
    address = MasterAddress(master.config, master.rpc, epoch=3)
    address.start()
    await asyncio.sleep(60)
    assert master.world.node(1).has_master_ip
    ups = [call.key for call in master.rpc.changing_calls if call.procedure == "master_ip_up"]
    assert ups == [f"master-ip/3/{number}" for number in (1, 2, 3)]
    await address.close()
    await master.end()


async def test_a_former_master_gives_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while another node does not answer."""
    master = await with_address("eth0")
    former, new = master.world.node(2), master.world.node(1)
    former.has_master_ip = True
    del master.rpc.nodes["node3.example.com"]
    real = new.on_master_ip_up

    def up(args: MasterIpArgs) -> Nothing:
        if former.has_master_ip:
            raise PrereqError("another host answers", ErrorCode.WRONG_STATE)
        return real(args)

    monkeypatch.setattr(new, "on_master_ip_up", up)
    address = MasterAddress(master.config, master.rpc, epoch=3)
    address.start()
    await asyncio.sleep(60)
    assert (new.has_master_ip, former.has_master_ip) == (True, False)
    await address.close()
    await master.end()


async def test_former_master_is_asked_first_before_a_script() -> None:
    master = await with_address("eth0")
    await master.change(
        lambda draft: draft.put(replace(draft.cluster, use_external_mip_script=True))
    )
    master.world.node(2).has_master_ip = True
    address = MasterAddress(master.config, master.rpc, epoch=3)
    address.start()
    await asyncio.sleep(60)
    acts = master.rpc.acts()
    assert (set(acts[:-1]), acts[-1]) == ({"master_ip_down"}, "master_ip_up")
    assert master.world.node(1).has_master_ip
    assert not master.world.node(2).has_master_ip
    await address.close()
    await master.end()


async def test_nothing_is_done_without_an_interface() -> None:
    master = await with_address("")
    address = MasterAddress(master.config, master.rpc, epoch=3)
    address.start()
    await asyncio.sleep(60)
    assert master.rpc.calls == []
    await address.close()
    await master.end()


async def test_address_retries_end_with_the_master() -> None:
    master = await with_address("eth0")
    del master.rpc.nodes["node1.example.com"]
    address = MasterAddress(master.config, master.rpc, epoch=3)
    address.start()
    await asyncio.sleep(60)
    await address.close()
    assert not master.world.node(1).has_master_ip
    await master.end()
