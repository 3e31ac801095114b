"""Debian's own commands, compiled tools and burnin over LUXI, and our burnin, against a real cluster of ours."""

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import CONFD
from ganeti.cli.burnin_steps import STEPS
from ganeti.protocols.luxi import UPSTREAM_ERRORS
from tests.compat.recorded import KEYS, WHOLE, alike, keys
from tests.support.debian_ganeti import COMMANDS, PROGRAMS, run_debian, run_debian_htools
from tests.support.debian_packages import unpacked
from tests.support.local_cluster import NOOP, LocalCluster, local_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
SESSION = Path(__file__).with_name("debian_session.txt")


@pytest.fixture(scope="module")
def three() -> Iterator[LocalCluster]:
    """Three nodes that answer confd too, with the OS `noop` whose scripts do nothing."""
    with local_cluster("--confd") as cluster:
        for number in (1, 2, 3):
            wait_until(
                functools.partial(cluster.runs, CONFD, number), f"confd of node {number} serves"
            )
        cluster.install_noop()
        for node in cluster.cluster.nodes:
            for name in ("create", "import", "export", "rename"):
                script = node.paths.os_search_path[0] / NOOP / name
                script.write_text("#!/bin/sh\n")
                script.chmod(0o755)
        yield cluster


def ran(cluster: LocalCluster, line: str, *, status: int = 0, timeout_s: float = 120) -> str:
    """What one of Debian's commands prints, which ends with this status and no traceback."""
    command, *words = shlex.split(line)
    done = run_debian(command, cluster.node(1).paths, *words, timeout_s=timeout_s)
    assert "Traceback" not in done.stderr, f"{line}:\n{done.stderr}"
    assert done.returncode == status, f"{line}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


OWN = (" recovery", " max_snapshots")
"""How the lines of parameters begin that upstream does not have."""


def test_they_print_what_they_print_against_the_original(three: LocalCluster) -> None:
    ran(
        three,
        "gnt-instance add -t diskless -o noop --no-install --no-start --no-nics --no-name-check"
        " --no-ip-check -n node1 -B memory=16M,vcpus=1 cap1.peer",
    )
    ran(three, "gnt-instance add-tags cap1.peer tag1")
    try:
        for line, first in KEYS.items():
            assert keys(alike(ran(three, line)))[: len(first)] == first, line
        for line, whole in WHOLE.items():
            shown = [one for one in alike(ran(three, line)) if not one.startswith(OWN)]
            assert shown == whole, line  # beside the parameters that the original lacks
    finally:
        ran(three, "gnt-instance remove -f cap1.peer")


OF_EVERY_SCRIPT = {
    *("OS_API_VERSION", "OS_NAME", "OS_VARIANT", "DEBUG_LEVEL", "PATH", "HYPERVISOR"),
    *("INSTANCE_NAME", "INSTANCE_OS", "INSTANCE_UUID", "INSTANCE_CTIME", "INSTANCE_MTIME"),
    *("INSTANCE_PRIMARY_NODE", "INSTANCE_SECONDARY_NODES", "DISK_COUNT", "NIC_COUNT"),
    *(
        "DISK_0_ACCESS",
        "DISK_0_BACKEND_TYPE",
        "DISK_0_NAME",
        "DISK_0_PATH",
        "DISK_0_SIZE",
        "DISK_0_UUID",
    ),
    *("NIC_0_IP", "NIC_0_LINK", "NIC_0_MAC", "NIC_0_MODE", "NIC_0_NAME", "NIC_0_UUID"),
    *("NIC_0_NETWORK_NAME", "NIC_0_NETWORK_SUBNET", "NIC_0_NETWORK_TAGS", "NIC_0_NETWORK_UUID"),
    *("INSTANCE_BE_always_failover", "INSTANCE_BE_auto_balance", "INSTANCE_BE_maxmem"),
    *("INSTANCE_BE_minmem", "INSTANCE_BE_spindle_use", "INSTANCE_BE_vcpus"),
    "INSTANCE_HV_migration_mode",
}
"""The variables that the original (3.0.2) passed to scripts for this instance."""
OF_ONE_SCRIPT = {
    "create": set[str](),
    "export": {"EXPORT_DEVICE", "EXPORT_DISK_PATH", "EXPORT_INDEX"},
    "import": {"IMPORT_DEVICE", "IMPORT_DISK_PATH", "IMPORT_INDEX"},
    "rename": {"OLD_INSTANCE_NAME"},
}


@pytest.mark.requirement("S116", "S118", "S127", "S131")
def test_os_scripts_get_every_variable_of_the_original(three: LocalCluster) -> None:
    record = three.directory / "environment"
    scripts = [node.paths.os_search_path[0] / NOOP for node in three.cluster.nodes]
    before = {name: (scripts[0] / name).read_text() for name in OF_ONE_SCRIPT}
    common = "--no-name-check --no-ip-check -t file -n node2"
    try:
        for place in scripts:
            for name in OF_ONE_SCRIPT:
                (place / name).write_text(f"#!/bin/sh\nenv >{record}-{name}\ncat >/dev/null\n")
        ran(three, "gnt-network add --network=192.0.2.0/24 net1")
        ran(three, "gnt-network connect -N mode=routed,link=100 net1")
        ran(three, f"gnt-instance add {common} -o noop --no-start --disk=0:size=1M,name=system"
            " --net=0:network=net1,ip=pool,name=lan -B memory=16M v1.peer")  # fmt: skip
        ran(three, "gnt-backup export -n node1 v1.peer")
        ran(three, "gnt-instance remove -f v1.peer")
        ran(three, f"gnt-backup import {common} --src-node=node1 --src-dir=v1.peer v2.peer")
        for name, own in OF_ONE_SCRIPT.items():
            said = Path(f"{record}-{name}").read_text().splitlines()
            missing = (OF_EVERY_SCRIPT | own) - {line.partition("=")[0] for line in said}
            assert missing == set(), name
    finally:
        ran(three, "gnt-instance remove -f v2.peer")
        ran(three, "gnt-network remove -f net1")
        for place in scripts:
            for name, text in before.items():
                (place / name).write_text(text)


