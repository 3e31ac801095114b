"""What confd answers from on a node that is not a candidate: it comes by a call and goes with the ssconf files."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti import ssconf
from ganeti.base.errors import HostError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.pidfile import ProcessIdentity, identity_of
from ganeti.base.roles import held_files
from ganeti.bootstrap.daemons import CONFD, Daemons, DaemonStatus
from ganeti.model.objects import NodeUuid
from ganeti.node import confd_copy, membership
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.confd import CONFD_COPY_WRITE, ConfdCopyArgs
from ganeti.rpc.procedures.files import WRITE_SSCONF, SsconfArgs
from ganeti.rpc.procedures.host import LEAVE_CLUSTER, LeaveArgs
from ganeti.store.register import Promise, Register, encode_register
from tests.support.node_certificates import Authority
from tests.unit.confd.cluster import POSITION, objects
from tests.unit.confd.test_copy_file import content

pytestmark = pytest.mark.requirement("S238")

KEY = b"a" * 64
COPY = {"node-hmac.key", "confd.db"}


class FakeDaemons(Daemons):
    """Which daemons run, and how often confd was started."""

    def __init__(self, paths: Paths) -> None:
        super().__init__(paths, environment={"GANETI_CONFD": "1"})
        self.running: set[str] = set()
        self.starts = 0
        self.fails = ""

    def status(self, name: str) -> DaemonStatus:
        return DaemonStatus(name, identity_of(os.getpid()) if name in self.running else None)

    async def start(self, name: str, _arguments: Sequence[str] = ()) -> ProcessIdentity:
        if self.fails == "start":
            raise HostError("it does not start")
        self.starts += name not in self.running
        self.running.add(name)
        return ProcessIdentity(1, 1)

    async def stop(self, name: str) -> None:
        if self.fails == "stop":
            raise HostError("it does not stop")
        self.running.discard(name)


class Host:
    """A regular node and its handlers."""

    def __init__(self, paths: Paths) -> None:
        self.paths, self.daemons = paths, FakeDaemons(paths)
        self.handlers = {
            **confd_copy.handlers(paths, self.daemons),
            **membership.handlers(paths, self.daemons, lambda: "mine", lambda: None),
        }
        self.position = 0

    async def learns(self, *, confd_on_all: bool) -> None:
        self.position += 1
        values = {
            "master_candidates_certs": f"22222222-2222-4222-8222-222222222222={'ab' * 32}",
            "offline_nodes": "",
            "confd_on_all_nodes": str(confd_on_all),
        }
        await self.handlers[WRITE_SSCONF.name](
            SsconfArgs(position=self.position, values=values), Call()
        )

    async def gets(self, base: int | None = None, key: bytes = KEY) -> int:
        args = ConfdCopyArgs(key=key, base=base, position=POSITION, content=content(*objects()))
        report = await self.handlers[CONFD_COPY_WRITE.name](args, Call())
        return int(report.position)

    def held(self) -> set[str]:
        return {path.name for path in held_files(self.paths)}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    Authority().equip(paths, "node5.example.com")
    paths.register.write_bytes(encode_register(Register("mine", Promise(1, NodeUuid("x")), None)))
    return Host(paths)


async def test_copy_and_key_come_by_a_call_and_confd_runs(host: Host) -> None:
    await host.learns(confd_on_all=True)
    assert await host.gets() == POSITION
    assert host.held() == COPY
    assert host.daemons.running == {CONFD}
    assert await host.gets(base=POSITION) == POSITION
    assert host.daemons.starts == 1
    await host.gets(base=POSITION, key=b"b" * 64)
    assert host.daemons.starts == 2  # a process has the key that it began with


async def test_copy_is_refused_where_the_ssconf_files_do_not_allow_it(host: Host) -> None:
    with pytest.raises(PrereqError, match="ssconf"):
        await host.gets()
    await host.learns(confd_on_all=False)
    with pytest.raises(PrereqError, match="ssconf"):
        await host.gets()
    assert host.held() == set()
    assert host.daemons.starts == 0


async def test_everything_goes_with_the_ssconf_files_that_end_the_option(host: Host) -> None:
    await host.learns(confd_on_all=True)
    await host.gets()
    await host.learns(confd_on_all=False)
    assert host.held() == set()
    assert host.daemons.running == set()


async def test_ssconf_files_count_although_confd_cannot_be_stopped(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    await host.learns(confd_on_all=True)
    await host.gets()
    host.daemons.fails = "stop"
    await host.learns(confd_on_all=False)
    assert not ssconf.SimpleStore(host.paths).has_confd_on_all_nodes()
    assert "remains on this node: it does not stop" in caplog.text
    assert host.held() == COPY
    host.daemons.fails = ""
    await host.learns(confd_on_all=False)
    assert host.held() == set()


async def test_copy_is_kept_although_confd_does_not_start(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    await host.learns(confd_on_all=True)
    host.daemons.fails = "start"
    assert await host.gets() == POSITION
    assert "does not answer queries: it does not start" in caplog.text
    host.daemons.fails = ""
    await host.gets(base=POSITION)
    assert host.daemons.running == {CONFD}


async def test_failed_write_leaves_no_key(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    await host.learns(confd_on_all=True)

    def fail(*_args: object) -> int:
        raise HostError("the disk is full")

    monkeypatch.setattr(confd_copy, "write_copy", fail)
    with pytest.raises(HostError, match="full"):
        await host.gets()
    assert host.held() == set()
    assert host.daemons.starts == 0


async def test_copy_that_comes_late_is_removed_at_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await host.learns(confd_on_all=True)
    begin = host.daemons.start

    async def start(name: str) -> ProcessIdentity:
        await host.learns(confd_on_all=False)
        return await begin(name)

    monkeypatch.setattr(host.daemons, "start", start)
    await host.gets()
    assert host.held() == set()


async def test_node_that_leaves_the_cluster_keeps_neither_copy_nor_daemon(host: Host) -> None:
    await host.learns(confd_on_all=True)
    await host.gets()
    await host.handlers[LEAVE_CLUSTER.name](LeaveArgs(cluster_uuid="mine"), Call())
    assert host.held() == set()
    assert host.daemons.running == set()
