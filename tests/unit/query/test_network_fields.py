"""What is shown of networks, and of the interfaces in them."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Network, NetworkUuid, Nic, NodeGroup
from ganeti.query.execute import QueryExecutor
from ganeti.query.live import LiveSource
from ganeti.simulation.virtual_time import LoopClock
from tests.unit.query import cluster
from tests.unit.query.cluster import FakeJobs, FakeNodes, locks

pytestmark = pytest.mark.virtual_time

UUID = NetworkUuid("00000000-0000-4000-8000-000000000031")
NET = Network(
    uuid=UUID,
    name="net",
    network="198.51.100.0/29",
    gateway="198.51.100.1",
    external=((5, 5),),
    tags=("t",),
)


def snapshot_with_network() -> Snapshot:
    base = cluster.snapshot()
    nic = Nic(uuid="n9", mac="aa:00:00:11:22:44", ip="198.51.100.3", network=UUID)
    web2 = base.instances[cluster.INSTANCE_UUIDS[1]]
    connected = {UUID: {"mode": "routed", "link": "main", "vlan": ""}}
    groups: list[NodeGroup] = [
        replace(group, networks=connected) if group.name == "default" else group
        for group in base.groups.values()
    ]
    return Snapshot.of(
        1,
        base.cluster,
        nodes=base.nodes.values(),
        groups=groups,
        instances=[*(one for one in base.instances.values() if one is not web2), replace(web2, nics=(nic,))],
        others=[NET],
    )  # fmt: skip


async def rows(kind: str, names: str, raw_filter: Any = None) -> list[Any]:
    shown: Callable[[], Snapshot] = snapshot_with_network
    one = QueryExecutor(shown, FakeJobs(), locks, LiveSource(FakeNodes(), LoopClock()))
    return (await one.query(kind, names.split(), raw_filter)).data


async def test_a_network_shows_its_addresses_groups_and_instances() -> None:
    names = "name network gateway gateway6 free_count reserved_count map external_reservations"
    assert await rows("network", names) == [
        [
            [0, "net"],
            [0, "198.51.100.0/29"],
            [0, "198.51.100.1"],
            [3, None],
            [0, 3],
            [0, 5],
            [0, "XX.X.X.X"],
            [0, "198.51.100.0, 198.51.100.1, 198.51.100.5, 198.51.100.7"],
        ]
    ]
    names = "group_list group_cnt inst_list inst_cnt tags uuid"
    assert await rows("network", names, ["=", "name", "net"]) == [
        [
            [0, [["default", "routed", "main", ""]]],
            [0, 1],
            [0, ["web2.example.com"]],
            [0, 1],
            [0, ("t",)],
            [0, UUID],
        ]
    ]


async def test_an_interface_shows_its_network_and_what_it_has_from_it() -> None:
    names = "nic.networks nic.network/0 nic.network.name/0 nic.networks.names nic.modes nic.link/0"
    assert await rows("instance", names, ["=[]", "nic.networks", UUID]) == [
        [[0, [UUID]], [0, UUID], [0, "net"], [0, ["net"]], [0, ["routed"]], [0, "main"]]
    ]
