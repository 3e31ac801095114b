"""Who may make a cluster where, and what becomes of one that was made before."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from ganeti import ssconf
from ganeti.base.errors import ExecError, PrereqError
from ganeti.base.paths import Paths
from ganeti.vcluster import lifecycle
from ganeti.vcluster.layout import VirtualCluster, load, plan
from ganeti.vcluster.leftovers import Say, end_commands, end_tasks


@pytest.fixture
def planned(tmp_path: Path) -> VirtualCluster:
    cluster = plan(Path("/tmp/c"), 2, hypervisor="fake", netns=False, guest=None)
    return msgspec.structs.replace(cluster, directory=str(tmp_path / "c"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been made and ended, where nothing real is started."""
    done: list[str] = []

    def up(cluster: VirtualCluster, _say: Say) -> None:
        done.append("up")
        cluster.save()

    def down(cluster: VirtualCluster, _say: Say) -> None:
        done.append("down")
        cluster.state_file.unlink()

    monkeypatch.setattr(lifecycle, "up", up)
    monkeypatch.setattr(lifecycle, "down", down)
    monkeypatch.setattr(lifecycle, "start", lambda _cluster, _say: done.append("start"))
    return done


def ensure(cluster: VirtualCluster, said: list[str] | None = None) -> bool:
    say = (said if said is not None else []).append
    return lifecycle.ensure(cluster.directory_path, lambda: cluster, say)[1]


def test_status_shows_the_rest_server_of_the_master_only(tmp_path: Path) -> None:
    planned = plan(Path("/tmp/c"), 2, hypervisor="fake", netns=False, guest=None, rest=True)
    cluster = msgspec.structs.replace(
        planned,
        nodes=[
            msgspec.structs.replace(one, root=str(tmp_path / one.name)) for one in planned.nodes
        ],
    )
    first, second = cluster.nodes
    for node in (first, second):
        assert "ganeti-rapi" not in [name for _node, name, _process in lifecycle.status(cluster)]
        node.paths.data.mkdir(parents=True)
    for node in (first, second):
        ssconf.write_set(node.paths, 1, {"master_node": second.name})
    found = [row for row in lifecycle.status(cluster) if row[1] == "ganeti-rapi"]
    assert found == [(second.name, "ganeti-rapi", lifecycle.DOWN)]


def test_a_cluster_is_made_once_and_then_only_started(
    planned: VirtualCluster, made: list[str]
) -> None:
    assert ensure(planned) is True
    found = load(planned.directory_path)
    assert found is not None
    assert found.is_complete
    assert ensure(planned) is False
    assert made == ["up", "start"]


def test_a_cluster_that_was_never_finished_is_recreated(
    planned: VirtualCluster, made: list[str]
) -> None:
    planned.directory_path.mkdir()
    planned.save()
    said: list[str] = []
    assert ensure(planned, said) is True
    assert made == ["down", "up"]
    assert "was interrupted" in said[0]


def test_a_failure_at_the_end_removes_what_was_made(
    planned: VirtualCluster, made: list[str]
) -> None:
    def fail(_cluster: VirtualCluster) -> None:
        raise ExecError("the guest says nothing")

    with pytest.raises(ExecError, match="says nothing"):
        lifecycle.ensure(planned.directory_path, lambda: planned, lambda _text: None, fail)
    assert made == ["up", "down"]
    assert not planned.directory_path.exists()


def test_only_one_may_be_at_work_in_a_directory(tmp_path: Path) -> None:
    with lifecycle.at_work(tmp_path / "c"):
        with (
            pytest.raises(PrereqError, match="another process is creating or ending"),
            lifecycle.at_work(tmp_path / "c"),
        ):
            raise AssertionError
        # Whoever came too late has not taken the directory away, either.
        assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "c").exists()


def test_down_removes_everything_of_a_cluster(planned: VirtualCluster) -> None:
    with lifecycle.at_work(planned.directory_path):
        planned.save()
        (planned.directory_path / "shared").mkdir()
        (planned.directory_path / "link").symlink_to("/")
    assert lifecycle.end(planned.directory_path, lambda _text: None) is True
    assert not planned.directory_path.exists()


def test_a_link_or_a_file_in_the_directory_s_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(PrereqError, match=name), lifecycle.at_work(tmp_path / name):
            raise AssertionError


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_with_another_owner_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    os.chown(tmp_path / "c", 65534, 65534)
    with pytest.raises(PrereqError, match="another user"), lifecycle.at_work(tmp_path / "c"):
        raise AssertionError


def test_there_is_nothing_to_end_where_there_is_no_cluster(tmp_path: Path) -> None:
    assert lifecycle.end(tmp_path / "c", lambda _text: None) is False
    assert not (tmp_path / "c").exists()


def test_scripts_are_ended_with_their_children_only(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.tasks.mkdir(parents=True)
    said: list[str] = []
    with (paths.tasks / "KEY.lock").open("w") as lock:
        words = ["/bin/sh", "-c", "sleep 600 & sleep 600 & echo begun; wait"]
        script = subprocess.Popen(
            words, pass_fds=(lock.fileno(),), start_new_session=True, stdout=subprocess.PIPE
        )
        assert script.stdout is not None
        assert script.stdout.readline() == b"begun\n"
        script.stdout.close()
    other = subprocess.Popen(["sleep", "600"])
    try:
        end_tasks(paths, "node1", said.append)
        assert script.wait(timeout=10) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert len(said) == 1
    assert said[0].startswith("ended scripts of node1 (process ")
    assert len(said[0].split(",")) == 3


def test_commands_are_ended_by_the_node_that_they_belong_to(tmp_path: Path) -> None:
    def sleeper(root: Path) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sleep", "600"], env={"GANETI_ROOTDIR": str(root)})

    mine, longer = sleeper(tmp_path / "node1"), sleeper(tmp_path / "node11")
    try:
        end_commands(Paths(tmp_path / "node1"), "node1", lambda _text: None)
        assert mine.wait(timeout=10) == -9
        assert longer.poll() is None
    finally:
        longer.kill()
        longer.wait()


def test_a_cluster_ends_where_there_is_no_program_for_networks(
    planned: VirtualCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = msgspec.structs.replace(planned, nodes=(), guest_bridge="gntbr")
    cluster.directory_path.mkdir()
    cluster.save()
    monkeypatch.setenv("PATH", str(tmp_path))
    lifecycle.down(cluster, lambda _line: None)
    assert list(cluster.directory_path.iterdir()) == []
