"""The cluster that a simulation begins with, from each kind of source."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from ganeti.api.cluster_info import cluster_info
from ganeti.base.errors import InputError, PrereqError
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import put_row
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, Node, NodeRow
from ganeti.model.recovery import NodeState
from ganeti.query.execute import QueryExecutor
from ganeti.query.live import LiveSource
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.durations import Durations
from ganeti.simulation.virtual_time import LoopClock
from ganeti.store.backup import write_backup
from ganeti.store.interface import Position, Row
from ganeti.whatif.from_rows import Row as Cells
from ganeti.whatif.from_rows import rows_source
from ganeti.whatif.scenario import Event, NodesFail
from ganeti.whatif.simulate import simulate
from ganeti.whatif.source import NodeSize, Source, checked
from ganeti.whatif.sources import file_source, parse_node_size, sized
from tests.unit.query.cluster import FakeJobs, FakeNodes, locks
from tests.unit.upstream import sample
from tests.unit.whatif.small_cluster import TEXT, small_source

SIZE = NodeSize(memory=65536, disk=1048576, cpus=16)


def backup_of(source: Source) -> bytes:
    class Sink:
        data = b""

        async def write(self, data: bytes) -> None:
            self.data += data

    async def items() -> AsyncIterator[Position | Row]:
        yield Position(1, 1)
        rows = [put_row(one) for one in source.objects]
        for row in sorted(rows, key=lambda one: (one.kind, one.key)):
            yield Row(row.kind, row.key, row.value)

    sink = Sink()
    asyncio.run(write_backup(items(), sink, source.cluster.uuid))
    return sink.data


def test_htools_file_has_nodes_instances_and_sizes() -> None:
    source = small_source()
    assert source.kind == "htools"
    nodes = {one.name: one for one in source.nodes}
    assert [one.name for one in source.nodes if one.offline] == ["offline1"]
    assert nodes["node1"].uuid == source.cluster.master_node
    assert nodes["node3"].tags == ("rack:r2", "switch:s1")
    assert source.sizes[nodes["node1"].uuid] == NodeSize(
        memory=16384, disk=102400, cpus=8, own_memory=512, own_cpus=1
    )
    by_name = {one.name: one for one in source.instances}
    web2 = by_name["web2"]
    assert [one.size for one in web2.disks] == [5120]
    assert web2.disks[0].parts.keys() == {nodes["node2"].uuid, nodes["node1"].uuid}
    assert web2.beparams["maxmem"] == 1024
    assert by_name["web3"].admin_state is AdminState.DOWN
    assert checked(source) == source


def test_htools_file_always_gives_the_same_objects() -> None:
    assert small_source() == small_source()


def test_backup_gives_the_objects_that_were_saved() -> None:
    source = small_source()
    found = file_source(backup_of(source), CountingIds())
    assert found.kind == "backup"
    assert {one.uuid: one for one in found.objects} == {one.uuid: one for one in source.objects}


def test_backup_gives_no_secret_and_no_work_in_progress() -> None:
    source = small_source()
    busy = NodeRow(source.nodes[0].uuid, NodeState.FENCED, 7)
    changed = [
        structs.replace(one, fence_secret="hidden", recovery=busy)
        if isinstance(one, Node)
        else structs.replace(one, osparams_private={"password": "hidden"})
        if isinstance(one, Instance)
        else one
        for one in source.objects
    ]
    found = file_source(backup_of(replace(source, objects=tuple(changed))), CountingIds())
    assert not any(one.fence_secret or one.recovery for one in found.nodes)
    assert not any(one.osparams_private for one in found.instances)


def test_damaged_backup_is_refused() -> None:
    data = backup_of(small_source())
    with pytest.raises(
        InputError, match=r"cut short; write the file again with 'gnt-cluster backup'"
    ):
        file_source(data[:-40], CountingIds())


def test_upstream_configuration_becomes_a_source() -> None:
    found = checked(file_source(sample.encoded(sample.document())))
    assert found.kind == "upstream"
    assert found.nodes
    assert found.instances
    assert all(one.certificate for one in found.nodes)


def test_missing_sizes_are_asked_for() -> None:
    source = replace(small_source(), sizes={})
    with pytest.raises(
        InputError, match="4 nodes, for example node1; pass --node-size MEMORY,DISK,CPUS"
    ):
        sized(source, None)
    found = sized(source, parse_node_size("64g,1t,16"))
    assert set(found.sizes.values()) == {SIZE}
    assert found.notes[-1] == "5 nodes have the size of --node-size"


def test_offline_node_may_have_no_size() -> None:
    source = small_source()
    [offline] = [one for one in source.nodes if one.offline]
    sizes = {uuid: size for uuid, size in source.sizes.items() if uuid != offline.uuid}
    assert sized(replace(source, sizes=sizes), None).sizes[offline.uuid].memory == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node1|16384": "node1|9e14"}, "memory 900000000000000 must be from 0 to"),
        ({"node1|16384": "node1|-5"}, "memory -5 must be from 0"),
        ({"node1|16384": "node1|1e999"}, "is not a number"),
        ({"web1|512": "web1|0"}, "instance web1: memory 0 must be from 1"),
        ({"web1|512": "web1|NaN"}, "is not a number"),
        ({"node2|16384": "node1|16384"}, "node node1 is described twice"),
        ({"web2|1024": "web1|1024"}, "instance web1 is described twice"),
        ({"|node2|node1|drbd": "|node2|gone|drbd"}, "is on node 'gone', which has no line"),
        ({"|node2|node1|drbd": "|node2||drbd"}, "has 1 nodes; disk template drbd needs 2"),
        ({"|node3||sharedfile": "|node3||flash"}, "unknown disk template 'flash'"),
        ({"|node3||sharedfile": "|node3||gluster"}, "disk template gluster has no driver here"),
        ({"web1|": "Web_1|"}, "'Web_1' is not a host name"),
        ({"web1|": "Web1|"}, "must be in lower case"),
    ],
)
def test_wrong_htools_file_is_refused_by_name(changes: dict[str, str], message: str) -> None:
    text = TEXT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(PrereqError) as refused:
        checked(file_source(text.encode()))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"", b"{", b'{"version": 1}', b"[1]", b'{"magic": "ganeti-state"']
)
def test_other_content_is_refused_with_a_message(data: bytes) -> None:
    with pytest.raises(InputError) as refused:
        checked(file_source(data, CountingIds()))
    assert len(str(refused.value)) > 10


@pytest.mark.parametrize(
    "text", ["", "64g", "64g,1t", "64g,1t,x", "64g,1t,-1", "x,1t,1", "1g,1g,1,1"]
)
def test_wrong_size_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="node-size"):
        parse_node_size(text)


def asked(saved: Source) -> tuple[Callable[[str, Sequence[str]], list[Cells]], Cells]:
    """Return what answers the queries of a running cluster with these objects, and the cluster's own answer."""
    snapshot = Snapshot.of(1, saved.cluster, others=saved.objects[1:])

    async def answer(kind: str, fields: Sequence[str]) -> list[Cells]:
        live = LiveSource(FakeNodes(), LoopClock())
        found = await QueryExecutor(lambda: snapshot, FakeJobs(), locks, live).query(kind, fields)
        return [
            {name: cell[1] for name, cell in zip(fields, row, strict=True) if cell[0] == 0}
            for row in found.data
        ]

    info = json.loads(json.dumps(cluster_info(snapshot, degraded=False)))
    return lambda kind, fields: asyncio.run(answer(kind, fields)), info


