"""The node daemon as a process of its own: who may call it, what it remembers, how it is joined."""

import asyncio
import contextlib
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from ganeti import ssconf
from ganeti.base import certificates
from ganeti.base.certificate_facts import node_identity
from ganeti.base.clock import SystemClock
from ganeti.base.errors import (
    ExecError,
    GanetiError,
    HostError,
    InputError,
    PrereqError,
    RpcFailed,
    RpcUnknown,
)
from ganeti.base.ids import RandomIds
from ganeti.base.paths import Paths
from ganeti.bootstrap import init
from ganeti.bootstrap import join as masters_join
from ganeti.bootstrap.daemons import NODED
from ganeti.bootstrap.destroy import is_member
from ganeti.bootstrap.join import join, ssh_token
from ganeti.bootstrap.join_messages import send
from ganeti.bootstrap.token import decode_token
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.objects import Grant, Node, NodeUuid
from ganeti.recovery.grants import SHARED
from ganeti.rpc.client import RpcClient
from ganeti.rpc.headers import ACCESS_DENIED, EPOCH_REFUSED
from ganeti.rpc.procedures.disks import DISK_GRANTS, GrantsArgs
from ganeti.rpc.procedures.files import WRITE_SSCONF, SsconfArgs
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.host import (
    LEAVE_CLUSTER,
    NODE_VERIFY,
    VERSION,
    LeaveArgs,
    NodeVersion,
    VerifyArgs,
)
from ganeti.rpc.procedures.instances import INSTANCE_START, StartArgs
from ganeti.rpc.procedures.mastership import REGISTER_PROMISE, REGISTER_READ, PromiseArgs
from ganeti.rpc.procedures.programs import OS_CREATE, OsCreateArgs
from ganeti.store.register import PromiseRequest, RegisterFile
from tests.cluster.nodes import BEFORE_MASTER, Nodes, TestNode

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.whole_starts("memory is measured"),
]

EPOCH = 1


@dataclass
class World:
    nodes: Nodes
    master: TestNode
    founded: init.NewCluster

    @property
    def here(self) -> Node:
        return self.master.as_object(self.founded.node_uuid)

    @contextlib.asynccontextmanager
    async def calling(self, epoch: int = EPOCH, master: str = "") -> AsyncIterator[RpcClient]:
        async with self.master.client(epoch, master or self.founded.node_uuid) as client:
            yield client

    @property
    def candidates(self) -> Path:
        return self.master.paths.data / "ssconf_master_candidates_certs"

    def newer_set(self, **changes: str) -> SsconfArgs:
        paths = self.master.paths
        position, values = ssconf.read_set(paths)
        return SsconfArgs(position=position + 1, values={**values, **changes})

    def add_member(self) -> TestNode:
        """A node with a certificate of the cluster that is no candidate; nothing runs on it."""
        node, master = self.nodes.new(), self.master.paths
        key = certificates.new_key()
        certificate = certificates.sign_node(
            master.authority_certificate.read_bytes(),
            master.authority_key.read_bytes(),
            certificates.signing_request(key, node.name),
            node_uuid="33333333-3333-4333-8333-333333333333",
            node_name=node.name,
            now=1_790_000_000.0,
        )
        node.paths.data.mkdir(parents=True)
        node.paths.node_key.write_bytes(key)
        node.paths.node_certificate.write_bytes(certificate)
        node.paths.authority_certificate.write_bytes(master.authority_certificate.read_bytes())
        return node


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    nodes = Nodes(tmp_path)
    try:
        master, founded = await nodes.cluster()
        yield World(nodes, master, founded)
    finally:
        await nodes.close()


async def test_a_node_daemon_answers_its_master_and_stays_small(world: World) -> None:
    async with world.calling() as client:
        version: NodeVersion = await client.call(world.here, VERSION, Nothing())
        state = await client.call(world.here, REGISTER_READ, Nothing())
        report = await client.call(
            world.here, NODE_VERIFY, VerifyArgs(hypervisors=["fake"], nodes=[])
        )
    assert (version.node_name, version.cluster_uuid) == (
        "node1.example",
        world.founded.cluster_uuid,
    )
    assert state.vote is not None
    promised = state.vote.register.promised
    assert (promised.epoch, promised.candidate) == (EPOCH, world.founded.node_uuid)
    assert report.ssconf_position == ssconf.current_position(world.master.paths) > 0
    assert report.certificate_not_after > report.time
    process = world.master.daemons.status(NODED).process
    assert process is not None
    status = Path(f"/proc/{process.pid}/status").read_text()
    rss_kib = next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)
    assert rss_kib < 60 * 1024


