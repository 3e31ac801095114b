"""Networks: made, connected, used by interfaces, emptied; every wrong wish refused."""

from typing import Any

import pytest

from ganeti.config.fill import instance_spec
from ganeti.config.index import address_claim
from ganeti.model.objects import Instance, Network
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import NicRequest
from ganeti.model.opcodes.group import OpGroupAdd, OpGroupAssignNodes
from ganeti.model.opcodes.instance import OpInstanceRemove
from ganeti.model.opcodes.moving import OpInstanceFailover
from ganeti.model.opcodes.network import (
    OpNetworkAdd,
    OpNetworkConnect,
    OpNetworkDisconnect,
    OpNetworkRemove,
    OpNetworkRename,
    OpNetworkSetParams,
)
from ganeti.model.opcodes.tags import OpTagsSet
from tests.support.units_cluster import Master, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = pytest.mark.virtual_time

SUBNET = "198.51.100.0/29"


def network(master: Master, name: str = "net") -> Network:
    found = master.snapshot.network_by_name(name)
    assert found is not None
    return found


def instance(master: Master, name: str = NAME) -> Instance:
    found = master.snapshot.instance_by_name(name)
    assert found is not None
    return found


def add(name: str = "net", **fields: Any) -> OpNetworkAdd:
    return OpNetworkAdd(network_name=name, **{"network": SUBNET, **fields})


def connect(name: str = "net", group: str = "default", **fields: Any) -> OpNetworkConnect:
    given = {"network_mode": "bridged", "network_link": "br7", **fields}
    return OpNetworkConnect(network_name=name, group_name=group, **given)


def disconnect(name: str = "net", group: str = "default") -> OpNetworkDisconnect:
    return OpNetworkDisconnect(network_name=name, group_name=group)


def pooled(name: str = NAME, **fields: Any) -> OpCode:
    return create(name, nics=[NicRequest(ip="pool", network="net", **fields)])


async def connected(master: Master, **fields: Any) -> None:
    succeeded(await master.run(add(**fields)))
    succeeded(await master.run(connect()))


async def test_a_network_is_made_changed_renamed_and_removed(master: Master) -> None:
    op = add(gateway="198.51.100.1", add_reserved_ips=["198.51.100.3"], mac_prefix="AA:00:01")
    succeeded(await master.run(op))
    made = network(master)
    assert (made.gateway, made.external, made.mac_prefix) == (
        "198.51.100.1", ((3, 3),), "aa:00:01",
    )  # fmt: skip
    change = OpNetworkSetParams(
        network_name="net",
        gateway="none",
        network6="2001:db8::/64",
        gateway6="2001:db8::1",
        add_reserved_ips=["198.51.100.4-198.51.100.5"],
        remove_reserved_ips=["198.51.100.3", "198.51.100.2"],
    )
    assert "198.51.100.2 was not reserved" in said(await master.run(change))
    changed = network(master)
    assert (changed.gateway, changed.gateway6, changed.external) == (None, "2001:db8::1", ((4, 5),))
    succeeded(await master.run(OpTagsSet(kind="network", name="net", tags=["a"])))
    rename = OpNetworkRename(network_name=changed.uuid, new_name="other")
    assert succeeded(await master.run(rename)) == "other"
    assert network(master, "other").tags == ("a",)
    succeeded(await master.run(OpNetworkRemove(network_name="other")))
    assert not master.snapshot.networks


async def test_addresses_of_hosts_in_the_subnet_are_reserved(master: Master) -> None:
    view = await master.run(add(network="192.0.2.0/24"))
    assert "reserved 192.0.2.1, the address of node node1" in said(view)
    assert network(master).external == ((1, 3),)
    succeeded(await master.run(add("all", network="192.0.2.0/24", conflicts_check=False)))
    assert network(master, "all").external == ()


