"""Hooks, the watcher and programs of administrators on real nodes."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import NODED
from tests.support.fake_agent import AGENT, FakeAgent
from tests.support.local_cluster import Done, LocalCluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
NewName = Callable[[], str]


PASSWORD = "hunter2-of-the-bmc"


def program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for directory in (path.parent, path.parent.parent):
        directory.chmod(0o755)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def files_with(root: Path, secret: bytes) -> dict[str, int]:
    """Files below a node's root that contain a secret, with their modes."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink() and secret in path.read_bytes():
            found[str(path.relative_to(root))] = stat.S_IMODE(path.stat().st_mode)
    return found


def watcher(cluster: LocalCluster, *words: str, node: int = 1) -> Done:
    done = cluster.run("python", "-m", "ganeti.watcher.program", *words, node=node)
    assert done.status == 0, done.out + done.err
    return done


@pytest.mark.requirement("A47")
def test_hooks_refuse_and_tell(cluster: LocalCluster, new_name: NewName) -> None:
    name, hooks = new_name(), cluster.node(1).paths.hooks
    cluster.ok("gnt-instance", "add", "-n", "node2", "--no-start", *cluster.noop_options(), name)
    forbidden = hooks / "instance-start-pre.d" / "10-check"
    program(forbidden, 'echo "not $GANETI_INSTANCE_NAME"; exit 1')
    said = cluster.fails("gnt-instance", "startup", name)
    assert f"hooks refuse the operation: 10-check on node1.vcluster.test: not {name}" in said
    assert cluster.value("instance", name, "status") == "ADMIN_down"
    forbidden.unlink()
    seen = cluster.directory / "seen"
    program(
        cluster.node(2).paths.hooks / "instance-start-post.d" / "20-tell",
        f"env >{seen}; echo told",
    )
    done = cluster.ok("gnt-instance", "startup", name)
    assert "hook 20-tell on node2" in done.out + done.err
    lines = seen.read_text().splitlines()
    assert "GANETI_INSTANCE_STATUS=down" in lines
    assert "GANETI_POST_INSTANCE_STATUS=up" in lines
    assert not [line for line in lines if line.startswith(("PYTHON", "GANETI_ROOTDIR"))]


@pytest.mark.requirement("G20")
def test_watcher_repairs_permitted_problems(cluster: LocalCluster, new_name: NewName) -> None:
    name = new_name()
    cluster.ok("gnt-instance", "add", "-n", "node2", *cluster.noop_options(), name)
    uuid = cluster.value("instance", name, "uuid")
    guest = [path for path in cluster.node(2).paths.fake_hypervisor.iterdir() if uuid in path.name]
    for path in guest:
        path.unlink()
    assert cluster.value("instance", name, "status") == "ERROR_down"
    cluster.ok("gnt-cluster", "watcher", "pause", "1h")
    assert watcher(cluster).out == ""
    cluster.ok("gnt-cluster", "watcher", "continue")
    assert f"starting {name}" in watcher(cluster, "--no-verify-disks").out
    wait_until(
        lambda: cluster.value("instance", name, "status") == "running", "the guest runs again"
    )
    cluster.ok("gnt-instance", "shutdown", "--timeout=0", name)
    assert "starting" not in watcher(cluster).out
    cluster.kill(NODED, 3)
    assert f"{NODED} was not running and was started" in watcher(cluster, node=3).out
    assert cluster.runs(NODED, 3)


@pytest.mark.requirement("A31")
def test_nodes_run_what_their_administrators_allow(cluster: LocalCluster) -> None:
    restricted = cluster.node(2).paths.restricted_commands
    program(restricted / "show", "echo shown")
    done = cluster.ok("gnt-node", "restricted-command", "-M", "show", "node2")
    assert "node2: shown\n" in done.out
    assert "does not run shell command lines" in cluster.run("gnt-cluster", "command", "id").out
    cluster.node(2).paths.shell_commands_allowed.touch(mode=0o644)
    done = cluster.ok("gnt-cluster", "command", "-n", "node2", "-M", "echo $((40 + 2))")
    assert ": 42\n" in done.out
    for number in (1, 2):
        cluster.node(number).paths.below("/etc/greeting").write_text("old")
    cluster.node(1).paths.below("/etc/greeting").write_text("welcome")
    cluster.node(2).paths.allowed_uploads.write_text("/etc/greeting\n")
    done = cluster.run("gnt-cluster", "copyfile", "/etc/greeting")
    assert done.status == 1
    assert "was not copied to node3" in done.out
    assert cluster.node(2).paths.below("/etc/greeting").read_text() == "welcome"


