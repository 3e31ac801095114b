"""Which files the master may write on a node, and how they are written."""

import os
from pathlib import Path

import pytest

from ganeti.base.errors import HostError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.users import Account, ServiceUsers
from ganeti.hypervisor.abilities import Options
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.node.files import checksums_of, handlers, shared_files, write_file
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.files import NodeFile, SharedFilesArgs

DAEMON_UIDS = {"masterd": 61801, "rapi": 61802, "confd": 61803}


class Needy(FakeHypervisor):
    """A hypervisor that needs a file of the host."""

    @property
    def options(self) -> Options:
        return Options(shared_files=("/etc/ganeti/needed.conf", "/var/lib/ganeti/needed.pem"))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(tmp_path)
    for directory in (found.etc, found.data):
        directory.mkdir(parents=True, mode=0o755)
    return found


def put(paths: Paths, path: str, content: str = "x", mode: int = 0o644) -> None:
    paths.below(path).write_text(content)
    paths.below(path).chmod(mode)


def new(path: str, content: bytes = b"new", mode: int = 0o640) -> NodeFile:
    return NodeFile(path=path, content=content, mode=mode)


@pytest.mark.requirement("S66", "S67", "S68", "S71")
async def test_the_master_shares_the_list_what_it_names_and_what_hypervisors_need(
    paths: Paths,
) -> None:
    put(paths, "/etc/ganeti/distributed-files", "/etc/own.conf # ours\n\n# nothing\n/etc/gone\n")
    put(paths, "/etc/own.conf", "own", 0o4777)
    put(paths, "/etc/ganeti/needed.conf", "needed")
    put(paths, "/etc/ganeti/pw", "password", 0o600)
    put(paths, "/var/lib/ganeti/rapi.pem", "key", 0o600)
    answer = handlers(paths, {"fake": Needy(paths)})["shared_files"]
    found = await answer(
        SharedFilesArgs(hypervisors=["fake", "kvm"], named=["/etc/ganeti/pw", "/etc/none"]), Call()
    )
    assert [(one.path, one.mode, one.candidates_only) for one in found.files] == [
        ("/etc/ganeti/distributed-files", 0o644, False),
        ("/etc/own.conf", 0o755, False),
        ("/etc/ganeti/needed.conf", 0o644, False),
        ("/etc/ganeti/pw", 0o600, False),
        ("/var/lib/ganeti/rapi.pem", 0o600, True),
    ]
    assert found.files[1].content == b"own"
    [problem] = found.problems
    assert problem.startswith("/etc/gone is listed in /etc/ganeti/distributed-files and does not")


def test_a_master_without_files_has_none_to_share(paths: Paths) -> None:
    found = shared_files(paths, ["/etc/ganeti/needed.conf"])
    assert (found.files, found.problems) == ([], [])


def test_unshareable_files_are_reported(paths: Paths) -> None:
    put(paths, "/etc/real")
    paths.below("/etc/link").symlink_to("real")
    paths.below("/etc/dir").mkdir()
    lines = ["/etc/link", "/etc/dir", "etc/real", "/etc/../etc/real", "/etc//real"]
    put(paths, "/etc/ganeti/distributed-files", "\n".join(lines))
    found = shared_files(paths, [])
    assert [one.path for one in found.files] == ["/etc/ganeti/distributed-files"]
    assert len(found.problems) == len(lines)


@pytest.mark.requirement("S67", "S68")
@pytest.mark.parametrize(
    "path",
    [
        "/etc/ganeti/distributed-files",
        "/var/lib/ganeti/rapi.pem",
        "/var/lib/ganeti/rapi_users",
        "/var/lib/ganeti/rapi_openid.yaml",
        "/etc/ganeti/needed.conf",
        "/var/lib/ganeti/needed.pem",
        "/etc/own.conf",
        "/etc/xen/any.conf",
    ],
)
async def test_an_allowed_file_is_written_as_a_whole(paths: Paths, path: str) -> None:
    put(paths, "/etc/ganeti/allowed-uploads", "/etc/own.conf\n/etc/xen/\n")
    paths.below("/etc/xen").mkdir(mode=0o755)
    put(paths, path, "old", 0o600)
    write = handlers(paths, {"fake": Needy(paths)})["write_file"]
    await write(new(path, mode=0o4642), Call())
    there = paths.below(path)
    assert there.read_bytes() == b"new"
    assert there.stat().st_mode & 0o7777 == 0o640
    assert not [one for one in there.parent.iterdir() if one.name.startswith(f".{there.name}")]


