"""A node goes over from the original and back: files, daemons, and what is refused."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HostError, PrereqError
from ganeti.base.paths import Paths, hostname
from ganeti.bootstrap.take_node import Node, main
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.hypervisor.kvm.adoption import directory
from ganeti.model.objects import NodeUuid
from ganeti.store.interface import Identity
from ganeti.store.register import PromiseRequest, RegisterFile, join
from ganeti.store.restoring import register_restored
from tests.unit.upstream import sample

FILES = {
    "config.data": "{}", "ssconf_cluster_name": "c.example.com\n", "hmac.key": "k\n",
    "rapi/users": "u p write\n", "queue/serial": "7\n", "cluster-domain-secret": "s\n",
}  # fmt: skip


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(tmp_path)
    for name, text in FILES.items():
        path = found.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (found.data / "ssconf_master_node").write_text(f"{hostname()}\n")
    found.run.mkdir(parents=True)
    return found


@pytest.fixture
def luxid(paths: Paths) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is called like one of the original's daemons."""
    program = paths.root / "ganeti-luxid"
    program.write_text("#!/bin/sh\necho ready\nread line\n")
    program.chmod(0o755)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (paths.run / "ganeti-luxid.pid").write_text(f"{process.pid}\n")
        yield process
        process.kill()


def contents(place: Path) -> dict[str, str]:
    return {
        str(path.relative_to(place)): path.read_text()
        for path in place.rglob("*")
        if path.is_file()
    }


async def test_a_node_is_taken_over_and_given_back_as_it_was(
    paths: Paths, luxid: "subprocess.Popen[bytes]"
) -> None:
    paths.data.chmod(0o775)
    before = contents(paths.data)
    said = await Node(paths, is_dry=True).take()
    assert "ends ganeti-luxid" in said[0]
    assert (contents(paths.data), luxid.poll()) == (before, None)

    said = await Node(paths).take()
    assert "gnt-cluster import" in said[-1]
    assert not Path(f"/proc/{luxid.pid}").exists()
    assert contents(paths.upstream) == before
    assert paths.data.stat().st_mode & 0o777 == 0o750
    assert (paths.upstream).stat().st_mode & 0o777 == 0o700
    await Node(paths).take()  # again: nothing is left to do

    await Node(paths).give_back(b'{"new": 1}')
    assert contents(paths.data) == {**before, "config.data": '{"new": 1}'}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--config", "given"], "can be used only with --back"),
        (["--back", "--config", "given"], "this is not a config.data of Ganeti"),
        (["--back", "--config", "missing"], "No such file"),
    ],
)
def test_what_the_original_could_not_open_is_not_put_in_its_place(
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    why: str,
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(paths.root))
    monkeypatch.chdir(paths.root)
    (paths.root / "given").write_text('{"cut": ')
    before = contents(paths.data)
    assert main(words) == 1
    assert why in capsys.readouterr().err
    assert contents(paths.data) == before


async def test_the_configuration_of_another_cluster_is_not_put_in_its_place(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(paths.root))
    (paths.data / "config.data").write_bytes(sample.encoded(sample.document()))
    await Node(paths).take()
    before = contents(paths.data)
    other = sample.document()
    other["cluster"]["uuid"] = sample.GUEST
    given = paths.root / "given"
    given.write_bytes(sample.encoded(other))
    words = ["--back", f"--config={given}"]
    assert await asyncio.to_thread(main, words) == 1
    assert "belongs to another cluster" in capsys.readouterr().err
    assert contents(paths.data) == before
    given.write_bytes(sample.encoded(sample.document()))
    assert await asyncio.to_thread(main, [*words, "--dry-run"]) == 0


@pytest.mark.requirement("G28")
async def test_a_second_way_back_works_as_the_first(paths: Paths) -> None:
    before = contents(paths.data)
    for _ in range(3):
        await Node(paths).take()
        for name in (
            "state.room",
            "watcher.pause",
            "hmac.key",
            "spice.pem",
            "ssconf_new",
            "register",
        ):
            (paths.data / name).write_text("of this version")
        await Node(paths).give_back(None)
        assert contents(paths.data) == before


@pytest.mark.parametrize(("ours", "serial"), [(3, "7"), (2000, "2000"), (None, "7")])
async def test_upstream_jobs_continue_above_the_present_ids(
    paths: Paths, ours: int | None, serial: str
) -> None:
    await Node(paths).take()
    if ours is None:
        paths.register.write_text("damaged")
    else:
        register, identity = RegisterFile(paths.register), Identity(sample.CLUSTER, NodeUuid("n"))
        request = PromiseRequest(identity.cluster_uuid, 3, identity.node_uuid)
        assert register.decide(lambda old: join(old, request)).granted
        register_restored(register, identity, 4, ours, frozenset())
    await Node(paths).give_back(None)
    assert (paths.data / "queue/serial").read_text() == f"{serial}\n"


