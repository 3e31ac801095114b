"""The server and the real transport, over TLS on the loopback interface."""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace as changed

from ganeti.base import certificates as ca
from ganeti.base import tls
from ganeti.base.errors import InputError, RpcFailed, RpcUnknown, StorageError
from ganeti.model.hooks import Phase
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc import server as server_module
from ganeti.rpc import transport as transport_module
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.client import RpcClient
from ganeti.rpc.headers import ACCESS_DENIED, EPOCH_REFUSED, UNREACHABLE
from ganeti.rpc.procedures.disks import BLOCKDEV_REMOVE
from ganeti.rpc.procedures.form import Lane, Nothing
from ganeti.rpc.procedures.hooks import HookDirectory
from ganeti.rpc.procedures.host import LEAVE_CLUSTER, VERSION, LeaveArgs, NodeVersion
from ganeti.rpc.procedures.mastership import REGISTER_READ
from ganeti.rpc.server import Gate, RpcServer, serving
from ganeti.rpc.transport import HttpsTransport, NotSent
from ganeti.store.interface import MAX_EPOCH
from tests.unit.rpc.nodes import node

NOW = 1_790_000_000.0
CLUSTER = "11111111-1111-4111-8111-111111111111"
LEAVE = LeaveArgs(cluster_uuid="c")