def test_running_cluster_gives_what_its_queries_tell() -> None:
    saved = small_source()
    ask, info = asked(saved)
    found = checked(rows_source(ask, info))
    assert found.kind == "running"
    assert found.cluster.master_node == saved.cluster.master_node
    assert {plain(one) for one in found.nodes} == {plain(one) for one in saved.nodes}
    assert {plain(one) for one in found.instances} == {plain(one) for one in saved.instances}
    [size] = set(found.sizes.values())
    assert (size.memory, size.own_memory, size.cpus) == (4096, 500, 8)
    assert len(found.sizes) == 4


def test_disks_of_a_running_cluster_get_no_port_that_a_display_has() -> None:
    ask, info = asked(small_source())

    def ask_for_ports(kind: str, fields: Sequence[str]) -> list[Cells]:
        ports = {"instance": "network_port"}
        rows = enumerate(ask(kind, fields), 11001)
        return [{**row, **({ports[kind]: port} if kind in ports else {})} for port, row in rows]

    found = checked(rows_source(ask_for_ports, info))
    displays = {one.network_port for one in found.instances}
    disks = {disk.logical_id for one in found.instances for disk in one.disks}
    assert (11001 in displays, (11001,) in disks) == (True, False)


@pytest.mark.requirement("D6")
def test_protected_guest_of_a_running_cluster_is_recovered_on_its_second_copy() -> None:
    saved = small_source()
    changes: dict[type, Any] = {
        Instance: {"beparams": {"recovery": "failover"}},
        Node: {"ndparams": {"fence_methods": "power", "oob_program": "/bin/true"}},
    }
    protected = [
        structs.replace(one, **changes[type(one)]) if type(one) in changes else one
        for one in saved.objects
    ]
    found = checked(rows_source(*asked(replace(saved, objects=tuple(protected)))))
    [web] = (one for one in found.instances if one.disk_template == "drbd")
    names = {one.uuid: one.name for one in found.nodes}
    fails = Event(0.0, 0, NodesFail((names[web.primary_node],)))
    sizes = dict.fromkeys(names, SIZE)
    history = simulate(replace(found, sizes=sizes), [fails], Durations(), seed=1, watch_s=200.0)
    [after] = (one for one in history.after if isinstance(one, Instance) and one.uuid == web.uuid)
    assert (after.primary_node, after.secondary_nodes) == (
        web.secondary_nodes[0],
        (web.primary_node,),
    )


def plain(one: Any) -> tuple[Any, ...]:
    if isinstance(one, Node):
        return one.uuid, one.name, one.group, one.primary_ip, one.offline, one.tags
    assert isinstance(one, Instance)
    sizes = tuple(disk.size for disk in one.disks)
    params = tuple(sorted(one.beparams.items()))
    return one.uuid, one.name, one.all_nodes, one.admin_state, one.disk_template, sizes, params