@pytest.mark.requirement("G11")
async def test_an_interface_gets_an_address_of_the_pool_until_its_instance_is_removed(
    master: Master,
) -> None:
    await connected(master, gateway="198.51.100.1", mac_prefix="aa:00:77", tags=["t"])
    succeeded(await master.run(pooled()))
    nic = instance(master).nics[0]
    assert (nic.ip, nic.mac[:8], nic.nicparams) == ("198.51.100.2", "aa:00:77", {})
    spec = instance_spec(master.snapshot, instance(master)).nics[0]
    assert (spec.mode, spec.link) == ("bridged", "br7")
    assert spec.network is not None
    assert spec.network.environment("NIC_0_") == {
        "NIC_0_NETWORK_NAME": "net",
        "NIC_0_NETWORK_UUID": network(master).uuid,
        "NIC_0_NETWORK_SUBNET": SUBNET,
        "NIC_0_NETWORK_GATEWAY": "198.51.100.1",
        "NIC_0_NETWORK_MAC_PREFIX": "aa:00:77",
        "NIC_0_NETWORK_TAGS": "t",
    }
    succeeded(await master.run(pooled("web2.example.com")))
    assert instance(master, "web2.example.com").nics[0].ip == "198.51.100.3"
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    assert master.snapshot.index.owner(*address_claim(network(master).uuid, "198.51.100.2")) is None
    succeeded(await master.run(pooled()))
    assert instance(master).nics[0].ip == "198.51.100.2"
    assert master.config.reservations.count() == 0


async def test_jobs_that_run_together_get_different_addresses(master: Master) -> None:
    await connected(master)
    names = [f"web{number}.example.com" for number in range(1, 7)]
    ids = [await master.queue.submit([pooled(name)]) for name in names]
    for job_id in ids:
        succeeded(await master.final(job_id))
    ips = {one.nics[0].ip for one in master.snapshot.instances.values()}
    assert ips == {f"198.51.100.{number}" for number in range(1, 7)}
    _, (text, code) = failed(await master.run(pooled("web7.example.com")))
    assert code == "insufficient_resources"
    assert "has no free address" in text


async def test_a_failed_job_gives_its_address_back(master: Master) -> None:
    await connected(master)
    op = create(nics=[NicRequest(ip="pool", network="net")], os_type="unknown")
    failed(await master.run(op))
    succeeded(await master.run(pooled()))
    assert instance(master).nics[0].ip == "198.51.100.1"


async def test_an_interface_goes_into_a_network_and_out_of_it(master: Master) -> None:
    await connected(master)
    succeeded(await master.run(create()))
    change = modify(nics=[["modify", 0, {"network": "net", "ip": "pool"}]])
    assert succeeded(await master.run(change)) == [
        ["nic.ip/0", "198.51.100.1"], ["nic.network/0", "net"],
    ]  # fmt: skip
    keep = modify(nics=[["modify", 0, {"name": "eth0"}]])
    succeeded(await master.run(keep))
    assert instance(master).nics[0].network == network(master).uuid
    other = modify(nics=[["modify", 0, {"ip": "198.51.100.5"}]])
    succeeded(await master.run(other))
    assert instance(master).nics[0].ip == "198.51.100.5"
    out = modify(nics=[["modify", 0, {"network": "none", "ip": "none"}]])
    succeeded(await master.run(out))
    nic = instance(master).nics[0]
    assert (nic.network, nic.ip) == (None, None)
    added = modify(nics=[["add", -1, {"network": "net", "ip": "198.51.100.5"}]])
    assert "ip=198.51.100.5,network=net" in succeeded(await master.run(added))[0][1]


async def test_what_is_used_is_neither_disconnected_nor_reserved(master: Master) -> None:
    await connected(master)
    succeeded(await master.run(pooled()))
    for op, text in [
        (disconnect(), f"is used in group default by {NAME}"),
        (OpNetworkRemove(network_name="net"), "run first: gnt-network disconnect net default"),
        (OpNetworkRemove(network_name="net", force=True), "is used in group default"),
        (
            OpNetworkSetParams(network_name="net", add_reserved_ips=["198.51.100.1"]),
            f"198.51.100.1 cannot be reserved, because instance {NAME} has it",
        ),
        (
            OpNetworkSetParams(network_name="net", gateway="198.51.100.1"),
            f"198.51.100.1 cannot be reserved, because instance {NAME} has it",
        ),
    ]:
        _, (said_, code) = failed(await master.run(op))
        assert (code, text in said_) == ("wrong_state", True), said_
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    succeeded(await master.run(OpNetworkRemove(network_name="net", force=True)))
    assert not any(group.networks for group in master.snapshot.groups.values())


async def test_connecting_twice_and_disconnecting_what_is_not_changes_nothing(
    master: Master,
) -> None:
    await connected(master)
    assert "is connected to group default already" in said(await master.run(connect()))
    succeeded(await master.run(disconnect()))
    assert "is not connected to group default" in said(await master.run(disconnect()))


