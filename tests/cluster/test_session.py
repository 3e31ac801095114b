"""A session of an administrator: the real commands against real daemons, on the fake hypervisor."""

import contextlib
import os
import pty
import re
import subprocess
from collections.abc import Callable

import pytest

from ganeti.bootstrap.daemons import NODED
from tests.support.local_cluster import LocalCluster, wait_until
from tests.support.patience import text_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NewName = Callable[[], str]
PREREQ = "Failure: prerequisites not met for this operation:\nerror type: {}, error details:\n"


@pytest.fixture
def web(cluster: LocalCluster, new_name: NewName) -> str:
    """A running instance on the second node."""
    name = new_name()
    cluster.ok("gnt-instance", "add", "-n", "node2", *cluster.noop_options(), name)
    return name


def test_info_and_getmaster_say_which_cluster_this_is(cluster: LocalCluster) -> None:
    said = cluster.ok("gnt-cluster", "info").out
    assert "Cluster name: cluster.vcluster.test\n" in said
    assert "Master node: node1.vcluster.test\n" in said
    assert cluster.ok("gnt-cluster", "getmaster").out == "node1.vcluster.test\n"
    assert "Software version: 4.0.0" in cluster.ok("gnt-cluster", "version").out


def test_node_list_shows_chosen_fields_without_headers(cluster: LocalCluster) -> None:
    done = cluster.ok(
        "gnt-node", "list", "--no-headers", "--separator=|", "-o", "name,master,pinst_cnt"
    )
    assert sorted(done.lines) == [
        "node1.vcluster.test|Y|0",
        "node2.vcluster.test|N|0",
        "node3.vcluster.test|N|0",
    ]
    assert cluster.ok("gnt-node", "list", "node2").lines[0].startswith("Node ")


def test_command_on_another_node_names_the_master(cluster: LocalCluster) -> None:
    done = cluster.run("gnt-instance", "list", node=2)
    assert done.status == 11
    assert "node1.vcluster.test" in done.err


def test_os_list_shows_what_all_nodes_offer(cluster: LocalCluster) -> None:
    assert cluster.ok("gnt-os", "list", "--no-headers").lines == ["noop"]


@pytest.mark.requirement("S128")
def test_an_allocator_places_an_instance_and_its_os_is_installed(
    cluster: LocalCluster, new_name: NewName
) -> None:
    name = new_name()
    said = cluster.ok("gnt-instance", "add", "-I", "hail", *cluster.noop_options(), name).out
    chosen = re.search(r"Selected nodes for the instance: (\S+)", said)
    assert chosen is not None
    listed = cluster.ok(
        "gnt-instance", "list", "--no-headers", "--separator=:", "-o", "name,pnode,status,os", name
    ).lines
    assert listed == [f"{name}:{chosen[1]}:running:noop"]
    assert cluster.record.read_text().count(f"{name} begins\n") == 1


def test_a_dry_run_makes_nothing(cluster: LocalCluster, new_name: NewName) -> None:
    name, disks = new_name(), cluster.disks()
    cluster.ok("gnt-instance", "add", "--dry-run", "-n", "node2", *cluster.noop_options(), name)
    assert name not in cluster.names("instance")
    assert cluster.disks() == disks


def test_an_instance_is_shut_down_started_and_rebooted(cluster: LocalCluster, web: str) -> None:
    def status() -> str:
        return cluster.value("instance", web, "status")

    assert status() == "running"
    cluster.ok("gnt-instance", "shutdown", web)
    assert status() == "ADMIN_down"
    cluster.ok("gnt-instance", "startup", web)
    assert status() == "running"
    cluster.ok("gnt-instance", "reboot", web)
    assert status() == "running"


def test_an_instance_on_shared_storage_moves_while_it_runs(
    cluster: LocalCluster, new_name: NewName
) -> None:
    name = new_name()
    options = [word if word != "file" else "sharedfile" for word in cluster.noop_options()]
    cluster.ok("gnt-instance", "add", "-n", "node1", *options, name)
    cluster.ok("gnt-instance", "migrate", "-f", "-n", "node3", name)
    assert cluster.value("instance", name, "pnode") == "node3.vcluster.test"
    assert cluster.value("instance", name, "status") == "running"


def test_an_instance_on_local_disks_cannot_be_migrated(cluster: LocalCluster, web: str) -> None:
    said = cluster.fails("gnt-instance", "migrate", "-f", web)
    assert said.startswith(PREREQ.format("wrong_state"))
    assert cluster.value("instance", web, "status") == "running"


def test_info_shows_all_facts_about_an_instance(cluster: LocalCluster, web: str) -> None:
    said = cluster.ok("gnt-instance", "info", web).out
    assert web in said
    assert "node2.vcluster.test" in said


def test_remove_leaves_no_disk(cluster: LocalCluster, web: str) -> None:
    assert any(web in str(disk) for disk in cluster.disks())
    cluster.ok("gnt-instance", "remove", "-f", web)
    assert web not in cluster.names("instance")
    assert not any(web in str(disk) for disk in cluster.disks())


