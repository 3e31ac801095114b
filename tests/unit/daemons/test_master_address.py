"""The cluster's address comes up with the master."""

import asyncio

import pytest
from msgspec.structs import replace

from ganeti.daemons.master_address import MasterAddress
from ganeti.rpc.fake import Fault
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
    master.rpc.fail(2, Fault.NOT_SENT)
    address = MasterAddress(master.config, master.rpc, epoch=3)
    address.start()
    await asyncio.sleep(60)
    assert master.world.node(1).has_master_ip
    assert [call.key for call in master.rpc.changing_calls] == [
        f"master-ip/3/{number}" for number in (1, 2, 3)
    ]
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


async def test_it_is_given_up_when_the_master_ends() -> None:
    master = await with_address("eth0")
    del master.rpc.nodes["node1.example.com"]
    address = MasterAddress(master.config, master.rpc, epoch=3)
    address.start()
    await asyncio.sleep(60)
    await address.close()
    assert not master.world.node(1).has_master_ip
    await master.end()
