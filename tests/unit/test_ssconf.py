"""Sets of facts on a node: whole, never older, closed when damaged."""

import stat
from pathlib import Path

import pytest

from ganeti import ssconf
from ganeti.base.errors import ConfigurationError, InputError
from ganeti.base.paths import Paths

VALUES = {
    "cluster_name": "cluster.example.com",
    "node_list": "node1.example.com\nnode2.example.com",
    "master_candidates_certs": "uuid-1=aa\nuuid-2=bb",
    "node_vm_capable": "node1.example.com=True\nnode2.example.com=False",
    "node_primary_ips": "node1.example.com 192.0.2.1",
    "uid_pool": "",
}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


def test_a_set_is_read_back_by_ganetis_names(paths: Paths) -> None:
    assert ssconf.write_set(paths, 7, VALUES)
    store = ssconf.SimpleStore(paths)
    assert store.GetClusterName() == "cluster.example.com"
    assert store.GetNodeList() == ["node1.example.com", "node2.example.com"]
    assert store.GetNodesVmCapable() == {"node1.example.com": True, "node2.example.com": False}
    assert store.pairs("node_primary_ips") == {"node1.example.com": "192.0.2.1"}
    assert store.GetUidPool() == ""
    assert store.position() == 7
    assert ssconf.read_set(paths) == (7, VALUES)


def test_the_files_have_their_old_names_and_end_with_a_newline(paths: Paths) -> None:
    ssconf.write_set(paths, 7, VALUES)
    plain = paths.data / "ssconf_cluster_name"
    assert plain.read_text() == "cluster.example.com\n"
    assert stat.S_IMODE(plain.stat().st_mode) == 0o644


@pytest.mark.requirement("F8", "G2")
def test_an_older_set_never_replaces_a_newer_one(paths: Paths) -> None:
    ssconf.write_set(paths, 7, VALUES)
    assert not ssconf.write_set(paths, 6, {**VALUES, "cluster_name": "old.example.com"})
    assert ssconf.SimpleStore(paths).GetClusterName() == "cluster.example.com"
    assert ssconf.write_set(paths, 7, {**VALUES, "cluster_name": "new.example.com"})
    assert ssconf.SimpleStore(paths).GetClusterName() == "new.example.com"


@pytest.mark.requirement("F1", "F8", "G3")
@pytest.mark.parametrize("broken", ["sync_directory", "_switch", "_write"])
def test_a_failure_at_any_step_leaves_the_old_set_whole(
    paths: Paths, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssconf.write_set(paths, 7, VALUES)

    def fails(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ssconf, broken, fails)
        with pytest.raises(OSError, match="No space"):
            ssconf.write_set(paths, 8, {**VALUES, "cluster_name": "new.example.com"})
    assert ssconf.read_set(paths) == (7, VALUES)
    assert len(list(paths.data.glob("ssconf-*"))) == 1
    assert ssconf.write_set(paths, 8, {**VALUES, "cluster_name": "new.example.com"})


def test_values_that_are_gone_lose_their_names_and_old_sets_are_removed(paths: Paths) -> None:
    for position in range(1, 6):
        ssconf.write_set(paths, position, {**VALUES, "cluster_name": f"c{position}.example.com"})
    ssconf.write_set(paths, 6, {"cluster_name": "last.example.com"})
    assert [link.name for link in paths.data.glob("ssconf_*")] == ["ssconf_cluster_name"]
    assert len(list(paths.data.glob("ssconf-*"))) == ssconf.KEPT_SETS


def test_unchanged_values_are_not_written_again(paths: Paths) -> None:
    ssconf.write_set(paths, 1, VALUES)
    before = (paths.ssconf / "ssconf_node_list").stat().st_ino
    ssconf.write_set(paths, 2, {**VALUES, "cluster_name": "new.example.com"})
    assert (paths.ssconf / "ssconf_node_list").stat().st_ino == before


@pytest.mark.requirement("A25", "G22")
@pytest.mark.parametrize("text", [None, "", "uuid-1", "uuid-1=", "=aa", "uuid-1=aa\nrubbish"])
def test_a_missing_or_damaged_candidate_list_admits_nobody(paths: Paths, text: str | None) -> None:
    if text is not None:
        ssconf.write_set(paths, 1, {"master_candidates_certs": text})
    assert ssconf.candidate_certificates(paths) == {}


@pytest.mark.requirement("A25")
def test_a_candidate_list_that_is_a_directory_or_no_text_admits_nobody(paths: Paths) -> None:
    ssconf.write_set(paths, 1, VALUES)
    assert ssconf.candidate_certificates(paths) == {"uuid-1": "aa", "uuid-2": "bb"}
    file = paths.ssconf / "ssconf_master_candidates_certs"
    file.unlink()
    file.write_bytes(b"\xff\xfe")
    assert ssconf.candidate_certificates(paths) == {}
    file.unlink()
    file.mkdir()
    assert ssconf.candidate_certificates(paths) == {}


@pytest.mark.requirement("A40")
@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "a\n", "A", "x" * 65])
def test_names_that_are_no_names_are_refused(paths: Paths, name: str) -> None:
    with pytest.raises(InputError, match="not the name"):
        ssconf.write_set(paths, 1, {name: "value"})
    with pytest.raises(InputError):
        ssconf.SimpleStore(paths).read(name)
    assert not paths.ssconf.exists()


def test_a_host_without_a_cluster_says_so(paths: Paths) -> None:
    assert ssconf.SimpleStore(paths).position() == -1
    with pytest.raises(ConfigurationError, match="not a node"):
        ssconf.SimpleStore(paths).GetClusterName()
    with pytest.raises(ConfigurationError, match="not a node"):
        ssconf.read_set(paths)


def test_a_set_whose_position_is_damaged_is_replaced(paths: Paths) -> None:
    ssconf.write_set(paths, 5, VALUES)
    position = paths.ssconf / "position"
    position.unlink()
    position.write_text("rubbish")
    assert ssconf.SimpleStore(paths).position() == -1
    assert ssconf.write_set(paths, 2, VALUES)
    assert ssconf.SimpleStore(paths).position() == 2