def test_remove_asks_first_and_without_a_terminal_refuses(cluster: LocalCluster, web: str) -> None:
    assert cluster.run("gnt-instance", "remove", web).status == 13
    assert web in cluster.names("instance")


@pytest.mark.rotated(4)
@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["add", "-n", "node9", "NOOP", "NEW"], "unknown_entity", "node9"),
        (["add", "-n", "node2", "NOOP", "WEB"], "already_exists", "exists already"),
        (["add", "-n", "node2", "NOOP", "../etc"], "wrong_input", "instance_name"),
        (["add", "-n", "node2", "-t", "diskless", "-o", "nosuch", "NEW"], "wrong_input", "nosuch"),
        (["add", "-n", "node2", "NOOP", "-B", "memory=much", "NEW"], "wrong_input", "memory"),
        (["add", "-n", "node2", "NOOP", "-B", "colour=red", "NEW"], "wrong_input", "colour"),
        (["add", "-n", "node2", "-t", "file", "--disk", "0:size=1m", "-o", "noop", "--no-nics",
          "--file-storage-dir", "../../etc", "NEW"], "wrong_input", "file_storage_dir"),
        (["add", "-I", "../hail", "NOOP", "NEW"], "wrong_input", "iallocator"),
        (["add", "-I", "nosuch", "NOOP", "NEW"], "unknown_entity", "nosuch"),
        (["add", "-n", "node2", "-t", "file", "--disk", "0:size=999999g", "-o", "noop",
          "--no-nics", "NEW"], "wrong_input", "size"),
        (["startup", "nosuch"], "unknown_entity", "nosuch"),
        (["startup", "$(id)"], "wrong_input", ""),
    ],
)  # fmt: skip
@pytest.mark.requirement("A40")
def test_bad_input_gives_one_clear_error_and_leaves_nothing(
    cluster: LocalCluster, web: str, new_name: NewName, words: list[str], error: str, said: str
) -> None:
    disks = cluster.disks()
    given = {"NOOP": cluster.noop_options(), "NEW": [new_name()], "WEB": [web]}
    argv = [one for word in words for one in given.get(word, [word])]
    answer = cluster.fails("gnt-instance", *argv)
    assert f"error type: {error}, error details:" in answer
    assert said in answer
    assert answer.count("Failure:") == 1
    assert cluster.names("instance") == {web}
    assert cluster.disks() == disks
    cluster.ok("gnt-debug", "delay", "0")


def test_a_field_that_does_not_exist_is_shown_as_unknown(cluster: LocalCluster, web: str) -> None:
    done = cluster.run("gnt-instance", "list", "--no-headers", "-o", "name,colour")
    assert (done.status, done.out.split()) == (14, [web, "??"])


def test_unknown_commands_and_options_end_with_usage(cluster: LocalCluster) -> None:
    for words in (["gnt-instance", "paint"], ["gnt-node"], ["gnt-job", "list", "--colour"]):
        done = cluster.run(*words)
        assert done.status in (1, 2), words
        assert "usage" in (done.out + done.err).lower(), words


def test_jobs_are_listed_shown_watched_and_waited_for(cluster: LocalCluster) -> None:
    job = cluster.ok("gnt-debug", "delay", "--submit", "0.5").out.split()[-1]
    watched = cluster.ok("gnt-job", "watch", job).out
    assert f"Output from job {job} follows" in watched
    cluster.ok("gnt-job", "wait", job)
    assert cluster.value("job", job, "status") == "success"
    assert "OP_TEST_DELAY" in cluster.ok("gnt-job", "info", job).out
    listed = cluster.ok("gnt-job", "list", "--no-headers", "--separator=:", "-o", "id,summary", job)
    assert listed.lines == [f"{job}:TEST_DELAY(0.5)"]


def test_the_log_of_a_job_is_shown_while_it_runs(cluster: LocalCluster) -> None:
    with cluster.in_background("gnt-debug", "delay", "--repeat=1", "1.5") as command:
        assert command.stdout is not None
        first = command.stdout.readline()
        assert "Test delay iteration 0/1" in first
        assert command.poll() is None
        assert "Test delay iteration 1/1" in text_of(command, 30)[0]


@pytest.mark.requirement("G9")
def test_a_job_that_waits_is_cancelled_and_never_runs(
    cluster: LocalCluster, new_name: NewName
) -> None:
    name = new_name()
    blocker = cluster.ok("gnt-debug", "delay", "--submit", "-n", "node3", "1.5").out.split()[-1]
    add = ["gnt-instance", "add", "--submit", "-n", "node3", *cluster.noop_options(), name]
    waiting = cluster.ok(*add).out.split()[-1]
    wait_until(lambda: cluster.value("job", waiting, "status") == "waiting", "it waits for a lock")
    cluster.ok("gnt-job", "cancel", waiting)
    assert cluster.value("job", waiting, "status") in ("canceling", "canceled")
    assert cluster.run("gnt-job", "wait", waiting).status == 1
    assert cluster.value("job", waiting, "status") == "canceled"
    cluster.ok("gnt-job", "wait", blocker)
    assert name not in cluster.names("instance")


