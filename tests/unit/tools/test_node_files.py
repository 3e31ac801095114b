"""What a node has of its cluster: given its owners again, or removed."""

import asyncio
from pathlib import Path

import pytest

from ganeti.base.node_files import Lifetime, existing
from ganeti.base.paths import Paths
from ganeti.bootstrap import daemons
from ganeti.bootstrap.destroy import is_member
from ganeti.bootstrap.membership import allow_storage
from ganeti.tools import ensure_dirs, node_cleanup
from tests.support.node_certificates import Authority


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    paths.run.mkdir(parents=True)
    Authority().equip(paths, "node1.example.com")
    return paths


def fill(paths: Paths) -> None:
    for path in (paths.state, paths.register, paths.confd_key, paths.job_archive):
        path.write_text(path.name)
    (paths.data / "ssconf.1").mkdir()
    paths.ssconf.symlink_to("ssconf.1")
    (paths.data / "ssconf.1" / "ssconf_master_node").write_text("node1.example.com\n")


def test_modes_are_put_right(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    paths.register.write_text("{}")
    paths.register.chmod(0o666)
    assert ensure_dirs.main(["--full-run", "-v"]) == 0
    assert paths.register.stat().st_mode & 0o777 == 0o600
    assert str(paths.register) in capsys.readouterr().out
    assert ensure_dirs.main(["-v"]) == 0
    assert capsys.readouterr().out == ""
    paths.confd_key.symlink_to(paths.register)
    assert ensure_dirs.main([]) == 1
    assert "symbolic link" in capsys.readouterr().err


def test_a_node_leaves_with_a_copy_of_what_it_had(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(paths)
    had = {path.name for path in existing(paths, Lifetime.CLUSTER)}
    assert node_cleanup.main([]) == 1
    assert "--yes-do-it" in capsys.readouterr().err
    assert is_member(paths)
    assert node_cleanup.main(["--yes-do-it"]) == 0
    assert not is_member(paths)
    (kept,) = paths.data.glob("left-cluster-*")
    assert kept.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in kept.iterdir()} == had
    assert (kept / "state.db").read_text() == "state.db"
    assert not existing(paths, Lifetime.CLUSTER)
    assert node_cleanup.main(["--yes-do-it"]) == 0
    assert "no data of a cluster" in capsys.readouterr().out
    assert list(paths.data.glob("left-cluster-*")) == [kept]


def test_without_a_backup_nothing_stays(paths: Paths) -> None:
    fill(paths)
    assert node_cleanup.main(["--ya-rly", "--no-backup"]) == 0
    assert list(paths.data.iterdir()) == []


@pytest.mark.parametrize("is_own", [False, True])
def test_list_of_an_administrator_stays(paths: Paths, is_own: bool) -> None:
    fill(paths)
    paths.etc.mkdir(parents=True, exist_ok=True)
    if is_own:
        paths.file_storage_paths.write_text("/mine\n")
    assert allow_storage(paths, ["/srv/ganeti/file-storage"]) is not is_own
    assert node_cleanup.main(["--yes-do-it"]) == 0
    assert paths.file_storage_paths.exists() is is_own
    (copy,) = paths.data.glob("left-cluster-*")
    assert (copy / "file-storage-paths").exists() is not is_own
    assert not existing(paths, Lifetime.CLUSTER)


def test_daemons_end_before_their_files_go(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(paths)
    ended: list[str] = []

    async def stop(_self: daemons.Daemons, name: str) -> None:
        assert is_member(paths)
        ended.append(name)
        await asyncio.sleep(0)

    monkeypatch.setattr(daemons.Daemons, "stop", stop)
    assert node_cleanup.main(["--yes-do-it", "--no-backup"]) == 0
    assert ended.index("ganeti-masterd") < ended.index("ganeti-etcd") < ended.index("ganeti-noded")
    assert set(ended) == set(daemons.MODULES)
