"""What a real QEMU can still reach, by way of confinement: its user, its root, its system calls.

Each cell starts a guest, reboots it, moves it to another node and back, and ends it.
"""

import asyncio
import itertools
import os
import re
import secrets
import signal
import stat
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ganeti import ssconf, uidpool
from ganeti.base.errors import HypervisorError, PrereqError
from ganeti.base.process import CLEAN_ENVIRONMENT, run
from ganeti.hypervisor.hotplug import incoming_instance
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.model.wire import encode
from ganeti.rpc.procedures.migration import IncomingArgs, MigrationEnd
from tests.support.kvm_nodes import Node, boot, migrate, nothing_is_left, send
from tests.support.patience import patience
from tests.support.tiny_guest import (
    are_consecutive,
    heartbeats,
    install,
    make_disk,
    open_files,
    tiny_instance,
    wait_for_text,
)

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give rights up"),
]

FEW = (("pool", True),)
DAC_OVERRIDE, SYS_CHROOT = 1, 18
"""Numbers of capabilities."""
MODELS = {"none": "", "user": "nobody", "pool": ""}


@dataclass(frozen=True)
class Rights:
    """What the kernel says about a process."""

    uids: frozenset[int]
    gids: frozenset[int]
    groups: str
    capabilities: int
    seccomp: int
    root: str

    @classmethod
    def of(cls, pid: int) -> "Rights":
        text = Path(f"/proc/{pid}/status").read_text()

        def field(name: str) -> str:
            found = re.search(rf"^{name}:\s+(.*)$", text, re.MULTILINE)
            assert found
            return found[1].strip()

        return cls(
            uids=frozenset(map(int, field("Uid").split())),
            gids=frozenset(map(int, field("Gid").split())),
            groups=field("Groups"),
            capabilities=int(field("CapEff"), 16) | int(field("CapPrm"), 16),
            seccomp=int(field("Seccomp")),
            root=str(Path(f"/proc/{pid}/root").readlink()),
        )


@pytest.fixture(autouse=True)
def pool(nodes: list[Node], own_user_ids: range) -> range:
    """The user ids of all nodes."""
    definition = uidpool.FormatUidPool([(own_user_ids[0], own_user_ids[39])])
    for node in nodes:
        ssconf.write_set(node.paths, 1, {"uid_pool": definition})
    return own_user_ids[:40]


def confined_instance(
    guest: Path,
    model: str,
    *,
    chroot: bool,
    **others: Any,
) -> InstanceSpec:
    return tiny_instance(
        guest,
        template="sharedfile",
        security_model=model,
        security_domain=MODELS[model],
        use_chroot=chroot,
        **others,
    )


def check_rights(node: Node, instance: InstanceSpec, model: str, *, chroot: bool) -> Rights:
    record = node.record(instance)
    rights = Rights.of(record.pid)
    assert rights.seccomp == 2
    assert rights.root == (str(node.files(instance).chroot) if chroot else "/")
    if model == "none":
        assert rights.uids == {0}
        kept = {DAC_OVERRIDE, SYS_CHROOT} if chroot else {DAC_OVERRIDE}
        assert rights.capabilities == sum(1 << number for number in kept)
    else:
        assert rights.capabilities == 0
        assert len(rights.uids) == len(rights.gids) == 1
        assert rights.groups in ("", str(next(iter(rights.gids))))
        assert 0 not in rights.uids | rights.gids
    if model == "user":
        assert rights.uids == {65534}
    if model == "pool":
        assert rights.uids == {record.pool_uid}
        definition = ssconf.SimpleStore(node.paths).GetUidPool()
        ranges = uidpool.ParseUidPool(definition, separator="\n")
        assert record.pool_uid in uidpool.ExpandUidPool(ranges)
        assert (uidpool.lock_directory(node.paths) / str(record.pool_uid)).exists()
    if chroot:
        assert list(node.files(instance).chroot.iterdir()) == []
        assert stat.S_IMODE(node.files(instance).chroot.stat().st_mode) == 0o555
    present = [path for path in node.files(instance).sockets if path.exists()]
    assert len(present) >= 3
    for path in (*present, node.files(instance).record):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
        assert path.stat().st_uid == 0
    return rights


