"""Real guests in a cluster of real daemons, through the real commands."""

import fcntl
import itertools
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from ganeti.vcluster.layout import UID_LOCKS
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.patience import patience, text_of
from tests.support.tiny_guest import (
    are_consecutive,
    build_tiny_guest,
    disk_heartbeats,
    heartbeats,
    power_off,
    said,
)

pytestmark = [pytest.mark.host, pytest.mark.timeout(180)]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def module_cluster() -> Iterator[LocalCluster]:
    guest = build_tiny_guest()
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(module_cluster: LocalCluster) -> Iterator[LocalCluster]:
    yield module_cluster
    for number in (1, 2):
        module_cluster.start(NODED, number)
    module_cluster.start(MASTERD)
    for name in sorted(module_cluster.names("instance")):
        module_cluster.ok("gnt-instance", "remove", "-f", "--shutdown-timeout=0", name)
    assert not module_cluster.machines()
    assert module_cluster.disks() == set()


@pytest.fixture
def name() -> str:
    return f"web{next(_numbers)}.example.com"


def options(*, template: str = "sharedfile", size: str = "64m") -> list[str]:
    return ["-t", template, "--disk", f"0:size={size}", "-o", "tiny+default",
            "-B", "memory=96m", "--no-nics"]  # fmt: skip


def console(cluster: LocalCluster, name: str) -> Path:
    return Path(cluster.value("instance", name, "console_log"))


def beats(cluster: LocalCluster, name: str, more: int = 3) -> None:
    """Wait until the guest has said some further heartbeats."""
    log = console(cluster, name)
    wanted = len(heartbeats(log)) + more
    wait_until(lambda: len(heartbeats(log)) >= wanted, f"{name} goes on: {said(log)[-300:]}", 60)


def status(cluster: LocalCluster, name: str) -> str:
    return cluster.value("instance", name, "status")


def only_disk(cluster: LocalCluster) -> Path:
    (disk,) = cluster.disks()
    return disk


@pytest.mark.requirement("G5")
def test_guest_loses_no_heartbeat_during_migrations(cluster: LocalCluster, name: str) -> None:
    cluster.ok("gnt-instance", "add", "-n", "node1", *options(), name, timeout_s=120)
    logs = set()
    for target in ("node2", "node1"):
        beats(cluster, name)
        logs.add(console(cluster, name))
        cluster.ok("gnt-instance", "migrate", "-f", "-n", target, name, timeout_s=120)
        assert cluster.value("instance", name, "pnode") == f"{target}.vcluster.test"
        assert len(cluster.machines()) == 1
    beats(cluster, name)
    assert len(logs) == 2
    heard = sorted(beat for log in logs for beat in heartbeats(log))
    assert are_consecutive(heard), heard  # none is missing, and none was said twice
    cluster.ok("gnt-instance", "shutdown", name)
    written = disk_heartbeats(only_disk(cluster))
    assert set(written.values()) == {1}  # one boot all the time
    assert are_consecutive(sorted(written))
    assert max(written) >= heard[-1]


@pytest.mark.soak
@pytest.mark.parametrize(("daemon", "node"), [(MASTERD, 1), (NODED, 1), (NODED, 2)])
@pytest.mark.requirement("G5", "F20")
def test_killed_daemon_during_a_migration_leaves_one_running_guest(
    cluster: LocalCluster, name: str, daemon: str, node: int
) -> None:
    cluster.ok("gnt-instance", "add", "-n", "node1", *options(), name, timeout_s=120)
    beats(cluster, name)
    logs = {console(cluster, name)}
    migrate = ["gnt-instance", "migrate", "-f", "-n", "node2", name]
    with cluster.in_background(*migrate) as command:
        assert command.stdout is not None
        assert any("migrating the memory" in line for line in command.stdout)
        cluster.kill(daemon, node)
        cluster.start(daemon, node)
        told = text_of(command, 120)[0]
    assert "Traceback" not in told
    jobs = ["gnt-job", "list", "--no-headers", "--running", "--pending"]
    wait_until(lambda: not cluster.ok(*jobs).lines, "the job has ended", 60)
    if command.returncode:
        cluster.ok("gnt-instance", "migrate", "-f", "--cleanup", name)
    wait_until(lambda: status(cluster, name) == "running", "the guest is known to run")
    assert len(cluster.machines()) == 1
    logs.add(console(cluster, name))
    beats(cluster, name)
    assert are_consecutive(sorted(beat for log in logs for beat in heartbeats(log)))
    cluster.ok("gnt-cluster", "verify")
    cluster.ok("gnt-instance", "migrate", "-f", name, timeout_s=120)
    beats(cluster, name)


