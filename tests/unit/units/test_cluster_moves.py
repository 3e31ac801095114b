"""Moves between two clusters that share a secret: the instance is in one place, whole, whatever fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.domain_secret import sign_certificate, sign_disk
from ganeti.config.transaction import Draft
from ganeti.model.names import AdminState, JobStatus
from ganeti.model.objects import Node
from ganeti.model.opcodes.backup import OpBackupAbandon, OpBackupExport, OpBackupPrepare
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.instance import OpInstanceCreate
from tests.support.export_nodes import ExportNode
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, node_name, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G14", "F32")]

SECRET = "5" * 40


@dataclass
class Clusters:
    """Two clusters; nodes of the first reach those of the second by other addresses."""

    source: Master
    target: Master

    def node(self, master: Master, number: int) -> ExportNode:
        found = master.world.node(number)
        assert isinstance(found, ExportNode)
        return found

    async def prepared(self) -> dict[str, Any]:
        op = OpBackupPrepare(instance_name=NAME, mode="remote")
        found: dict[str, Any] = succeeded(await self.source.run(op))
        return found

    async def begun(self, prepared: dict[str, Any], **fields: Any) -> tuple[int, dict[str, Any]]:
        """A job of the second cluster, and what it says as soon as it waits for the disks."""
        given: dict[str, Any] = {
            "instance_name": NAME,
            "mode": "remote-import",
            "pnode": "node1.example.com",
            "disk_template": "file",
            "disks": [DiskRequest(size=512), DiskRequest(size=256)],
            "nics": [NicRequest()],
            "os_type": "tiny",
            "start": True,
            "source_handshake": prepared["handshake"],
            "source_x509_ca": prepared["x509_ca"],
            "source_instance_name": NAME,
        }
        job = await self.target.submit(OpInstanceCreate(**{**given, **fields}))
        async with asyncio.timeout(100):
            while True:
                view = self.target.queue.view(job)
                assert view is not None
                for entry in view.log_after(0):
                    if entry[2] == "remote-import":
                        return job, dict(entry[3])
                if view.status.is_final:
                    return job, {}
                await asyncio.sleep(1)

    def export(self, prepared: dict[str, Any], info: dict[str, Any], **fields: Any) -> Any:
        given: dict[str, Any] = {
            "instance_name": NAME,
            "mode": "remote",
            "target_node": info.get("disks"),
            "x509_key_name": prepared["x509_key_name"],
            "destination_x509_ca": info.get("x509_ca"),
            "remove_instance": True,
        }
        return OpBackupExport(**{**given, **fields})

    async def move(self, **fields: Any) -> tuple[Any, Any]:
        """Both jobs at their end."""
        prepared = await self.prepared()
        job, info = await self.begun(prepared)
        assert info
        sent = await self.source.run(self.export(prepared, info, **fields))
        return sent, await self.target.final(job)

    def data(self, master: Master) -> list[str]:
        instance = master.instance(NAME)
        node = self.node(master, int(instance.primary_node[-1]))
        return [node.local.contents[str(disk.logical_id[1])] for disk in instance.disks]

    def check_nothing_is_left(self, *, keys_of_source: bool = False) -> None:
        for master in (self.source, self.target):
            master.check()
            for number in (1, 2, 3):
                node = self.node(master, number)
                assert (node.receiving, node.held) == ({}, {})
                if master is self.target or not keys_of_source:
                    assert node.keys == set()


def _moved_to(node: Node, address: str) -> Callable[[Draft], None]:
    def change(draft: Draft) -> None:
        draft.put(replace(node, primary_ip=address))

    return change


@pytest.fixture
async def clusters() -> AsyncIterator[Clusters]:
    worlds = [World(node_type=ExportNode, domain_secret=SECRET) for _ in range(2)]
    masters = [await Master.begin(world) for world in worlds]
    for number in (1, 2, 3):
        address = f"198.51.100.{number}"
        await masters[1].change(_moved_to(masters[1].node(number), address))
        for other in worlds[0].nodes.values():
            other.peers[address] = worlds[1].nodes[node_name(number)]
    succeeded(await masters[0].run(create(disk_template="file")))
    local = worlds[0].node(1).local
    for path in local.disks:
        local.contents[path] = f"data of {path}"
    masters[0].rpc.reset()
    yield Clusters(*masters)
    for master in masters:
        await master.end()


@pytest.mark.requirement("S211", "S212", "S214", "S215", "S216", "S217")
async def test_the_source_releases_an_instance_only_after_its_move(clusters: Clusters) -> None:
    data = clusters.data(clusters.source)
    sent, received = await clusters.move()
    assert succeeded(sent) == [True, [True, True]]
    assert succeeded(received) == ["node1.example.com"]
    assert clusters.source.snapshot.instance_by_name(NAME) is None
    assert clusters.data(clusters.target) == data
    assert clusters.target.instance(NAME).admin_state is AdminState.UP
    assert "renamed from" in said(received)
    clusters.check_nothing_is_left()


async def test_a_kept_source_stays_down(clusters: Clusters) -> None:
    sent, received = await clusters.move(remove_instance=False)
    succeeded(sent)
    succeeded(received)
    assert clusters.source.instance(NAME).admin_state is AdminState.DOWN
    clusters.check_nothing_is_left()


@pytest.mark.requirement("S207", "S213", "S220", "A60")
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"source_handshake": [0, "0" * 40, "salt"]}, "a different domain secret"),
        ({"source_x509_ca": "no certificate"}, "exactly one signature"),
        ({"source_x509_ca": None}, "source_x509_ca"),
        ({"source_instance_name": "../x"}, "source_instance_name"),
        ({"compress": "rar"}, "compress"),
        ({"hypervisor": "xen-pvm"}, "hypervisor"),
    ],
)
async def test_a_wrong_source_is_refused(
    clusters: Clusters, fields: dict[str, Any], text: str
) -> None:
    prepared = await clusters.prepared()
    job, info = await clusters.begun(prepared, **fields)
    assert info == {}
    _, (message, _code) = failed(await clusters.target.final(job))
    assert text in message
    assert clusters.target.rpc.acts() == []


@pytest.mark.requirement("S218", "S241")
async def test_move_that_is_abandoned_leaves_no_key(clusters: Clusters) -> None:
    prepared = await clusters.prepared()
    signed = prepared["x509_key_name"]
    node = clusters.node(clusters.source, 1)
    assert node.keys
    forged = OpBackupAbandon(instance_name=NAME, x509_key_name=[signed[0], "0" * 40, signed[2]])
    _, (message, _code) = failed(await clusters.source.run(forged))
    assert "x509_key_name: is not signed with the cluster domain secret" in message
    assert node.keys
    for _ in range(2):  # a repetition is harmless
        succeeded(
            await clusters.source.run(OpBackupAbandon(instance_name=NAME, x509_key_name=signed))
        )
        assert not node.keys


@pytest.mark.requirement("S220")
async def test_a_destination_without_the_hypervisor_of_the_source_refuses(
    clusters: Clusters,
) -> None:
    hypervisor = clusters.source.instance(NAME).hypervisor
    others = [
        name for name in clusters.target.snapshot.cluster.enabled_hypervisors if name != hypervisor
    ]
    await clusters.target.change(
        lambda draft: draft.put(replace(draft.cluster, enabled_hypervisors=tuple(others)))
    )
    job, info = await clusters.begun(await clusters.prepared(), hypervisor=hypervisor)
    assert info == {}
    _, (message, code) = failed(await clusters.target.final(job))
    assert code == "wrong_input"
    assert f"{hypervisor!r} is not enabled in this cluster; enabled: {others[0]}" in message
    assert clusters.target.rpc.acts() == []


@pytest.mark.requirement("S207")
async def test_signatures_count_unless_the_administrator_switched_that_off(
    clusters: Clusters,
) -> None:
    clusters.target.world.domain_secret = "6" * 40
    prepared = await clusters.prepared()
    job, _info = await clusters.begun(prepared)
    failed(await clusters.target.final(job))
    for master in (clusters.source, clusters.target):
        succeeded(await master.run(OpClusterSetParams(check_domain_signatures=False)))
    data = clusters.data(clusters.source)
    job, info = await clusters.begun(prepared)
    succeeded(await clusters.source.run(clusters.export(prepared, info)))
    succeeded(await clusters.target.final(job))
    assert clusters.data(clusters.target) == data
    clusters.check_nothing_is_left()


@pytest.mark.sampled(0)
@pytest.mark.requirement("S219", "S218", "S216")
async def test_a_move_that_is_interrupted_ends_and_leaves_nothing(clusters: Clusters) -> None:
    prepared = await clusters.prepared()
    job, info = await clusters.begun(prepared, helper_startup_timeout=3600)
    assert info
    await asyncio.sleep(3500)
    view = clusters.target.queue.view(job)
    assert view is not None
    assert not view.status.is_final
    await asyncio.sleep(200)
    _, (message, *_) = failed(await clusters.target.final(job))
    assert "was not received" in message
    assert clusters.target.snapshot.instance_by_name(NAME) is None
    assert clusters.target.world.node(1).local.disks == {}
    assert clusters.source.instance(NAME).admin_state is AdminState.UP
    clusters.check_nothing_is_left(keys_of_source=True)


@pytest.mark.requirement("S218", "S216")
async def test_a_destination_that_is_cancelled_ends_soon_and_leaves_nothing(
    clusters: Clusters,
) -> None:
    prepared = await clusters.prepared()
    job, info = await clusters.begun(prepared)
    assert info
    done, _text = await clusters.target.queue.cancel(job)
    assert done
    async with asyncio.timeout(10):
        view = await clusters.target.final(job)
    assert view.status is JobStatus.CANCELED
    assert clusters.target.snapshot.instance_by_name(NAME) is None
    assert clusters.target.world.node(1).local.disks == {}
    clusters.check_nothing_is_left(keys_of_source=True)


async def test_only_tools_of_the_cluster_compress(clusters: Clusters) -> None:
    op = OpClusterSetParams(compression_tools=["zstd"])
    for master in (clusters.source, clusters.target):
        succeeded(await master.run(op))
    prepared = await clusters.prepared()
    job, _info = await clusters.begun(prepared, compress="gzip")
    _, (message, _code) = failed(await clusters.target.final(job))
    assert "gnt-cluster modify --compression-tools" in message
    job, info = await clusters.begun(prepared, compress="zstd")
    view = await clusters.source.run(clusters.export(prepared, info, compress="lz4"))
    assert "lz4 is not among the compression tools" in failed(view)[1][0]
    succeeded(await clusters.source.run(clusters.export(prepared, info, compress="zstd")))
    succeeded(await clusters.target.final(job))


async def test_clusters_with_different_secrets_do_not_talk(clusters: Clusters) -> None:
    prepared = await clusters.prepared()
    clusters.target.world.domain_secret = "6" * 40
    job, _info = await clusters.begun(prepared)
    _, (message, _code) = failed(await clusters.target.final(job))
    assert "a different domain secret" in message
    clusters.target.world.domain_secret = ""
    job, _info = await clusters.begun(prepared)
    _, (message, _code) = failed(await clusters.target.final(job))
    assert "renew-crypto --new-cluster-domain-secret" in message


@pytest.mark.requirement("S209", "A60")
async def test_forged_addresses_and_certificates_are_refused_by_the_source(
    clusters: Clusters,
) -> None:
    prepared = await clusters.prepared()
    _job, info = await clusters.begun(prepared)
    forged = [list(disk) for disk in info["disks"]]
    forged[1][1] += 1
    foreign = clusters.node(clusters.target, 1).certificates.popitem()[1]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"target_node": forged}, "target_node[1]"),
        ({"target_node": info["disks"][::-1]}, "target_node[0]"),
        ({"target_node": info["disks"][:1]}, "2 disks, but the other cluster expects 1"),
        ({"target_node": [sign_disk(SECRET, n, "node9", 1, "x") for n in (0, 1)]}, "not an IP"),
        ({"destination_x509_ca": foreign}, "exactly one signature"),
        ({"destination_x509_ca": sign_certificate("7" * 40, foreign)}, "not signed"),
        ({"destination_x509_ca": None}, "destination_x509_ca"),
        ({"x509_key_name": ["x509-another1", *prepared["x509_key_name"][1:]]}, "x509_key_name"),
        ({"shutdown": False, "remove_instance": False}, "must be down"),
    ]
    clusters.source.rpc.reset()
    for fields, text in wrong:
        _, arguments = failed(await clusters.source.run(clusters.export(prepared, info, **fields)))
        assert text in arguments[0]
    assert clusters.source.rpc.acts() == []


@pytest.mark.sampled(3)
@pytest.mark.requirement("S218")
@pytest.mark.parametrize("number", range(1, 9))
async def test_after_any_failed_call_of_the_source_it_has_the_instance_still(
    clusters: Clusters, number: int
) -> None:
    fault = (Fault.REFUSED, Fault.LOST_CALL)[number % 2]
    data = clusters.data(clusters.source)
    prepared = await clusters.prepared()
    job, info = await clusters.begun(prepared, helper_startup_timeout=1)
    clusters.source.rpc.fail(number, fault)
    view = await clusters.source.run(clusters.export(prepared, info))
    if view.status.value == "error":
        # Nobody sends any more: the receivers end, which the model leaves to us.
        clusters.node(clusters.target, 1).receiving.clear()
    there = await clusters.target.final(job)
    for master in (clusters.source, clusters.target):
        await master.nothing_is_left()
    if there.status.value == "error":
        assert clusters.data(clusters.source) == data
        assert clusters.target.snapshot.instance_by_name(NAME) is None
    else:
        assert clusters.data(clusters.target) == data


@pytest.mark.sampled(3)
@pytest.mark.requirement("S218", "S216")
@pytest.mark.parametrize("number", range(4, 12))
async def test_after_any_failed_call_of_the_target_the_source_has_the_instance_still(
    clusters: Clusters, number: int
) -> None:
    data = clusters.data(clusters.source)
    prepared = await clusters.prepared()
    clusters.target.rpc.fail(number, Fault.REFUSED)
    job, info = await clusters.begun(prepared)
    if info:
        sent = await clusters.source.run(clusters.export(prepared, info))
    there = await clusters.target.final(job)
    for master in (clusters.source, clusters.target):
        await master.nothing_is_left()
    if clusters.source.snapshot.instance_by_name(NAME) is None:
        assert info
        succeeded(sent)
        assert clusters.data(clusters.target) == data
    else:
        assert clusters.data(clusters.source) == data
        assert there.status.value == "error"
        assert clusters.target.snapshot.instance_by_name(NAME) is None
    clusters.check_nothing_is_left(keys_of_source=not info)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(4, 10))
async def test_a_target_whose_master_dies_is_undone_or_finished_by_the_next(
    clusters: Clusters, number: int, is_done: bool
) -> None:
    data = clusters.data(clusters.source)
    prepared = await clusters.prepared()
    clusters.target.die_at_act(number, is_done=is_done)
    job, info = 0, dict[str, Any]()
    try:
        async with asyncio.timeout(60):
            job, info = await clusters.begun(prepared)
    except TimeoutError:
        pass
    sending = None
    if info:
        op = clusters.export(prepared, info)
        sending = asyncio.create_task(clusters.source.run(op))
    await clusters.target.is_dead_after_a_while()
    clusters.target = await clusters.target.restart()
    await clusters.target.idle()
    await clusters.target.nothing_is_left()
    if sending is not None:
        await sending
    await clusters.source.nothing_is_left()
    del job
    if clusters.source.snapshot.instance_by_name(NAME) is None:
        assert clusters.data(clusters.target) == data
    else:
        assert clusters.data(clusters.source) == data
        assert clusters.target.snapshot.instance_by_name(NAME) is None