async def refusal(world: World, who: TestNode) -> GanetiError:
    async with who.client(EPOCH, world.founded.node_uuid) as client:
        with pytest.raises((RpcFailed, RpcUnknown)) as caught:
            await client.call(world.here, WRITE_SSCONF, world.newer_set(cluster_name="stolen"))
    assert ssconf.SimpleStore(world.master.paths).GetClusterName() == "cluster.example"
    return caught.value


@pytest.mark.requirement("A24", "G22")
async def test_only_a_candidates_certificate_changes_anything(world: World) -> None:
    member = world.add_member()
    err = await refusal(world, member)
    assert isinstance(err, RpcFailed)
    assert err.wire_error == ACCESS_DENIED

    stranger = replace(member)
    key = certificates.new_key()
    member.paths.node_key.write_bytes(key)
    member.paths.node_certificate.write_bytes(
        certificates.self_signed(key, world.master.name, 1_790_000_000.0, 1e8)
    )
    await refusal(world, stranger)


@pytest.mark.requirement("A24", "G22")
async def test_a_node_that_becomes_a_candidate_may_call_and_a_removed_one_may_not(
    world: World,
) -> None:
    member = world.add_member()
    uuid = "33333333-3333-4333-8333-333333333333"
    mine = f"{world.founded.node_uuid}={world.master.certificate}"
    async with (
        world.calling() as client,
        member.client(EPOCH, world.founded.node_uuid) as theirs,
    ):
        both = f"{mine}\n{uuid}={member.certificate}"
        args = world.newer_set(master_candidates_certs=both)
        await client.call(world.here, WRITE_SSCONF, args)
        await theirs.call(world.here, VERSION, Nothing())
        args = world.newer_set(master_candidates_certs=mine)
        await client.call(world.here, WRITE_SSCONF, args)
        with pytest.raises(RpcFailed, match="answers only master candidates"):
            await theirs.call(world.here, VERSION, Nothing())
        await client.call(world.here, VERSION, Nothing())


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.resolve().write_text("")


def truncated(path: Path) -> None:
    path.resolve().write_text(path.read_text()[:-20])


def cut_to_the_uuid(path: Path) -> None:
    path.resolve().write_text(path.read_text()[:36])


def with_a_damaged_line(path: Path) -> None:
    path.resolve().write_text(path.read_text() + "garbage\n")


def not_text(path: Path) -> None:
    path.resolve().write_bytes(b"\xff\xfe")


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.requirement("A25", "G22")
@pytest.mark.parametrize(
    "damage",
    [missing, empty, truncated, cut_to_the_uuid, with_a_damaged_line, not_text, a_directory],
)
async def test_incomplete_list_of_candidates_admits_no_caller(
    world: World, damage: Callable[[Path], None]
) -> None:
    async with world.calling() as client:
        await client.call(world.here, VERSION, Nothing())
        damage(world.candidates)
        for _ in range(2):
            with pytest.raises(RpcFailed, match="answers only master candidates"):
                await client.call(world.here, VERSION, Nothing())
    await world.master.daemons.stop(NODED)  # so that its log is complete
    log = (world.master.paths.log / "node-daemon.log").read_text()
    assert log.count("this node accepts no callers") == 1


@pytest.mark.requirement("A26", "G4")
async def test_calls_of_older_epochs_and_of_other_masters_change_nothing(world: World) -> None:
    uuid, other = world.founded.node_uuid, "44444444-4444-4444-8444-444444444444"
    async with world.calling(EPOCH) as client:
        request = PromiseRequest(world.founded.cluster_uuid, 5, NodeUuid(uuid))
        state = await client.call(world.here, REGISTER_PROMISE, PromiseArgs(request=request))
        assert state.vote is not None
        assert state.vote.granted
    for epoch, master in ((4, uuid), (5, other), (0, uuid), (2**31, uuid)):
        async with world.calling(epoch, master) as client:
            with pytest.raises(RpcFailed) as caught:
                await client.call(world.here, WRITE_SSCONF, world.newer_set(cluster_name="stolen"))
            assert caught.value.wire_error == EPOCH_REFUSED
    async with world.calling(5, uuid) as client:
        await client.call(world.here, WRITE_SSCONF, world.newer_set(cluster_name="renamed.example"))
    assert ssconf.SimpleStore(world.master.paths).GetClusterName() == "renamed.example"
    assert world.master.daemons.status(NODED).process is not None


