"""The list of what is written on a node: what it covers, and what it does not."""

from pathlib import Path

from ganeti.base.files import write_atomically
from ganeti.base.node_files import Lifetime, existing, node_files, unexplained
from ganeti.base.paths import Paths
from ganeti.bootstrap.destroy import forget_cluster
from ganeti.store.etcd.files import EtcdFiles


def filled(paths: Paths) -> None:
    """Make every file of the list, patterns with a number in their place."""
    for one in node_files(paths):
        path = one.path.with_name(one.path.name.replace("*", "1").replace("[._-]", "-"))
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.touch() if "." in path.name else path.mkdir()


def test_no_path_is_listed_twice(tmp_path: Path) -> None:
    listed = [one.path for one in node_files(Paths(tmp_path))]
    assert len(listed) == len(set(listed))


def test_every_path_of_the_data_directory_that_has_a_name_is_listed(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    named = {
        value
        for name in dir(Paths)
        if isinstance(value := getattr(paths, name), Path)
        and value.parent in (paths.data, paths.etc)
    }
    etcd = {path for path in vars(EtcdFiles(paths)).values() if isinstance(path, Path)}
    listed = {one.path for one in node_files(paths)}
    # The directory of the etcd server is listed as a whole.
    assert (named | etcd) - listed == {EtcdFiles(paths).data}


def test_leaving_a_cluster_leaves_only_what_has_another_lifetime(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    filled(paths)
    assert unexplained(paths) == []
    forget_cluster(paths)
    assert not existing(paths, Lifetime.CLUSTER)
    assert {path.name for path in paths.data.iterdir()} == {
        "left-cluster-1", "live-restores", "original", "tpm", "uefi",
    }  # fmt: skip


def test_files_of_a_writer_that_died_are_removed_with_their_names(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    unfinished = [".node.key.0123456789abcdef", ".ssconf.01234567", ".state.db.aside", "state.room"]
    for name in unfinished:
        (paths.data / name).write_text("secret")
    assert unexplained(paths) == []
    forget_cluster(paths)
    assert list(paths.data.iterdir()) == []


def test_a_file_that_is_not_listed_is_named(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    write_atomically_in(paths, "surprise")
    write_atomically_in(paths, "state.room.old")
    assert [path.name for path in unexplained(paths)] == ["state.room.old", "surprise"]


def write_atomically_in(paths: Paths, name: str) -> None:
    paths.data.mkdir(parents=True, exist_ok=True)
    write_atomically(paths.data / name, b"x")


def test_what_lies_in_a_listed_directory_is_named_once(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    EtcdFiles(paths).directory.mkdir(parents=True)
    EtcdFiles(paths).key.write_text("key")
    assert [*existing(paths, Lifetime.CLUSTER)] == [EtcdFiles(paths).directory]