def test_they_raise_an_error_of_a_node_again(three: LocalCluster) -> None:
    """Their exit status and first line are those of a job of the original that fails on a node."""
    ran(
        three,
        "gnt-instance add -t sharedfile --disk=0:size=4M -o noop --no-install --no-start --no-nics"
        " --no-name-check --no-ip-check -n node1 -B memory=16M e1.peer",
    )
    for disk in (three.directory / "shared").rglob("e1.peer*/*"):
        disk.unlink()
    try:
        printed = ran(three, "gnt-instance activate-disks e1.peer", status=1)
        assert "Failure: command execution error:\nnode node1" in printed
    finally:
        ran(three, "gnt-instance remove -f e1.peer")


def test_every_error_name_exists_in_upstream() -> None:
    theirs = (unpacked(*COMMANDS) / PROGRAMS / "ganeti/errors.py").read_text()
    assert [name for name in UPSTREAM_ERRORS if f"\nclass {name}(" not in theirs] == []


def steps() -> Iterator[tuple[int, str, str]]:
    """Exit status, command and a piece of what is printed."""
    for line in SESSION.read_text().splitlines():
        if not line.startswith("#"):
            status, _, rest = line.partition(" ")
            command, _, said = rest.partition(" => ")
            yield int(status), command, said.replace(r"\n", "\n")


@pytest.mark.soak
def test_a_session_with_all_of_their_commands(three: LocalCluster) -> None:
    for status, line, said in steps():
        printed = re.sub(" +", " ", ran(three, line, status=status))
        assert said in printed, f"{line}:\n{printed}"
    assert not three.names("instance") & {"i1.peer", "i3.peer", "i4.peer", "n1.peer"}


@pytest.mark.parametrize(
    ("tool", "words", "said"),
    [
        ("hinfo", (), "Loaded 3 nodes"),
        ("harep", (), "Instance status count"),
        ("hcheck", (), "No need to rebalance"),
        ("hroller", (), "Node Reboot Groups"),
        ("hspace", ("--disk-template=sharedfile",), "The cluster has 3 nodes"),
    ],
)
def test_their_placement_tools_read_the_cluster(
    three: LocalCluster, tool: str, words: tuple[str, ...], said: str
) -> None:
    done = run_debian_htools(tool, three.node(1).paths.luxi_socket, *words)
    assert said in done.stdout, done.stdout + done.stderr


def test_hbal_carries_out_its_moves(three: LocalCluster) -> None:
    names = [f"b{number}.peer" for number in range(4)]
    for name in names:
        ran(
            three,
            "gnt-instance add -t sharedfile --disk=0:size=4M -o noop --no-install --no-name-check"
            f" --no-ip-check -n node1 -B memory=512M {name}",
        )
    done = run_debian_htools(
        "hbal", three.node(1).paths.luxi_socket, "-X", "--ignore-soft-errors", timeout_s=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Got job IDs" in done.stdout
    assert len({three.value("instance", name, "pnode") for name in names}) > 1
    for name in names:
        ran(three, f"gnt-instance remove -f {name}")


@pytest.mark.soak
def test_their_test_of_the_job_queue_passes_but_for_what_we_do_otherwise(
    three: LocalCluster,
) -> None:
    """It wants a job to wait again between its opcodes; ours stays running (G6)."""
    printed = ran(three, "gnt-debug test-jobqueue", status=1, timeout_s=300)
    for part in ("Job submission tests were successful", "Job dependency tests were successful"):
        assert part in printed
    _, success, rest = printed.partition("Testing job success")
    assert success
    assert rest.startswith("\nTesting multiple successful opcodes")
    assert "Job status while expanding names is 'running'" in rest


def test_burnin_passes_through_to_its_end(three: LocalCluster) -> None:
    nodes = ",".join(node.name for node in three.cluster.nodes)
    said = ran(
        three,
        "burnin -o noop -t sharedfile --disk-size=4M --disk-growth=4M --mem-size=16M"
        f" -n {nodes} --no-name-check --no-ip-check burn1.peer",
        timeout_s=600,
    )
    for what in ("Ping", "Master", "Node role for master"):
        assert f"* {what}: OK" in said
    for step in (
        "Failing over",
        "Migrating",
        "Reinstalling",
        "Renaming",
        "Adding and detaching",
        "Attaching and removing",
    ):
        assert f"- {step}" in said
    assert "burn1.peer" not in three.names("instance")


def test_our_own_burnin_does_with_instances_all_that_can_be_done(three: LocalCluster) -> None:
    words = ("--disk-size=4M", "--disk-growth=4M", "--maxmem-size=32", "--minmem-size=16")
    common = ("burnin", "-o", NOOP, *words, "--no-name-check")
    shared = three.run(*common, "-t", "sharedfile", "--rename", "b9", "b1", timeout_s=600)
    assert shared.status == 0, shared.out + shared.err
    local = three.run(*common, "-t", "file", "-p", "--no-importexport", "b1", "b2", timeout_s=600)
    assert local.status == 0, local.out + local.err
    for step in STEPS:
        is_done = f"- {step.title}" in shared.out + local.out
        assert is_done is (step.name not in ("replace1", "replace2")), step.title
    assert three.names("instance") == set()