def check_nothing_is_left(node: Node, instance: InstanceSpec) -> None:
    assert nothing_is_left(node, instance)
    assert not node.files(instance).chroot.exists()
    locks = uidpool.lock_directory(node.paths)
    assert not locks.exists() or list(locks.iterdir()) == []


@pytest_asyncio.fixture
async def bridge() -> AsyncIterator[str]:
    """A bridge of this host, on which nothing else is."""
    name = f"gt{secrets.token_hex(4)}"
    await run(["ip", "link", "add", name, "type", "bridge"])
    yield name
    await run(["ip", "link", "delete", name])


async def plug(
    node: Node, instance: InstanceSpec, second: Path, bridge: str
) -> tuple[InstanceSpec, list[str]]:
    """Give the confined guest a disk and a NIC while it runs; what it has then, and the disk's path."""
    make_disk(second, 8).chmod(0o600)
    disk = DiskSpec(
        uuid=str(uuid.uuid4()), index=1, size=8, template="sharedfile", logical_id=("loop", "/x")
    )
    nic = NicSpec(uuid=str(uuid.uuid4()), index=0, mac="aa:00:00:11:22:33", link=bridge)
    hotplug = node.driver.hotplug
    await hotplug.add_disk(instance, disk, str(second))
    wanted = replace(instance, disks=(*instance.disks, disk))
    await hotplug.add_nic(wanted, nic)
    return replace(wanted, nics=(nic,)), [str(second)]


async def unplug(node: Node, instance: InstanceSpec) -> None:
    """Take them again; the guest has to let them go."""
    await node.driver.hotplug.remove_nic(instance, instance.nics[0])
    await node.driver.hotplug.remove_disk(instance, instance.disks[1])


async def whole_life(
    nodes: list[Node],
    guest: Path,
    disk: Path,
    bridge: str,
    model: str,
    *,
    chroot: bool,
) -> None:
    here, there = nodes
    instance = confined_instance(guest, model, chroot=chroot, user_shutdown=True)
    install(guest, disk, instance.name)
    disk.chmod(0o600)
    disk.parent.chmod(0o700)  # as a local cluster's own directory: no other user can pass
    await boot(here, instance, disk)
    first = check_rights(here, instance, model, chroot=chroot)
    await here.beats(instance, 1)
    await ask_on_console(here, instance)
    await here.driver.reboot(instance, soft=False, timeout_s=60)
    await wait_for_text(here.console(instance), r"READY hostname=\S+ boot=2")
    assert check_rights(here, instance, model, chroot=chroot) == first

    wanted, paths = await plug(here, instance, disk.with_name("second-disk"), bridge)
    info = await here.driver.migration_info(wanted)
    coming = incoming_instance(wanted, info.instance)
    assert len(coming.disks) == 2
    assert len(coming.nics) == 1
    incoming = await there.driver.accept(
        IncomingArgs(instance=coming, address="127.0.0.1", info=info), [str(disk), *paths]
    )
    second = check_rights(there, instance, model, chroot=chroot)
    if model == "pool":
        assert second.uids != first.uids, "both run now, so they have different ids"
    result = await send(here, instance, incoming)
    assert (result.status, result.error) == ("completed", "")
    await there.driver.finish_migration(instance, MigrationEnd.RESUME_TARGET)
    await here.driver.finish_migration(instance, MigrationEnd.END_SOURCE)
    check_nothing_is_left(here, instance)
    await there.beats(instance)
    assert are_consecutive(heartbeats(here.console(instance), there.console(instance)))
    await unplug(there, wanted)
    await migrate(there, here, instance, disk)
    await here.beats(instance, 1)
    check_rights(here, instance, model, chroot=chroot)
    await ask_on_console(here, instance, "sync; sleep 1; poweroff -f", "poweroff -f")
    for _ in range(600):
        if await here.state(instance) == "shutdown":
            break
        await asyncio.sleep(0.1)
    assert await here.state(instance) == "shutdown"
    await here.driver.stop(instance, 60)
    for node in nodes:
        check_nothing_is_left(node, instance)


async def ask_on_console(
    node: Node,
    instance: InstanceSpec,
    command: str = "echo it is $((6 * 7))",
    answer: str = "it is 42",
) -> None:
    """Say something on the console, and wait for what it says."""
    found = await node.driver.console(instance)
    assert found.kind == "socket"
    reader, writer = await asyncio.open_unix_connection(found.path)
    try:
        writer.write(f"{command}\n".encode())
        await writer.drain()
        async with asyncio.timeout(60 * patience()):
            await reader.readuntil(answer.encode())
    finally:
        writer.close()