def test_the_console_and_its_log_reach_the_guest(cluster: LocalCluster, name: str) -> None:
    cluster.ok("gnt-instance", "add", "-n", "node2", *options(), name, timeout_s=120)
    beats(cluster, name)
    assert f"hostname={name}" in cluster.ok("gnt-instance", "console", "--log", name).out
    with cluster.in_background("gnt-instance", "console", name) as command:
        assert command.stdout is not None
        assert re.search(r"\w", command.stdout.readline())
    assert status(cluster, name) == "running"


def test_a_guest_that_ignores_acpi_is_ended_after_the_timeout(
    cluster: LocalCluster, name: str
) -> None:
    add = ["gnt-instance", "add", "-n", "node1", *options(), "-O", "ignore_acpi=yes", name]
    cluster.ok(*add, timeout_s=120)
    beats(cluster, name)
    begun = time.monotonic()
    cluster.ok("gnt-instance", "shutdown", "--timeout", "3", name)
    assert 3 <= time.monotonic() - begun < 30 * patience()
    assert status(cluster, name) == "ADMIN_down"
    assert not cluster.machines()


def test_a_guest_shuts_itself_down_long_before_the_timeout(
    cluster: LocalCluster, name: str
) -> None:
    cluster.ok("gnt-instance", "add", "-n", "node1", *options(), name, timeout_s=120)
    beats(cluster, name)
    begun = time.monotonic()
    cluster.ok("gnt-instance", "shutdown", "--timeout", "100", name)
    assert time.monotonic() - begun < 60 * patience()
    assert not cluster.machines()


@pytest.mark.requirement("F30")
def test_a_guest_survives_the_kill_of_its_node_daemon_and_is_seen_again(
    cluster: LocalCluster, name: str
) -> None:
    cluster.ok("gnt-instance", "add", "-n", "node2", *options(), name, timeout_s=120)
    beats(cluster, name)
    log, running = console(cluster, name), cluster.machines()
    cluster.kill(NODED, 2)
    wait_until(lambda: status(cluster, name) == "ERROR_nodedown", "the node's silence is seen")
    heard = len(heartbeats(log))
    wait_until(lambda: len(heartbeats(log)) > heard + 2, "the guest goes on without the daemon")
    cluster.start(NODED, 2)
    wait_until(lambda: status(cluster, name) == "running", "the guest is seen again")
    assert cluster.machines() == running
    assert are_consecutive(heartbeats(log))
    cluster.ok("gnt-instance", "shutdown", name)
    assert not cluster.machines()


def test_a_machine_that_dies_at_its_start_gives_one_error_and_no_process(
    cluster: LocalCluster, name: str
) -> None:
    kernel = cluster.directory / "no-kernel"
    kernel.write_text("this is no kernel\n")
    bad = ["-H", f"kvm:kernel_path={kernel}"]
    answer = cluster.fails("gnt-instance", "add", "-n", "node1", *options(), *bad, name)
    assert answer.count("Failure:") == 1
    assert "did not start" in answer
    assert not cluster.machines()
    again = cluster.run("gnt-instance", "startup", name)
    assert again.status == 1
    assert "Traceback" not in again.err
    assert not cluster.machines()
    cluster.ok("gnt-instance", "remove", "-f", name)
    assert cluster.disks() == set()
    cluster.ok("gnt-cluster", "verify")


@pytest.mark.requirement("G16")
@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system can be mounted by root only")
def test_a_full_disk_at_creation_gives_one_error_and_leaves_nothing(
    cluster: LocalCluster, name: str
) -> None:
    storage = cluster.node(1).paths.below("/srv/ganeti/file-storage")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "gnt-test", str(storage)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    try:
        add = ["gnt-instance", "add", "-n", "node1", *options(template="file"), name]
        answer = cluster.fails(*add)
        assert answer.count("Failure:") == 1
        assert re.search(r"space|MiB", answer)
        assert cluster.names("instance") == set()
        assert cluster.disks() == set()
        assert not cluster.machines()
        cluster.ok(
            "gnt-instance", "add", "--no-start", "-n", "node2", *options(template="file"), name
        )
        cluster.ok("gnt-instance", "remove", "-f", name)
    finally:
        subprocess.run(["umount", str(storage)], check=True)


@pytest.mark.soak
def test_down_ends_real_machines(name: str) -> None:
    guest = build_tiny_guest()
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=1) as cluster:
        cluster.ok("gnt-instance", "add", "-n", "node1", *options(), name, timeout_s=120)
        running = cluster.machines()
        assert len(running) == 1
        directory = cluster.directory
    assert not directory.exists()
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in running), "it ended", 5)