def test_a_job_that_has_ended_cannot_be_cancelled(cluster: LocalCluster) -> None:
    job = cluster.ok("gnt-debug", "delay", "--submit", "0").out.split()[-1]
    cluster.ok("gnt-job", "wait", job)
    assert cluster.run("gnt-job", "cancel", job).status == 1
    assert cluster.value("job", job, "status") == "success"


def test_verify_finds_nothing_wrong_with_a_sound_cluster(cluster: LocalCluster, web: str) -> None:
    done = cluster.ok("gnt-cluster", "verify", "--error-codes")
    assert "ERROR" not in done.out


@pytest.mark.requirement("G17")
def test_dead_node_gives_one_error_and_others_continue(
    cluster: LocalCluster, web: str, new_name: NewName
) -> None:
    cluster.kill(NODED, 2)
    said = cluster.fails("gnt-instance", "shutdown", web)
    assert "node2.vcluster.test" in said
    # What the nodes said is shown again for a second.
    wait_until(lambda: cluster.value("instance", web, "status") == "ERROR_nodedown", "it is seen")
    done = cluster.run("gnt-cluster", "verify", "--error-codes")
    assert done.status == 1
    assert re.search(r"ERROR:ENODERPC:node:node2.vcluster.test", done.out), done.out
    other = new_name()
    cluster.ok("gnt-instance", "add", "-I", "hail", *cluster.noop_options(), other)
    assert cluster.value("instance", other, "pnode") != "node2.vcluster.test"
    cluster.start(NODED, 2)
    wait_until(lambda: cluster.value("instance", web, "status") == "running", "it is seen again")
    cluster.ok("gnt-instance", "shutdown", web)
    cluster.ok("gnt-cluster", "verify")


def test_an_os_script_that_fails_leaves_nothing(cluster: LocalCluster, new_name: NewName) -> None:
    name, disks = new_name(), cluster.disks()
    said = cluster.fails(
        "gnt-instance", "add", "-n", "node2", *cluster.noop_options(fail="yes"), name
    )
    assert "told to fail" in said
    assert name not in cluster.names("instance")
    assert cluster.disks() == disks


def test_destroy_refuses_while_there_are_instances_or_nodes(
    cluster: LocalCluster, web: str
) -> None:
    assert cluster.run("gnt-cluster", "destroy").status == 13
    cluster.fails("gnt-cluster", "destroy", "--yes-do-it")
    assert web in cluster.names("instance")
    cluster.fails("gnt-node", "remove", "node2")
    assert "node2.vcluster.test" in cluster.names("node")


NODES_ON_A_TERMINAL = """\
\x1b[1mNode                Role\x1b[0m
node1.vcluster.test M
node2.vcluster.test C
node3.vcluster.test C
"""


def on_terminal(cluster: LocalCluster, *argv: str, typed: str = "") -> tuple[int, str]:
    """Exit status and screen of a command whose three standard files are a terminal."""
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())  # the terminal shows it before anything else
    process = subprocess.Popen(
        cluster.node(1).words([*argv]),
        env={**cluster.node(1).environment(), "TERM": "xterm", "COLUMNS": "80"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    screen = b""
    with contextlib.suppress(OSError):  # so does a terminal end whose last user has gone
        while data := os.read(ours, 65_536):
            screen += data
    os.close(ours)
    return process.wait(60), screen.decode().replace("\r\n", "\n")


def test_a_session_on_a_terminal_and_in_a_pipe_looks_as_ever(
    cluster: LocalCluster, new_name: NewName
) -> None:
    words = ("gnt-node", "list", "-o", "name,role")
    assert on_terminal(cluster, *words) == (0, NODES_ON_A_TERMINAL)
    plain = NODES_ON_A_TERMINAL.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert cluster.ok(*words).out == plain
    name = new_name()
    add = ("gnt-instance", "add", "-n", "node2", *cluster.noop_options(), name)
    status, screen = on_terminal(cluster, *add)
    assert status == 0
    said = [line[25:] for line in screen.splitlines()]
    assert said.pop(3).startswith(" - INFO: the instance's UUID is ")
    assert said == [
        "* creating instance disks...",
        " - INFO: disk 0 (1 MiB) on node2.vcluster.test",
        f"adding instance {name} to cluster config",
        "* running the instance OS create scripts...",
        "* starting instance...",
    ]
    question = f"Remove instance {name} and all data on its disks? y/[n]: "
    remove = ("gnt-instance", "remove", name)
    refused = f"n\n{question}Failure: Not confirmed; nothing was changed.\n"
    assert on_terminal(cluster, *remove, typed="n\n") == (13, refused)
    assert name in cluster.names("instance")
    status, screen = on_terminal(cluster, *remove, typed="y\n")
    assert (status, screen.startswith(f"y\n{question}")) == (0, True)
    assert name not in cluster.names("instance")
    assert on_terminal(cluster, "gnt-instance", "startup", name) == (
        1,
        PREREQ.format("unknown_entity")
        + f"there is no instance {name}; `gnt-instance list` shows those that exist\n",
    )