@pytest.mark.requirement("D2", "D8", "D9")
async def test_late_start_under_an_older_grant_is_refused_also_by_the_next_daemon(
    world: World,
) -> None:
    """The node has learned that the disk was granted to another node meanwhile."""
    own = NodeUuid(world.founded.node_uuid)

    def start(generation: int) -> StartArgs:
        grant = Grant(generation, frozenset({SHARED}), own, EPOCH)
        disk = DiskSpec(
            uuid="d1",
            index=0,
            size=1,
            template="sharedfile",
            logical_id=("loop", "/x"),
            grant=grant,
        )
        guest = InstanceSpec(
            name="web1.example",
            uuid="55555555-5555-4555-8555-555555555555",
            hypervisor="fake",
            os="",
            memory=128,
            vcpus=1,
            hvparams={},
            disks=(disk,),
        )
        return StartArgs(instance=guest)

    elsewhere = Grant(5, frozenset({SHARED}), NodeUuid("other"), EPOCH)
    async with world.calling() as client:
        await client.call(world.here, DISK_GRANTS, GrantsArgs(grants={"d1": elsewhere}), key="1")
    process = world.master.daemons.status(NODED).process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    while world.master.daemons.status(NODED).process:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.02)
    await world.master.daemons.start(NODED, ["--bind-address", world.master.address])
    async with world.calling() as client:
        with pytest.raises(RpcFailed, match="generation 4 is over: the copy is of generation 5"):
            await client.call(world.here, INSTANCE_START, start(4), key="2")
        with pytest.raises(RpcFailed) as caught:  # there is no such disk
            await client.call(world.here, INSTANCE_START, start(6), key="3")
        assert "is over" not in str(caught.value)


@pytest.mark.requirement("A28")
async def test_an_older_ssconf_set_is_refused(world: World) -> None:
    async with world.calling() as client:
        old = msgspec.structs.replace(world.newer_set(), position=1)
        with pytest.raises(RpcFailed, match="older"):
            await client.call(world.here, WRITE_SSCONF, old)
        for name in ("../x", "a/b", "", "x" * 300):
            with pytest.raises(RpcFailed):
                await client.call(world.here, WRITE_SSCONF, world.newer_set(**{name: "x"}))


OS_SCRIPT = """#!/bin/sh
echo begun >&2
while [ ! -e {go} ]; do sleep 0.05; done
echo over >&2
"""


def define_os(world: World) -> Path:
    directory = world.master.paths.os_search_path[0] / "slow"
    directory.mkdir(parents=True)
    go = world.nodes.directory / "go"
    (directory / "ganeti_api_version").write_text("20\n")
    (directory / "variants.list").write_text("default\n")
    (directory / "parameters.list").write_text("")
    for name in ("create", "verify", "export", "import", "rename"):
        script = directory / name
        script.write_text(OS_SCRIPT.format(go=go) if name == "create" else "#!/bin/sh\n")
        script.chmod(0o755)
    return go


@pytest.mark.requirement("G7")
async def test_long_work_survives_the_node_daemon_and_is_found_again_by_its_key(
    world: World,
) -> None:
    go = define_os(world)
    instance = InstanceSpec(
        name="web1.example",
        uuid="55555555-5555-4555-8555-555555555555",
        hypervisor="fake",
        os="slow+default",
        memory=128,
        vcpus=1,
        hvparams={},
    )
    args = OsCreateArgs(instance=instance, os="slow+default", osparams={})
    logs = world.master.paths.log / "os"

    def said() -> str:
        return "".join(path.read_text() for path in logs.glob("*")) if logs.exists() else ""

    async with world.calling() as client:
        call = asyncio.create_task(client.call(world.here, OS_CREATE, args, key="1/0/1"))
        while "begun" not in said():
            assert not call.done(), call.result()
            await asyncio.sleep(0.02)
        process = world.master.daemons.status(NODED).process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        while world.master.daemons.status(NODED).process:  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.02)
        await world.master.daemons.start(NODED, ["--bind-address", world.master.address])
        state = await client.call(world.here, REGISTER_READ, Nothing())
        assert state.vote is not None
        assert state.vote.register.promised.epoch == EPOCH
        go.touch()
        result = await call
        again = await client.call(world.here, OS_CREATE, args, key="1/0/1")
    assert result.tail.split() == ["begun", "over"]
    assert again == result
    assert said().split() == ["begun", "over"]