@pytest.mark.requirement("A28", "F37")
@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/etc/own.conf.d",
        "/etc/xen/sub/x",
        "/etc/xen/",
        "/etc/xen/../passwd",
        "/etc/xen//x",
        "etc/own.conf",
        "/etc/xen/a\nb",
        "/etc/ganeti/allowed-uploads",
        "/etc/ganeti/file-storage-paths",
        "/var/lib/ganeti/state.db",
        "/var/lib/ganeti/ca.key",
        "/var/run/ganeti/x",
    ],
)
def test_what_is_not_allowed_is_refused(paths: Paths, path: str) -> None:
    allowed = [
        "/etc/own.conf", "/etc/xen/", "/etc/ganeti/allowed-uploads", "/var/lib/ganeti/state.db",
        "/var/lib/ganeti/", "/etc/ganeti/file-storage-paths", "/var/run/ganeti/",
    ]  # fmt: skip
    put(paths, "/etc/ganeti/allowed-uploads", "\n".join(allowed))
    paths.below("/etc/xen").mkdir()
    before = sorted(str(one) for one in paths.root.rglob("*"))
    with pytest.raises(PrereqError):
        write_file(paths, new(path), [])
    assert sorted(str(one) for one in paths.root.rglob("*")) == before


@pytest.mark.requirement("A28", "F37")
async def test_no_link_is_followed(paths: Paths, tmp_path: Path) -> None:
    put(paths, "/etc/ganeti/allowed-uploads", "/etc/xen/a\n/etc/b\n")
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    victim = outside / "a"
    victim.write_text("precious")
    paths.below("/etc/xen").symlink_to(outside)
    paths.below("/etc/b").symlink_to(victim)
    write = handlers(paths, {})["write_file"]
    with pytest.raises(HostError, match="cannot write /etc/xen/a"):
        await write(new("/etc/xen/a"), Call())
    with pytest.raises(PrereqError, match="not a regular file"):
        await write(new("/etc/b"), Call())
    assert victim.read_text() == "precious"
    assert [one.name for one in outside.iterdir()] == ["a"]


@pytest.mark.requirement("S68", "S71", "S242")
def test_file_in_the_shared_directory_needs_no_list_on_the_node(paths: Paths) -> None:
    write_file(paths, new("/etc/ganeti/shared/web1.password", mode=0o600), [])
    there = paths.shared_files / "web1.password"
    assert (there.read_bytes(), there.stat().st_mode & 0o777) == (b"new", 0o600)
    for path in ("/etc/ganeti/shared", "/etc/ganeti/shared/sub/x", "/etc/ganeti/shared/../x"):
        with pytest.raises(PrereqError):
            write_file(paths, new(path), [])


@pytest.mark.requirement("A28", "A41")
def test_link_in_place_of_the_shared_directory_is_not_followed(paths: Paths) -> None:
    paths.below("/etc/cron.d").mkdir()
    paths.shared_files.symlink_to(paths.below("/etc/cron.d"))
    with pytest.raises((PrereqError, OSError)):
        write_file(paths, new("/etc/ganeti/shared/job"), [])
    assert list(paths.below("/etc/cron.d").iterdir()) == []


@pytest.mark.requirement("A28")
def test_a_directory_that_others_can_write_is_not_used(paths: Paths) -> None:
    put(paths, "/etc/ganeti/allowed-uploads", "/etc/open/a\n")
    paths.below("/etc/open").mkdir()
    paths.below("/etc/open").chmod(0o777)
    with pytest.raises(PrereqError, match="other users can write"):
        write_file(paths, new("/etc/open/a"), [])


def test_a_huge_file_is_refused(paths: Paths) -> None:
    with pytest.raises(PrereqError, match="more than"):
        write_file(paths, new("/etc/ganeti/distributed-files", b"x" * (4 * 1024 * 1024 + 1)), [])


def test_checksums_name_what_is_here(paths: Paths) -> None:
    put(paths, "/etc/own.conf", "abc")
    assert checksums_of(paths, ["/etc/own.conf", "/etc/gone", "nonsense"]) == {
        "/etc/own.conf": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.requirement("S224", "F40")
def test_secrets_of_candidates_are_for_the_daemons_that_need_them(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = {role: Account(role, uid, 61810, (61810,)) for role, uid in DAEMON_UIDS.items()}
    users = ServiceUsers(accounts, daemons=61810, admin=61811)
    monkeypatch.setattr(ServiceUsers, "of_node", lambda _paths: users)
    os.chown(paths.data, DAEMON_UIDS["masterd"], 61810)
    for path, owner in (
        (paths.cluster_domain_secret, "masterd"),
        (paths.rapi_users, "rapi"),
        (paths.rapi_certificate, None),
    ):
        write_file(paths, new(f"/{path.relative_to(paths.root)}", mode=0o644), [])
        status = path.stat()
        assert status.st_uid == (DAEMON_UIDS[owner] if owner else 0)
        assert (status.st_gid, status.st_mode & 0o777) == (61810, 0o600)
    os.chown(paths.data, DAEMON_UIDS["confd"], 61810)
    with pytest.raises(PrereqError, match="other users can write"):
        write_file(paths, new("/var/lib/ganeti/rapi_users"), [])