def test_renamed_and_reinstalled_guest_has_its_new_name(cluster: LocalCluster, name: str) -> None:
    cluster.ok("gnt-instance", "add", "-n", "node1", *options(), name, timeout_s=120)
    beats(cluster, name)
    assert "must be down" in cluster.fails("gnt-instance", "reinstall", "-f", name)
    cluster.ok("gnt-instance", "shutdown", name)
    new = f"shop-{name}"
    cluster.ok("gnt-instance", "rename", name, new)
    assert cluster.names("instance") == {new}
    cluster.ok("gnt-instance", "startup", new)
    beats(cluster, new)
    assert f"READY hostname={new} boot=2" in said(console(cluster, new))
    cluster.ok("gnt-instance", "shutdown", new)
    cluster.ok("gnt-instance", "reinstall", "-f", "-O", "ignore_acpi=yes", new, timeout_s=120)
    cluster.ok("gnt-instance", "startup", new)
    beats(cluster, new)
    assert f"READY hostname={new} boot=1 heartbeat=0" in said(console(cluster, new))


def is_held(lock: Path) -> bool:
    """Whether a process has the user id of this file; a file alone is a hint, left by a guest that took long to end."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@pytest.mark.requirement("S108", "S229", "S230", "G11", "A65")
def test_a_guest_of_the_pool_is_made_moved_and_removed_by_the_real_commands(
    cluster: LocalCluster, name: str, own_user_ids: range
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run guests under other user ids")
    pool = f"{own_user_ids[0]}-{own_user_ids[-1]}"
    cluster.ok("gnt-cluster", "modify", f"--uid-pool={pool}")
    facts = [node.paths.data / "ssconf_uid_pool" for node in cluster.cluster.nodes]
    wait_until(lambda: {fact.read_text() for fact in facts} == {f"{pool}\n"}, "all know it")
    cluster.ok(
        "gnt-instance", "add", "-n", "node1", "-H", "kvm:security_model=pool,use_chroot=true",
        *options(), name, timeout_s=120,
    )  # fmt: skip
    for _ in range(2):
        beats(cluster, name)
        [machine] = cluster.machines()
        words = Path(f"/proc/{machine}/status").read_text()
        found = re.search(r"^Uid:\t(\d+)\t\1\t\1\t\1$", words, re.MULTILINE)
        assert found
        assert int(found[1]) in own_user_ids
        assert str(Path(f"/proc/{machine}/root").readlink()).endswith(".root")
        assert (UID_LOCKS / found[1]).exists()
        cluster.ok("gnt-instance", "migrate", "-f", name, timeout_s=90)
    cluster.ok("gnt-instance", "remove", "-f", "--shutdown-timeout=0", name)
    wait_until(
        lambda: not any(is_held(UID_LOCKS / str(uid)) for uid in own_user_ids), "all are free"
    )
    for node in cluster.cluster.nodes:
        assert list(node.paths.kvm.glob("*.root")) == []
    cluster.ok("gnt-cluster", "modify", "--uid-pool=")


def test_list_and_info_say_user_down_and_start_and_shutdown_do_what_they_say(
    cluster: LocalCluster, name: str
) -> None:
    cluster.ok(
        "gnt-instance", "add", "-n", "node1", "-H", "kvm:user_shutdown=true", *options(), name,
        timeout_s=120,
    )  # fmt: skip
    log = console(cluster, name)
    for times in (1, 2):
        wait_until(lambda: "TINY READY" in said(log), "the guest boots", 60)
        power_off(console_socket(cluster, name))
        wait_until(lambda: status(cluster, name) == "USER_down", "USER_down", 60)
        assert cluster.value("instance", name, "admin_state") == "up"
        assert "USER_down" in cluster.ok("gnt-instance", "list", "-o", "status").out
        assert "actual state is user down" in cluster.ok("gnt-instance", "info", name).out
        if times == 1:
            cluster.ok("gnt-instance", "start", name, timeout_s=60)
            assert status(cluster, name) == "running"
    cluster.ok("gnt-instance", "shutdown", name)
    assert status(cluster, name) == "ADMIN_down"
    assert not cluster.machines()


def console_socket(cluster: LocalCluster, name: str) -> Path:
    """Where the guest's console listens: beside its log, on the same node."""
    (found,) = Path(cluster.cluster.master.root).parent.rglob(f"{console(cluster, name).stem}.s")
    return found