async def test_an_instance_stays_where_its_network_is(master: Master) -> None:
    await connected(master)
    succeeded(await master.run(OpGroupAdd(group_name="other")))
    assign = OpGroupAssignNodes(group_name="other", nodes=["node3"])
    succeeded(await master.run(assign))
    succeeded(await master.run(pooled()))
    move = OpInstanceFailover(instance_name=NAME, target_node="node3.example.com")
    _, (text, code) = failed(await master.run(move))
    assert (code, "run: gnt-network connect net other" in text) == ("wrong_state", True)
    back = OpGroupAssignNodes(group_name="other", nodes=["node1"], force=True)
    _, (text, _code) = failed(await master.run(back))
    assert "run: gnt-network connect net other" in text
    succeeded(await master.run(connect(group="other", network_link="br9")))
    succeeded(await master.run(move))
    moved = instance(master)
    assert instance_spec(master.snapshot, moved).nics[0].link == "br9"


async def test_an_address_of_a_connected_network_belongs_into_it(master: Master) -> None:
    await connected(master)
    outside = create(nics=[NicRequest(ip="198.51.100.2")])
    _, (text, code) = failed(await master.run(outside))
    assert (code, "belongs to the network net" in text) == ("wrong_state", True)
    succeeded(await master.run(create(nics=outside.nics, conflicts_check=False)))
    succeeded(await master.run(disconnect()))
    _, (text, code) = failed(await master.run(connect()))
    assert (code, f"{NAME} (198.51.100.2)" in text) == ("wrong_state", True)
    succeeded(await master.run(connect(conflicts_check=False)))
    into = modify(nics=[["modify", 0, {"network": "net"}]])
    succeeded(await master.run(into))
    assert instance(master).nics[0].ip == "198.51.100.2"


@pytest.mark.parametrize(
    ("op", "code", "text"),
    [
        (add("a/b"), "wrong_input", "network_name"),
        (add(network="198.51.100.1/29"), "wrong_input", "network: "),
        (add("new", gateway="192.0.2.1"), "wrong_input", "gateway: 192.0.2.1 is not in"),
        (add("new", gateway6="2001:db8::1"), "wrong_input", "gateway6: "),
        (add("new", mac_prefix="aa:bb"), "wrong_input", "mac_prefix: "),
        (add("new", add_reserved_ips=["192.0.2.1"]), "wrong_input", "add_reserved_ips[0]"),
        (add(tags=["a b"]), "wrong_input", "tags: "),
        (add("net"), "already_exists", "network net exists already"),
        (connect(network_mode="x"), "wrong_input", "network.mode: must be"),
        (connect(network_link="a b"), "wrong_input", "network.link: "),
        (connect("nosuch"), "unknown_entity", "there is no network nosuch"),
        (connect(group="none"), "unknown_entity", "there is no group none"),
        (
            OpNetworkSetParams(network_name="net"),
            "wrong_input",
            "nothing to change: pass at least one option",
        ),
        (
            OpNetworkSetParams(network_name="net", remove_reserved_ips=["198.51.100.0"]),
            "wrong_input",
            "it is the subnet's first",
        ),
        (pooled(link="br0"), "wrong_input", "nics[0].link: cannot be combined with a network"),
        (create(nics=[NicRequest(ip="pool")]), "wrong_input", "nics[0].ip: an address from a pool"),
        (
            create(nics=[NicRequest(ip="198.51.100.0", network="net")]),
            "resource_not_unique",
            "it is the subnet's first",
        ),
        (
            create(nics=[NicRequest(ip="10.0.0.1", network="net")]),
            "resource_not_unique",
            "it is not in 198.51.100.0/29",
        ),
        (
            create(nics=[NicRequest(network="far")]),
            "wrong_state",
            "to which its group default is not connected",
        ),
        (
            create(nics=[NicRequest(network="nosuch")]),
            "unknown_entity",
            "there is no network nosuch",
        ),
    ],
)
async def test_wrong_requests_are_refused(master: Master, op: OpCode, code: str, text: str) -> None:
    await connected(master)
    succeeded(await master.run(add("far", network="203.0.113.0/24")))
    _, (said_, found) = failed(await master.run(op))
    assert (found, text in said_) == (code, True), said_
    assert master.snapshot.networks.keys() == {network(master).uuid, network(master, "far").uuid}
    assert not master.snapshot.instances


async def test_a_routed_network_needs_addresses(master: Master) -> None:
    succeeded(await master.run(add()))
    succeeded(await master.run(connect(network_mode="routed", network_link="main")))
    _, (text, _code) = failed(await master.run(create(nics=[NicRequest(network="net")])))
    assert "needs an IP address, because the network net is routed" in text