@pytest.mark.requirement("S228", "S229", "S230", "A63", "G5", "G11")
@pytest.mark.parametrize(
    ("model", "chroot"),
    [
        # All of them in `make test-host`; `make test` has one.
        pytest.param(*cell, marks=() if cell in FEW else pytest.mark.soak)
        for cell in itertools.product(MODELS, (False, True))
    ],
)
async def test_every_way_of_confinement_lets_a_guest_live_a_whole_life(
    nodes: list[Node],
    guest: Path,
    disk: Path,
    bridge: str,
    model: str,
    *,
    chroot: bool,
) -> None:
    await whole_life(nodes, guest, disk, bridge, model, chroot=chroot)


@pytest.mark.requirement("S102", "S230", "A65", "G12")
async def test_two_guests_have_two_ids_and_cannot_reach_each_other(
    nodes: list[Node],
    guest: Path,
    tmp_path: Path,
) -> None:
    node = nodes[0]
    instances = [confined_instance(guest, "pool", chroot=True) for _ in range(2)]
    disks = [make_disk(tmp_path / f"disk{number}") for number in range(2)]
    starts = [
        node.driver.start(instance, [str(disk)], paused=True)
        for instance, disk in zip(instances, disks, strict=True)
    ]
    await asyncio.gather(*starts)
    records = [node.record(instance) for instance in instances]
    assert len({record.pool_uid for record in records}) == 2
    first, second = records
    as_first = ["setpriv", f"--reuid={first.pool_uid}", f"--regid={first.pool_uid}"]
    as_first.append("--clear-groups")
    assert (await run([*as_first, "kill", "-0", str(second.pid)], check=False)).status != 0
    assert (await run([*as_first, "kill", "-0", str(first.pid)], check=False)).status == 0
    theirs = node.files(instances[1])
    for path in (*theirs.sockets, theirs.record, theirs.console_log):
        assert (await run([*as_first, "test", "-r", str(path)], check=False)).status != 0
    for instance in instances:
        await node.driver.stop(instance, 0)
        check_rights_are_gone(node, instance)
    check_nothing_is_left(node, instances[0])


def check_rights_are_gone(node: Node, instance: InstanceSpec) -> None:
    assert nothing_is_left(node, instance)
    assert not node.files(instance).chroot.exists()


@pytest.mark.requirement("A66")
async def test_qemu_gives_the_lock_of_its_id_up_when_the_guest_runs(
    nodes: list[Node],
    guest: Path,
    disk: Path,
) -> None:
    node = nodes[0]
    instance = confined_instance(guest, "pool", chroot=False)
    await node.driver.start(instance, [str(disk)])
    record = node.record(instance)
    locks = uidpool.lock_directory(node.paths)
    assert await node.state(instance) == "running"
    assert [name for name in open_files(record.pid) if name.startswith(str(locks))] == []
    # The start is over: whoever asks now sees the process, not the lock.
    again = uidpool.RequestUnusedUid([record.pool_uid], directory=locks, uids_in_use=lambda: {0})
    again.Unlock()


@pytest.mark.requirement("S113", "S114", "G11")
async def test_a_guest_that_died_by_itself_gives_its_id_back_and_a_new_daemon_keeps_that_of_a_live_one(
    nodes: list[Node],
    guest: Path,
    tmp_path: Path,
) -> None:
    node = nodes[0]
    dead, alive = (confined_instance(guest, "pool", chroot=True) for _ in range(2))
    for number, instance in enumerate((dead, alive)):
        disk = make_disk(tmp_path / f"disk{number}")
        await node.driver.start(instance, [str(disk)], paused=True)
    locks = uidpool.lock_directory(node.paths)
    kept = locks / str(node.record(alive).pool_uid)
    assert len(list(locks.iterdir())) == 2
    os.kill(node.record(dead).pid, signal.SIGKILL)
    kept.unlink()
    successor = KvmHypervisor(node.paths, run)
    async with asyncio.timeout(30 * patience()):
        # The end of a process sets no event.
        while len(await successor.running()) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert list(locks.iterdir()) == [kept]
    assert not node.files(dead).chroot.exists()
    assert node.files(alive).chroot.exists()