class House:
    """A cluster's authority, and certificates of it in files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = ca.new_key()
        self.authority = directory / "ca.pem"
        self.authority.write_bytes(ca.new_authority(self.key, "c.example", CLUSTER, NOW))

    def member(self, name: str, *, now: float = NOW) -> tuple[Path, Path]:
        key = ca.new_key()
        certificate = ca.sign_node(
            self.authority.read_bytes(),
            self.key,
            ca.signing_request(key, name),
            node_uuid=CLUSTER,
            node_name=name,
            now=now,
        )
        return self.files(name, certificate, key)

    def stranger(self) -> tuple[Path, Path]:
        key = ca.new_key()
        return self.files("stranger", ca.self_signed(key, "master.example", NOW, 1e8), key)

    def end_of_migration(self, end: str) -> tuple[Path, Path]:
        key = ca.new_key()
        return self.files(end, ca.for_migration(key, end, CLUSTER, NOW), key)

    def files(self, name: str, certificate: bytes, key: bytes) -> tuple[Path, Path]:
        paths = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        for path, data in zip(paths, (certificate, key), strict=True):
            path.write_bytes(data)
        return paths

    def client_context(self, pair: tuple[Path, Path]) -> ssl.SSLContext:
        return tls.client_context(*pair, self.authority)


@dataclass
class World:
    house: House
    node: Node
    master: tuple[Path, Path]
    allowed: set[str]
    deeds: list[Any]
    gate: asyncio.Event
    server: RpcServer
    hooks: dict[str, str]
    """`report`: what the node reports of its hook directories."""

    @contextlib.asynccontextmanager
    async def client(
        self, pair: tuple[Path, Path] | None = None, epoch: int = 5
    ) -> AsyncIterator[RpcClient]:
        context = self.house.client_context(pair or self.master)
        client = RpcClient(HttpsTransport(context, "127.0.0.1"), lambda: (epoch, "me"))
        try:
            yield client
        finally:
            await client.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    house = House(tmp_path)
    master, own = house.member("master"), house.member("node1")
    allowed = {tls.fingerprint(master[0].read_bytes())}
    deeds: list[Any] = []
    hooks: dict[str, str] = {}
    gate = asyncio.Event()

    async def version(_args: Nothing, _call: Call) -> NodeVersion:
        return NodeVersion(software="4", protocol=1, node_name="node1", cluster_uuid=CLUSTER)

    async def leave(args: LeaveArgs, call: Call) -> Nothing:
        deeds.append(call)
        if args.cluster_uuid == "wait":
            await gate.wait()
            deeds.append("after")
        if args.cluster_uuid == "error":
            raise StorageError("disk full")
        if args.cluster_uuid == "fault":
            raise ZeroDivisionError
        return Nothing()

    async def check_epoch(epoch: int, master_uuid: str) -> str | None:
        deeds.extend([epoch] if epoch > 100 else [])
        return None if (epoch, master_uuid) == (5, "me") else f"epoch {epoch} is over"

    def check(args: LeaveArgs) -> None:
        if args.cluster_uuid == "another":
            raise InputError("is another cluster", "cluster_uuid")

    handlers: Handlers = {VERSION.name: version, LEAVE_CLUSTER.name: leave}
    gate_keeper = Gate(lambda: frozenset(allowed), check_epoch, {LEAVE_CLUSTER.name: check})
    server = RpcServer(handlers, gate_keeper, hooks=lambda: hooks.get("report"))
    context = tls.server_context(*own, house.authority)
    async with serving(server, context, "127.0.0.1", 0) as port:
        here = local_node(own, port)
        yield World(house, here, master, allowed, deeds, gate, server, hooks)
        gate.set()


def local_node(own: tuple[Path, Path], port: int) -> Node:
    made = node(1, certificate=tls.fingerprint(own[0].read_bytes()))
    return changed(made, primary_ip="127.0.0.1", port=port)


async def test_a_candidate_is_answered_and_its_connection_is_kept(world: World) -> None:
    async with world.client() as client:
        for _ in range(3):
            answer = await client.call(world.node, VERSION, Nothing())
            assert answer.node_name == "node1"
            await client.call(world.node, LEAVE_CLUSTER, LEAVE, key="1/0/1")
    assert world.deeds == [Call(5, "me", "1/0/1")] * 3


async def test_answers_to_calls_of_jobs_carry_the_report_of_hooks(world: World) -> None:
    uuid = NodeUuid(world.node.uuid)
    async with world.client() as client:
        world.hooks["report"] = "instance-add-pre config-update-post"
        await client.call(world.node, VERSION, Nothing())
        assert client.hook_reports.since(uuid, 0) is None
        begun = client.hook_reports.moment()
        await client.call(world.node, VERSION, Nothing(), key="1/0/r1")
        found = client.hook_reports.since(uuid, begun)
        assert found == [
            HookDirectory(hook="instance-add", phase=Phase.PRE),
            HookDirectory(hook="config-update", phase=Phase.POST),
        ]
        assert client.hook_reports.since(uuid, client.hook_reports.moment()) is None
        world.hooks["report"] = ""
        await client.call(world.node, LEAVE_CLUSTER, LEAVE, key="1/0/1")
        assert client.hook_reports.since(uuid, begun) == []


async def test_node_that_cannot_read_its_hooks_reports_nothing(world: World) -> None:
    async with world.client() as client:
        await client.call(world.node, VERSION, Nothing(), key="1/0/r1")
        assert client.hook_reports.since(NodeUuid(world.node.uuid), 0) is None


@pytest.mark.requirement("A24", "G22")
async def test_an_ordinary_nodes_certificate_is_refused(world: World) -> None:
    async with world.client(world.house.member("node2")) as client:
        with pytest.raises(RpcFailed, match="answers only master candidates") as caught:
            await client.call(world.node, VERSION, Nothing())
    assert caught.value.wire_error == ACCESS_DENIED


@pytest.mark.requirement("A24", "G22")
async def test_a_candidate_that_is_removed_is_refused_on_its_open_connection(world: World) -> None:
    async with world.client() as client:
        await client.call(world.node, VERSION, Nothing())
        world.allowed.clear()
        with pytest.raises(RpcFailed, match="answers only master candidates"):
            await client.call(world.node, LEAVE_CLUSTER, LEAVE)
    assert world.deeds == []


@pytest.mark.requirement("A24", "G22", "G23")
@pytest.mark.parametrize("who", ["stranger", "expired", "source", "target"])
async def test_a_certificate_that_tls_refuses_does_nothing(world: World, who: str) -> None:
    """Nor does one for an end of a migration open a node."""
    if who in ("source", "target"):
        pair = world.house.end_of_migration(who)
    else:
        pair = world.house.stranger() if who == "stranger" else world.house.member(who, now=1e9)
    world.allowed.add(tls.fingerprint(pair[0].read_bytes()))
    async with world.client(pair) as client:
        # Which of the two depends on whether the server's alert arrives before its reset.
        with pytest.raises((RpcFailed, RpcUnknown)):
            await client.call(world.node, LEAVE_CLUSTER, LEAVE)
    assert world.deeds == []


@pytest.mark.requirement("A24")
async def test_without_a_certificate_nothing_is_answered(world: World) -> None:
    context = tls.pinned_client_context()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", world.node.port, ssl=context, server_hostname=""
    )
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        writer.write(b"POST /rpc/version HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        assert b"200" not in await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


async def test_another_server_at_the_nodes_address_gets_nothing(world: World) -> None:
    elsewhere = changed(world.node, certificate="cd" * 32)
    async with world.client() as client:
        with pytest.raises(RpcFailed, match="another host answers there") as caught:
            await client.call(elsewhere, LEAVE_CLUSTER, LEAVE)
    assert caught.value.wire_error == UNREACHABLE
    assert world.deeds == []


async def test_a_call_to_a_former_certificate_does_not_cut_off_what_is_under_way(
    world: World,
) -> None:
    """The node that is added again is called by its new certificate, and by its former one for some time."""
    before = changed(world.node, certificate="cd" * 32)
    async with world.client() as client:
        under_way = asyncio.create_task(
            client.call(world.node, LEAVE_CLUSTER, LeaveArgs(cluster_uuid="wait"), key="9/0/1")
        )
        while not world.deeds:  # noqa: ASYNC110 - the other end of a connection is waited for
            await asyncio.sleep(0.01)
        with pytest.raises(RpcFailed, match="another host answers there"):
            await client.call(before, LEAVE_CLUSTER, LEAVE)
        world.gate.set()
        assert await under_way == Nothing()
        assert await client.call(world.node, LEAVE_CLUSTER, LEAVE) == Nothing()


async def test_refused_connection_differs_from_an_unknown_outcome(world: World) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = changed(world.node, port=closed.getsockname()[1])
        async with world.client() as client:
            with pytest.raises(RpcFailed, match="refused") as caught:
                await client.call(nobody, LEAVE_CLUSTER, LEAVE)
    assert caught.value.wire_error == UNREACHABLE


async def test_a_server_that_hangs_up_after_the_call_leaves_the_outcome_unknown(
    world: World, tmp_path: Path
) -> None:
    own = world.house.member("rude")

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    context = tls.server_context(*own, world.house.authority)
    rude = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    there = local_node(own, rude.sockets[0].getsockname()[1])
    async with rude, world.client() as client:
        with pytest.raises(RpcUnknown):
            await client.call(there, LEAVE_CLUSTER, LEAVE)


@pytest.mark.requirement("A32")
async def test_an_answer_without_an_end_is_cut_off(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "ANSWER_LIMIT", 100_000)
    own = world.house.member("endless")
    ended = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not writer.is_closing():
                writer.write(b" " * 10_000)
                await writer.drain()
        writer.close()
        ended.set()

    context = tls.server_context(*own, world.house.authority)
    endless = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    there = local_node(own, endless.sockets[0].getsockname()[1])
    async with endless, world.client() as client:
        with pytest.raises(RpcUnknown, match="more than 100000 bytes"):
            await client.call(there, LEAVE_CLUSTER, LEAVE)
        await ended.wait()


@pytest.mark.requirement("A26", "G4")
async def test_a_changing_call_of_another_epoch_is_refused_and_a_question_is_not(
    world: World,
) -> None:
    async with world.client(epoch=4) as client:
        with pytest.raises(RpcFailed, match="epoch 4 is over") as caught:
            await client.call(world.node, LEAVE_CLUSTER, LEAVE)
        assert (await client.call(world.node, VERSION, Nothing())).protocol == 1
    assert caught.value.wire_error == EPOCH_REFUSED
    assert world.deeds == []


@pytest.mark.requirement("A26")
async def test_wrong_arguments_are_refused_before_the_epoch_is_written(world: World) -> None:
    async with world.client(epoch=MAX_EPOCH) as client:
        for cluster, error in (("another", "OpPrereqError"), (CLUSTER, EPOCH_REFUSED)):
            with pytest.raises(RpcFailed) as caught:
                await client.call(world.node, LEAVE_CLUSTER, LeaveArgs(cluster_uuid=cluster))
            assert caught.value.wire_error == error
    assert world.deeds == [MAX_EPOCH]


@pytest.mark.parametrize(("what", "error"), [("error", "StorageError"), ("fault", "GenericError")])
async def test_errors_have_their_kind_and_no_traceback(
    world: World, what: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.client() as client:
        with pytest.raises(RpcFailed) as caught:
            await client.call(world.node, LEAVE_CLUSTER, LeaveArgs(cluster_uuid=what))
    assert caught.value.wire_error == error
    assert "Traceback" not in caught.value.message
    assert ("ZeroDivisionError" in caplog.text) == (what == "fault")


async def raw(world: World, method: str, path: str, body: bytes = b"{}", **headers: str) -> Any:
    url = f"https://127.0.0.1:{world.node.port}{path}"
    context = world.house.client_context(world.master)
    async with (
        aiohttp.ClientSession(skip_auto_headers=("Accept-Encoding",)) as session,
        session.request(method, url, data=body, headers=headers, ssl=context) as response,
    ):
        text = await response.text()
        return response.status, json.loads(text) if text.startswith("{") else text


@pytest.mark.requirement("A27", "A29")
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/rpc/../x", 404),
        ("POST", "/rpc/__class__", 404),
        ("POST", "/rpc/", 404),
        (
            "POST",
            "/rpc/jobqueue_update",
            404,
        ),  # jobs are rows of the store, and no node has their files
        ("POST", "/", 404),
        ("POST", "/version", 404),
        ("POST", "/x/rpc/version", 404),
        ("POST", "/rpc/version/", 404),
        ("POST", "/rpc/" + BLOCKDEV_REMOVE.name, 404),
        ("POST", "/rpc/" + REGISTER_READ.name + "%00", 404),
        ("GET", "/rpc/version", 400),
        ("PUT", "/rpc/version", 400),
        ("DELETE", "/rpc/leave_cluster", 400),
    ],
)
async def test_what_is_no_procedure_is_refused(
    world: World, method: str, path: str, status: int
) -> None:
    answered, body = await raw(world, method, path)
    assert answered == status
    assert body["message"]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"X-Ganeti-Epoch": "x"}, b"{}", 400),
        ({"X-Ganeti-Epoch": "-1"}, b"{}", 400),
        ({"X-Ganeti-Epoch": "9" * 30}, b"{}", 400),
        ({}, b"{}", 400),
        ({}, b"[]", 400),
        ({}, b"{", 400),
        ({}, b"\xff", 400),
        ({}, b'{"cluster_uuid": 5}', 400),
        ({}, b'{"cluster_uuid": "c"}', 409),
        ({"Content-Encoding": "deflate"}, b'{"cluster_uuid": "c"}', 415),
        ({"X-Big": "x" * 9000}, b"{}", 431),
    ],
)
@pytest.mark.requirement("A26", "A30")
async def test_malformed_calls_are_refused(
    world: World, headers: dict[str, str], body: bytes, status: int
) -> None:
    answered, _ = await raw(world, "POST", "/rpc/leave_cluster", body, **headers)
    assert answered == status
    assert world.deeds == []


async def test_a_body_beyond_the_limit_is_refused(world: World) -> None:
    context = world.house.client_context(world.master)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", world.node.port, ssl=context, server_hostname=""
    )
    size = server_module.BODY_LIMIT + 1
    writer.write(
        f"POST /rpc/version HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()
    )
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        for _ in range(size // 65536 + 1):
            writer.write(b" " * 65536)
            await writer.drain()
    assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


async def test_a_call_whose_caller_has_gone_is_carried_to_its_end_and_reported(
    world: World,
) -> None:
    async with world.client() as client:
        args = LeaveArgs(cluster_uuid="wait")
        caller = asyncio.create_task(client.call(world.node, LEAVE_CLUSTER, args, key="9/0/1"))
        while not world.deeds:  # noqa: ASYNC110 - the other end of a connection is waited for
            await asyncio.sleep(0.01)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
    running = world.server.running
    assert running.older_than(6) == ["leave_cluster 9/0/1"]
    assert running.older_than(5) == []
    world.gate.set()
    while running.older_than(6):  # noqa: ASYNC110 - the same
        await asyncio.sleep(0.01)
    assert world.deeds[-1] == "after"


@pytest.mark.requirement("F31")
async def test_at_most_eight_handshakes_are_made_at_once(world: World) -> None:
    at_once, most = 0, 0
    started = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await started.wait()
        at_once -= 1
        writer.close()

    # Without TLS: the handshake of the client waits for ever.
    mute = await asyncio.start_server(slow, "127.0.0.1", 0)
    port = mute.sockets[0].getsockname()[1]
    nodes = [changed(node(number), primary_ip="127.0.0.1", port=port) for number in range(20)]
    async with mute, world.client() as client:
        asking = asyncio.create_task(client.call_all(nodes, VERSION, Nothing()))
        while at_once < 8:  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert most == 8
        started.set()
        answers = await asking
    assert all(isinstance(one, RpcFailed) for one in answers.values())
    assert most == 8


@pytest.mark.requirement("G17", "S200")
async def test_calls_that_wait_for_one_node_hold_up_neither_short_ones_nor_other_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        transport_module, "CONNECTIONS", {Lane.QUICK: 1, Lane.NORMAL: 2, Lane.LONG: 2}
    )
    other = changed(world.node, uuid=NodeUuid("another"))
    wait = LeaveArgs(cluster_uuid="wait")
    async with world.client() as client, asyncio.timeout(10):
        slow = [asyncio.create_task(client.call(world.node, LEAVE_CLUSTER, wait)) for _ in range(6)]
        while len(world.deeds) < 2:  # noqa: ASYNC110 - the deeds are the event
            await asyncio.sleep(0.01)
        assert (await client.call(world.node, VERSION, Nothing())).node_name == "node1"
        await client.call(other, LEAVE_CLUSTER, LEAVE)
        assert len(world.deeds) == 3  # no third connection to the first
        with pytest.raises(NotSent, match="all connections to it were busy"):
            await client._transport.post(
                world.node, LEAVE_CLUSTER.name, b"{}", headers={}, timeout_s=0.1, lane=Lane.NORMAL
            )
        assert len(world.deeds) == 3  # it was surely not sent
        world.gate.set()
        await asyncio.gather(*slow)
    assert world.deeds.count("after") == 6


@pytest.mark.requirement("G17")
async def test_a_node_that_never_finishes_a_handshake_leaves_places_for_others(
    world: World,
) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    try:
        dead = changed(world.node, uuid=NodeUuid("dead"), port=silent.getsockname()[1])
        async with world.client() as client:
            calls = [asyncio.create_task(client.call(dead, VERSION, Nothing())) for _ in range(20)]
            await asyncio.sleep(0)
            async with asyncio.timeout(3):
                assert (await client.call(world.node, VERSION, Nothing())).node_name == "node1"
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
    finally:
        silent.close()
