import stat
from pathlib import Path

import msgspec
import pytest

from ganeti import ssconf
from ganeti.base import certificates as ca
from ganeti.base import tls
from ganeti.base.errors import GanetiError, HostError, InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap import membership
from ganeti.bootstrap.destroy import forget_cluster, is_member
from ganeti.bootstrap.join_messages import Admission
from ganeti.bootstrap.membership import (
    allow_storage,
    check_admission,
    check_not_member,
    install,
    make_directories,
    make_storage_directories,
)
from ganeti.store.register import RegisterFile

NOW = 1_790_000_000.0
CLUSTER = "11111111-1111-4111-8111-111111111111"
MASTER = "22222222-2222-4222-8222-222222222222"
NODE = "33333333-3333-4333-8333-333333333333"
NAME = "node2.example"
KEY = ca.new_key()
AUTHORITY_KEY = ca.new_key()
AUTHORITY = ca.new_authority(AUTHORITY_KEY, "c.example", CLUSTER, NOW)


def certificate(name: str = NAME, key: bytes = KEY, authority_key: bytes = AUTHORITY_KEY) -> str:
    request = ca.signing_request(key, name)
    return ca.sign_node(
        AUTHORITY, authority_key, request, node_uuid=NODE, node_name=name, now=NOW
    ).decode()


ADMISSION = Admission(
    cluster_uuid=CLUSTER,
    cluster_name="c.example",
    node_uuid=NODE,
    certificate=certificate(),
    authority=AUTHORITY.decode(),
    epoch=4,
    master_uuid=MASTER,
    ssconf_position=17,
    ssconf={"cluster_name": "c.example", "file_storage_dir": "/srv/ganeti/file-storage"},
    file_storage_paths=["/srv/ganeti/file-storage"],
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    make_directories(made, [])
    return made


def test_a_node_that_was_admitted_has_everything_a_member_needs(paths: Paths) -> None:
    check_admission(ADMISSION, NAME, KEY)
    install(paths, ADMISSION, KEY)
    assert is_member(paths)
    assert stat.S_IMODE(paths.node_key.stat().st_mode) == 0o600
    tls.server_context(paths.node_certificate, paths.node_key, paths.authority_certificate)
    register = RegisterFile(paths.register).read()
    assert register is not None
    assert (register.cluster_uuid, *vars_of(register.promised)) == (CLUSTER, 4, MASTER)
    assert ssconf.current_position(paths) == 17
    assert "/srv/ganeti/file-storage\n" in paths.file_storage_paths.read_text()
    assert paths.below("/srv/ganeti/file-storage").is_dir()
    with pytest.raises(PrereqError, match="belongs to a cluster already"):
        check_not_member(paths, "do something")


def vars_of(promise: object) -> tuple[object, object]:
    return getattr(promise, "epoch", None), getattr(promise, "candidate", None)


@pytest.mark.parametrize(
    "changes",
    [
        {"certificate": "garbage"},
        {"certificate": ""},
        {"certificate": certificate(key=ca.new_key())},
        {"certificate": certificate(name="other.example")},
        {"certificate": certificate(authority_key=ca.new_key())},
        {"authority": "garbage"},
        {"node_uuid": CLUSTER},
        {"cluster_uuid": "x"},
        {"master_uuid": ""},
        {"epoch": 0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_admission_that_makes_no_member_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InputError):
        check_admission(msgspec.structs.replace(ADMISSION, **changes), NAME, KEY)


@pytest.mark.parametrize(
    "step", ["write_identity", "allow_storage", "make_storage_directories", "_join_register"]
)
@pytest.mark.parametrize("is_own_list", [False, True])
def test_a_failed_step_leaves_no_member_behind(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, step: str, is_own_list: bool
) -> None:
    if is_own_list:
        paths.file_storage_paths.write_text("/mine\n")
    act = getattr(membership, step)

    def failing(*args: object) -> None:
        act(*args)
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(membership, step, failing)
    with pytest.raises(HostError, match="cannot write somewhere: No space"):
        install(paths, ADMISSION, KEY)
    assert not is_member(paths)
    assert list(paths.data.iterdir()) == []
    assert paths.file_storage_paths.exists() == is_own_list
    assert not paths.below("/srv").exists()


def test_bad_ssconf_names_from_a_master_are_refused_and_leave_nothing(paths: Paths) -> None:
    bad = msgspec.structs.replace(ADMISSION, ssconf={"../../evil": "x"})
    with pytest.raises(GanetiError):
        install(paths, bad, KEY)
    assert not is_member(paths)


def test_the_administrators_list_of_storage_directories_stays(paths: Paths) -> None:
    paths.file_storage_paths.write_text("/mine\n")
    assert not allow_storage(paths, ["/srv/x"])
    assert paths.file_storage_paths.read_text() == "/mine\n"


def test_storage_directories_are_made_where_this_node_has_them(tmp_path: Path) -> None:
    paths, made = Paths(tmp_path / "root"), list[Path]()
    shared = tmp_path / "shared"
    make_storage_directories(paths, "/srv/files", str(shared), made)
    assert (tmp_path / "root/srv/files").is_dir()
    assert shared.is_dir()
    for directory in made:
        directory.rmdir()
    assert list(tmp_path.iterdir()) == []


def test_forgetting_a_cluster_may_be_repeated_and_keeps_disks_and_logs(paths: Paths) -> None:
    install(paths, ADMISSION, KEY)
    for path in (paths.authority_key, paths.state, paths.job_archive):
        path.write_bytes(b"x")
    paths.state.with_name("state.db-wal").write_bytes(b"x")
    paths.tasks.mkdir()
    disk = paths.below("/srv/disk")
    disk.parent.mkdir(exist_ok=True)
    disk.write_bytes(b"x")
    (paths.log / "node-daemon.log").write_text("x")
    for _ in range(2):
        forget_cluster(paths)
        assert not is_member(paths)
        assert list(paths.data.iterdir()) == []
        assert not paths.file_storage_paths.exists()
    assert disk.exists()
    assert (paths.log / "node-daemon.log").exists()