@contextlib.asynccontextmanager
async def listening(
    node: TestNode, *words: str
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """`ganeti-node-join` as a process; its token."""
    process = await node.start_command("ganeti.bootstrap.join_listener", *words)
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip(), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_node_joins_with_a_token_and_its_key_stays_on_it(world: World) -> None:
    node = world.nodes.new()
    async with listening(node) as (token, process):
        joined = await join(token, paths=world.master.paths, expected_name=node.name)
        assert await process.wait() == 0
        assert process.stderr is not None
        said = await process.stderr.read()
    assert said == b"node2.example has joined cluster cluster.example.\n"
    assert (joined.name, joined.primary_ip, joined.port) == (node.name, node.address, 1811)
    assert joined.fingerprint == node.certificate
    identity = node_identity(node.paths.node_certificate.read_bytes())
    assert identity == (joined.uuid, node.name)
    assert stat.S_IMODE(node.paths.node_key.stat().st_mode) == 0o600
    assert not node.paths.authority_key.exists()
    register = RegisterFile(node.paths.register).read()
    assert register is not None
    assert register.promised.epoch == EPOCH
    async with world.calling() as client:
        version = await client.call(node.as_object(), VERSION, Nothing())
        assert version.node_name == node.name
        await client.call(node.as_object(), WRITE_SSCONF, world.newer_set())
        leave = LeaveArgs(cluster_uuid=world.founded.cluster_uuid)
        await client.call(node.as_object(), LEAVE_CLUSTER, leave)
    while node.daemons.status(NODED).process:  # noqa: ASYNC110 - another process is waited for
        await asyncio.sleep(0.02)
    assert not is_member(node.paths)


async def test_a_token_is_worth_nothing_once_it_was_used(world: World) -> None:
    node = world.nodes.new()
    async with listening(node, "--no-start") as (token, process):
        await join(token, paths=world.master.paths)
        with pytest.raises(PrereqError, match=r"cannot be joined|used already"):
            await join(token, paths=world.master.paths)
        assert await process.wait() == 0
    again = await node.start_command("ganeti.bootstrap.join_listener")
    _, err = await again.communicate()
    assert again.returncode == 1
    assert b"belongs to a cluster already" in err
    async with listening(node, "--no-start", "--reset") as (token, _):
        assert not is_member(node.paths)
        rejoined = await join(token, paths=world.master.paths)
    assert rejoined.fingerprint == node.certificate


async def test_a_wrong_secret_is_refused_and_after_five_the_token_is_void(world: World) -> None:
    node = world.nodes.new()
    async with listening(node, "--no-start") as (token, process):
        wrong = msgspec.structs.replace(decode_token(token), secret="00" * 32).encode()
        for _ in range(4):
            with pytest.raises(PrereqError, match="wrong secret"):
                await join(wrong, paths=world.master.paths)
        assert process.returncode is None
        with pytest.raises(PrereqError):
            await join(wrong, paths=world.master.paths)
        assert await process.wait() == 1
        with pytest.raises(PrereqError, match="cannot be joined"):
            await join(token, paths=world.master.paths)
    assert not is_member(node.paths)


async def test_another_certificate_at_the_tokens_address_gets_no_proof(world: World) -> None:
    node = world.nodes.new()
    async with listening(node, "--no-start") as (token, process):
        wrong = msgspec.structs.replace(decode_token(token), fingerprint="00" * 32).encode()
        with pytest.raises(PrereqError, match="another process answers"):
            await join(wrong, paths=world.master.paths)
        assert process.returncode is None
        await join(token, paths=world.master.paths)


async def test_a_token_expires(world: World) -> None:
    node = world.nodes.new()
    async with listening(node, "--lifetime", "0.2") as (token, process):
        assert await process.wait() == 1
        with pytest.raises(PrereqError, match="cannot be joined"):
            await join(token, paths=world.master.paths)
    assert not is_member(node.paths)


async def test_the_master_may_refuse_and_then_the_node_is_as_it_was(world: World) -> None:
    node = world.nodes.new()
    async with listening(node) as (token, process):
        with pytest.raises(InputError, match="token is of node"):
            await join(token, paths=world.master.paths, expected_name="other.example")
        assert await process.wait() == 1
        assert process.stderr is not None
        assert b"the master refused" in await process.stderr.read()
    assert not is_member(node.paths)
    assert node.daemons.status(NODED).process is None


async def test_a_node_whose_daemon_cannot_start_has_not_joined(world: World) -> None:
    node = world.nodes.new()
    blocker = await asyncio.start_server(lambda _reader, _writer: None, node.address, 1811)
    async with blocker, listening(node) as (token, process):
        with pytest.raises(PrereqError, match=r"could not join.*cannot listen"):
            await join(token, paths=world.master.paths)
        assert await process.wait() == 1
    assert not is_member(node.paths)


async def test_a_token_comes_by_ssh_and_the_command_ends_with_the_join(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    node = world.nodes.new()
    for name, value in node.environment.items():
        monkeypatch.setenv(name, value)
    words = [sys.executable, "-m", "ganeti.bootstrap.join_listener", "--no-start"]
    async with ssh_token(node.name, words=words) as token:
        joined = await join(token, paths=world.master.paths)
    assert joined.name == node.name
    with pytest.raises(
        PrereqError, match=r"belongs to a cluster already.*ganeti-node-join --reset"
    ) as told:
        async with ssh_token(node.name, words=words):
            pass
    assert "cannot be reached" not in told.value.message


@pytest.mark.parametrize("said", ["nothing", "proof", "admission"])
async def test_a_master_that_dies_in_a_join_leaves_a_node_that_can_be_joined(
    world: World, said: str
) -> None:
    node = world.nodes.new()
    async with listening(node) as (token, process):
        invitation, paths = decode_token(token), world.master.paths
        async with masters_join._connected(invitation) as (reader, writer):
            if said != "nothing":
                application = await masters_join._apply(invitation, reader, writer)
            if said == "admission":
                uuid, now = RandomIds().uuid(), SystemClock().time()
                authority = masters_join._authority(paths)
                await send(
                    writer, masters_join._admission(authority, application, uuid, paths, now)
                )
            writer.transport.abort()
        if said != "nothing":  # a stranger could be that, too: the node goes on waiting
            await process.wait()
    if is_member(node.paths):
        again = await node.start_command("ganeti.bootstrap.join_listener")
        _, err = await again.communicate()
        assert b"ganeti-node-join --reset" in err
    async with listening(node, "--reset") as (token, process):
        assert (await join(token, paths=world.master.paths)).name == node.name
        assert await process.wait() == 0


@pytest.mark.parametrize("token", ["", "x", "a" * 2000, "e30", "\x00", "ö", "aaaa bbbb"])
async def test_what_is_no_token_is_refused(world: World, token: str) -> None:
    with pytest.raises(InputError, match="token"):
        await join(token, paths=world.master.paths)


async def test_node_without_the_authority_adds_no_node(world: World) -> None:
    node = world.nodes.new()
    async with listening(node) as (token, _):
        with pytest.raises(PrereqError, match="on the master"):
            await join(token, paths=Paths(world.nodes.directory / "elsewhere"))


async def test_second_daemon_and_host_outside_of_a_cluster_are_refused(world: World) -> None:
    second = await world.master.start_command("ganeti.daemons.noded")
    _, err = await second.communicate()
    assert second.returncode == 1
    assert b"already running" in err
    lonely = await world.nodes.new().start_command("ganeti.daemons.noded")
    _, err = await lonely.communicate()
    assert lonely.returncode == 5
    assert b"not in a cluster" in err


async def test_a_second_cluster_on_a_node_is_refused(world: World) -> None:
    before = world.master.paths.register.read_bytes()
    with pytest.raises(PrereqError, match="belongs to a cluster already"):
        await init.init_cluster(
            world.nodes.options(world.master),
            paths=world.master.paths,
            daemons=world.master.daemons,
            steps=BEFORE_MASTER,
        )
    assert world.master.paths.register.read_bytes() == before
    assert world.master.daemons.status(NODED).process is not None


def traces(directory: Path) -> list[str]:
    return sorted(
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and "log" not in path.parts
    )


@pytest.mark.parametrize("number", range(len(BEFORE_MASTER)))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_an_init_that_fails_at_any_step_leaves_nothing(
    tmp_path: Path, number: int, after: bool
) -> None:
    nodes = Nodes(tmp_path)
    node = nodes.new()

    async def failing(new: init.InitContext) -> None:
        if after:
            await BEFORE_MASTER[number](new)
        raise HostError("injected")

    steps = [*BEFORE_MASTER[:number], failing, *BEFORE_MASTER[number + 1 :]]
    with pytest.raises(HostError, match="injected"):
        await init.init_cluster(
            nodes.options(node), paths=node.paths, daemons=node.daemons, steps=steps
        )
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "ganeti"]
    assert not is_member(node.paths)
    assert not node.paths.etc.exists()
    assert not (tmp_path / "shared").exists()
    assert left == []
    assert node.daemons.status(NODED).process is None
    _, founded = (
        node,
        await init.init_cluster(
            nodes.options(node), paths=node.paths, daemons=node.daemons, steps=BEFORE_MASTER
        ),
    )
    assert founded.fingerprint == node.certificate
    await nodes.close()


async def test_join_with_a_lost_last_message_is_reported_as_unknown(world: World) -> None:
    node = world.nodes.new()
    async with listening(node) as (token, process):

        def kill(_name: str, _address: str) -> None:
            process.kill()

        with pytest.raises((ExecError, PrereqError)):
            await join(token, paths=world.master.paths, check=kill)