async def test_guests_keep_their_variables_and_removed_clusters_their_copies(paths: Paths) -> None:
    (paths.uefi_variables).mkdir()
    (paths.uefi_variables / "guest.fd").write_text("variables")
    copy = paths.data / "left-cluster-1"
    copy.mkdir()
    await Node(paths).take()
    assert (paths.uefi_variables / "guest.fd").exists()
    assert copy.is_dir()
    paths.etc.mkdir(parents=True, exist_ok=True)
    paths.file_storage_paths.write_text("/mine\n")
    lines = await Node(paths).give_back(None)
    assert (paths.uefi_variables / "guest.fd").exists()
    assert paths.file_storage_paths.read_text() == "/mine\n"
    (line,) = [line for line in lines if "hold keys of former clusters" in line]
    assert line.endswith(f"remove them: {copy}")


@pytest.mark.requirement("G28")
@pytest.mark.parametrize("renames", range(6))
async def test_killed_return_continues(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    before = contents(paths.data)
    await Node(paths).take()
    for name in ("hmac.key", "ssconf_cluster_name", "state.db"):
        (paths.data / name).write_text("of this version")
    left, rename = [renames], Path.rename

    def cut_short(path: Path, target: Path) -> Path:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", cut_short)
        with pytest.raises(KeyboardInterrupt):
            await Node(paths).give_back(None)
    await Node(paths).give_back(None)
    assert contents(paths.data) == before


async def test_what_is_in_the_way_is_named_before_anything_changes(paths: Paths) -> None:
    await Node(paths).take()
    (paths.data / "queue").mkdir()
    (paths.data / "queue" / "notes").write_text("an administrator's")
    paths.register.write_text("of this version")
    before = contents(paths.data)
    with pytest.raises(PrereqError, match="queue is in the way"):
        await Node(paths).give_back(None)
    assert contents(paths.data) == before


@pytest.mark.requirement("G28")
async def test_return_to_an_old_configuration_is_reported(paths: Paths) -> None:
    await Node(paths).take()
    assert "is as of the takeover" in (await Node(paths, is_dry=True).give_back(None))[-1]
    assert not any("takeover" in line for line in await Node(paths, is_dry=True).give_back(b"{}"))
    assert "is as of the takeover" in (await Node(paths).give_back(None))[0]


async def test_process_with_a_reused_id_is_not_stopped(
    paths: Paths, luxid: "subprocess.Popen[bytes]"
) -> None:
    (paths.run / "ganeti-luxid.pid").rename(paths.run / "ganeti-noded.pid")
    assert "no daemon" in (await Node(paths).take())[0]
    assert luxid.poll() is None


async def test_remaining_node_gets_instructions_to_join(paths: Paths) -> None:
    (paths.data / "ssconf_master_node").write_text("elsewhere.example.com\n")
    assert "ganeti-node-join" in (await Node(paths).take())[-1]
    assert not (paths.data / "rapi_users").exists()


async def test_where_there_is_no_original_nothing_is_done(tmp_path: Path) -> None:
    with pytest.raises(PrereqError, match="not in a cluster of upstream Ganeti"):
        await Node(Paths(tmp_path)).take()
    with pytest.raises(PrereqError, match="no files of upstream Ganeti"):
        await Node(Paths(tmp_path)).give_back(None)


async def test_member_of_a_present_cluster_is_not_taken_over(paths: Paths) -> None:
    paths.node_certificate.write_text("x")
    with pytest.raises(PrereqError, match="already"):
        await Node(paths).take()


async def test_a_guest_that_cannot_be_adopted_leaves_the_original_in_its_place(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory(paths) / "conf").mkdir(parents=True)
    (directory(paths) / "conf" / "web1.example.com.runtime").write_text("[]")
    monkeypatch.setattr("ganeti.hypervisor.kvm.adoption._words", lambda _pid: ["kvm"])
    (directory(paths) / "pid").mkdir()
    (directory(paths) / "pid" / "web1.example.com").write_text("4711")
    before = contents(paths.data)
    with pytest.raises(HostError, match="cannot be adopted"):
        await Node(paths).take()
    assert contents(paths.data) == before


async def test_pretended_guests_go_over_and_back(paths: Paths) -> None:
    document = sample.document()
    names = {one["name"]: uuid for uuid, one in document["instances"].items()}
    (paths.data / "config.data").write_text(json.dumps(document))
    paths.fake_hypervisor.mkdir()
    first, second = sorted(names)
    for name in (first, "unknown.example.com"):
        (paths.fake_hypervisor / name).write_text("0\n256\n2\n")
    said = "\n".join(await Node(paths).take())
    assert f"keeps running the guests {first}" in said
    assert "not known here, because this is not a master candidate: unknown.example.com" in said
    [guest] = await FakeHypervisor(paths).running()
    assert (guest.name, guest.uuid, guest.memory, guest.vcpus) == (first, names[first], 256, 2)
    spec = FakeHypervisor(paths).all_guests()[0].instance
    await FakeHypervisor(paths).start(replace(spec, name=second, uuid=names[second]), [])
    await FakeHypervisor(paths).stop(spec, 0)
    await Node(paths).give_back(None)
    assert contents(paths.fake_hypervisor) == {second: "0\n256\n2\n"}