def test_hosts_are_switched_by_their_program(cluster: LocalCluster) -> None:
    power = cluster.node(1).paths.below("/usr/local/sbin/power")
    program(power, '[ "$1" = power-status ] && echo \'{"powered": true}\'; exit 0')
    cluster.ok("gnt-cluster", "modify", "--node-parameters=oob_program=/usr/local/sbin/power")
    assert "powered" in cluster.ok("gnt-node", "power", "status", "node3").out
    assert "not marked offline" in cluster.fails("gnt-node", "power", "-f", "off", "node3")
    cluster.ok("gnt-cluster", "epo", "-f", "node3")
    assert cluster.value("node", "node3", "offline,powered").split() == ["Y", "N"]
    cluster.ok("gnt-cluster", "epo", "-f", "--on", "node3")
    assert cluster.value("node", "node3", "offline,powered").split() == ["N", "Y"]


@pytest.mark.requirement("D7", "G23")
def test_password_of_an_agent_is_only_in_the_state(cluster: LocalCluster, tmp_path: Path) -> None:
    agent = FakeAgent(cluster.node(1).paths, tmp_path / "machine")
    agent.set("password", PASSWORD)
    options = f"fence_agent={AGENT},fence_options=ip=192.0.2.99 username=admin,fence_timeout=5"
    cluster.ok("gnt-node", "modify", f"--node-parameters={options}", "node3")
    assert "gnt-node fence-password" in cluster.fails("gnt-node", "fence-test", "node3")
    stored = cluster.run("gnt-node", "fence-password", "node3", stdin=f"{PASSWORD}\n")
    assert stored.status == 0, stored.err
    tested = cluster.ok("gnt-node", "fence-test", "node3").out
    assert "Power: on" in tested
    assert f"cannot run {AGENT}: it is not installed" in tested
    cluster.ok("gnt-node", "modify", "--offline=yes", "node3")
    assert "Power: off" in cluster.ok("gnt-node", "fence-test", "--off", "-f", "node3").out
    assert not agent.is_on
    assert "power off node node3" in cluster.ok("gnt-cluster", "audit").out
    cluster.ok("gnt-node", "modify", "--offline=no", "node3")
    shown = "".join(
        cluster.ok(*words).out
        for words in (
            ("gnt-node", "info", "node3"),
            ("gnt-cluster", "info"),
            ("gnt-cluster", "audit", "--json"),
            (
                "gnt-job",
                "info",
                *cluster.ok("gnt-job", "list", "--no-headers", "-o", "id").out.split(),
            ),
        )
    )
    assert PASSWORD not in shown + agent.got("seen")
    for number in (1, 2, 3):
        found = files_with(cluster.node(number).paths.root, PASSWORD.encode())
        assert all(name.startswith("var/lib/ganeti/state") for name in found), found
        assert all(mode == stat.S_IRUSR | stat.S_IWUSR for mode in found.values()), found
    # The agent's machine ends with this test, and others switch this node.
    options = "fence_agent=default,fence_options=default,fence_timeout=default"
    cluster.ok("gnt-node", "modify", f"--node-parameters={options}", "node3")


def test_all_hosts_but_the_masters_can_be_switched_off_at_once(cluster: LocalCluster) -> None:
    """Each is marked by a job of its own, and the master needs no majority of what has gone."""
    cluster.ok("gnt-cluster", "epo", "-f", "--all")
    assert cluster.ok("gnt-node", "list", "--no-headers", "-o", "role").lines == ["M", "O", "O"]
    cluster.ok("gnt-cluster", "epo", "-f", "--on", "--all")
    assert cluster.ok("gnt-node", "list", "--no-headers", "-o", "role").lines == ["M", "C", "C"]


@pytest.mark.requirement("F10", "G8")
def test_the_cleaner_forgets_jobs_beside_a_running_master(cluster: LocalCluster) -> None:
    """On one node at a time: what it has forgotten does not come back from the others."""
    forgets = "import ganeti.tools.cleaner as tool; tool.KEEP_JOBS_DAYS = -1; tool.main(['master'])"

    def archived() -> str:
        job_id = (
            cluster.ok("gnt-debug", "delay", "--submit", "--print-jobid", "0").lines[0].split()[-1]
        )
        cluster.ok("gnt-job", "wait", job_id)
        cluster.ok("gnt-job", "archive", job_id)
        return job_id

    def known(node: int) -> set[str]:
        query = (
            "import sqlite3, sys; [print(*row) for row in"
            " sqlite3.connect(sys.argv[1]).execute('SELECT id FROM jobs')]"
        )
        path = str(cluster.node(node).paths.job_archive)
        return set(cluster.run("python", "-c", query, path, node=node).lines)

    first = archived()
    wait_until(lambda: first in known(2), "node 2 has the first job")
    assert cluster.run("python", "-c", forgets, node=2).status == 0
    second = archived()
    wait_until(lambda: second in known(2), "node 2 has the second job")
    assert (first in known(1), first in known(2)) == (True, False)
    assert cluster.run("python", "-c", forgets, node=1).status == 0
    assert known(1) == set()
    assert "not found" in cluster.ok("gnt-job", "info", first).out
    third = archived()
    assert int(third) > int(second)
    assert known(1) == {third}
    assert "success" in cluster.ok("gnt-job", "info", third).out