@pytest.mark.requirement("S230", "S105")
@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"security_model": "pool"}, "no user-id pool"),
        ({"security_model": "user"}, "needs the name of the user"),
        (
            {"security_model": "user", "security_domain": "no-such-user"},
            "the user no-such-user does not exist",
        ),
        ({"security_model": "none", "security_domain": "nobody"}, "has no effect"),
    ],
)
async def test_start_without_its_user_is_refused_and_leaves_nothing(
    nodes: list[Node],
    guest: Path,
    disk: Path,
    params: dict[str, Any],
    why: str,
) -> None:
    node = nodes[0]
    ssconf.write_set(node.paths, 2, {"uid_pool": ""})
    instance = tiny_instance(guest, use_chroot=True, **params)
    with pytest.raises(HypervisorError, match=why):
        await node.driver.start(instance, [str(disk)])
    check_nothing_is_left(node, instance)
    if "pool" not in why:
        [problem] = await node.driver.validate(instance.hvparams)
        assert why in problem


@pytest.mark.requirement("S229", "S82")
async def test_a_confined_guest_has_its_network(
    nodes: list[Node],
    guest: Path,
    disk: Path,
    bridge: str,
) -> None:
    node = nodes[0]
    instance = confined_instance(guest, "pool", chroot=True)
    nic = NicSpec(uuid="1", index=0, mac="aa:00:00:11:22:33", link=bridge)
    instance = replace(instance, nics=(nic,))
    await node.driver.start(instance, [str(disk)])
    [tap] = node.record(instance).taps
    link = await run(["ip", "-o", "link", "show", tap])
    assert f"master {bridge}".encode() in link.stdout
    assert b"LOWER_UP" in link.stdout, "QEMU has it open"
    check_rights(node, instance, "pool", chroot=True)
    await node.driver.stop(instance, 0)
    check_nothing_is_left(node, instance)
    assert (await run(["ip", "link", "show", tap], check=False)).status != 0


DYING_DAEMON = """
import asyncio, os, sys
from pathlib import Path
from ganeti.base.paths import Paths
from ganeti.base.process import CLEAN_ENVIRONMENT, run
from ganeti.hypervisor.kvm import guests
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.wire import decode

root, moment, disk, spec = sys.argv[1:]
owner, _, name = moment.rpartition(".")
setattr(guests.Guests if owner == "guests" else guests.Confinement, name, lambda *_, **__: os._exit(7))
kvm = KvmHypervisor(Paths(Path(root)), run)
asyncio.run(kvm.start(decode(spec.encode(), InstanceSpec, what="the instance"), [disk]))
"""


@pytest.mark.requirement("S102", "S230", "G11", "A65")
@pytest.mark.parametrize(
    "moment",
    ["confinement.prepare", "guests._spawn", "guests._wait_for_monitor", "guests.change"],
)
async def test_a_daemon_that_dies_during_a_start_leaks_no_id_and_shares_none(
    nodes: list[Node], guest: Path, disk: Path, moment: str, pool: range
) -> None:
    node = nodes[0]
    locks = uidpool.lock_directory(node.paths)
    ssconf.write_set(node.paths, 2, {"uid_pool": str(pool[0])})
    instance = confined_instance(guest, "pool", chroot=True)
    spec = encode(instance).decode()
    words = [sys.executable, "-c", DYING_DAEMON, str(node.paths.root), moment, str(disk), spec]
    environment = {**CLEAN_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = await run(words, env=environment, check=False)
    assert done.status == 7, done.text
    assert node.record(instance).pool_uid == pool[0]
    lives = moment in ("guests._wait_for_monitor", "guests.change")
    if lives:
        # QEMU may still be on its way to the id: the lock, which it has inherited, keeps it.
        with pytest.raises(PrereqError):
            uidpool.RequestUnusedUid([pool[0]], directory=locks)
    successor = KvmHypervisor(node.paths, run)
    assert len(await successor.running()) == lives
    await successor.start(instance, [str(disk)], paused=True)
    check_rights(node, instance, "pool", chroot=True)
    await successor.stop(instance, 0)
    check_nothing_is_left(node, instance)
