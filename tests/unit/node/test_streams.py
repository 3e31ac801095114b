"""Carrying the data of disks: whole or not at all, by the right peer only, through real scripts and programs."""

import asyncio
import contextlib
import gzip
import hashlib
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import GanetiError, InputError
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.node.export_directory import ExportDirectory
from ganeti.protocols.qcow2 import CLUSTER as BLOCK
from ganeti.rpc.procedures.exports import (
    EXPORT_BEGIN,
    EXPORT_FINISH,
    EXPORT_INFO,
    EXPORT_LIST,
    EXPORT_REMOVE,
    ExportArgs,
    FinishExportArgs,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.streams import (
    SCRIPT_OUTPUT,
    STREAM_COMMIT,
    STREAM_COPY,
    STREAM_END,
    STREAM_RECEIVE,
    STREAM_SEND,
    STREAM_STATUS,
    STREAM_WITHIN,
    TRANSFER_KEY_REMOVE,
    CopyArgs,
    DiskEnd,
    DumpEnd,
    EndArgs,
    OutputArgs,
    StreamArgs,
    StreamResult,
    SumsEnd,
    TransferKeyArgs,
)
from tests.support.stream_nodes import (
    BY_SCRIPT,
    DUMP,
    KEYS,
    MIB,
    NAME,
    RAW,
    SIZE,
    SPEC,
    Node,
    carry,
    commit_point,
    exported,
    point_end,
    receive,
    send,
    stream_nodes,
    within,
)


@pytest.fixture
async def nodes(disk_path: Path) -> AsyncIterator[tuple[Node, Node]]:
    async with stream_nodes(disk_path) as found:
        yield found


@pytest.mark.requirement("S140", "S204", "S222")
async def test_a_disk_becomes_a_dump_and_its_digest_is_that_of_the_disk(
    nodes: tuple[Node, Node],
) -> None:
    data = nodes[0].fill(os.urandom(MIB))
    result = await exported(nodes)
    dump = nodes[1].paths.exports / f"{NAME}.new/d0"
    assert dump.read_bytes() == data
    assert result.sha256 == hashlib.sha256(data).hexdigest()
    assert result.data_bytes == len(data)
    assert dump.stat().st_blocks * 512 < 2 * MIB  # zeros are neither sent nor written


@pytest.mark.requirement("S131", "S132", "S134")
async def test_scripts_write_and_read_the_data_and_what_they_say_is_kept(
    nodes: tuple[Node, Node],
) -> None:
    source, target = nodes
    data = source.fill(b"installed system")
    target.fill(b"")
    await carry(nodes, {"disk": BY_SCRIPT}, {"disk": BY_SCRIPT})
    assert target.disk().read_bytes() == data
    said = [
        await node.call(SCRIPT_OUTPUT, OutputArgs(key=key))
        for node, key in ((source, "7/0/2"), (target, "7/0/2"))
    ]
    assert said[0].text == f"exporting 0 of {NAME}"
    assert said[1].text == "importing 0"  # what it says on standard output is for nobody
    more = await source.call(SCRIPT_OUTPUT, OutputArgs(key="7/0/2", offset=said[0].offset))
    assert (more.text, more.offset) == ("", said[0].offset)


@pytest.mark.requirement("S135")
@pytest.mark.parametrize(
    "tool",
    [
        "gzip",
        pytest.param("zstd", marks=pytest.mark.soak),
        pytest.param("lz4", marks=pytest.mark.soak),
    ],
)
async def test_a_compressed_dump_is_unpacked_by_an_import(
    nodes: tuple[Node, Node], tool: str
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    source, target = nodes
    data = source.fill(b"a" * MIB)
    result = await exported(nodes, pack=tool)
    assert result.sha256 == hashlib.sha256(data).hexdigest()
    dump = target.paths.exports / f"{NAME}.new/d0"
    if tool == "gzip":
        assert gzip.decompress(dump.read_bytes()) == data
    await target.call(EXPORT_FINISH, FinishExportArgs(export=NAME, config="[export]\n"))
    source.fill(b"something else")
    back = DumpEnd(export=NAME, file="d0")
    into = {"disk": RAW, "unpack": tool, "sha256": result.sha256}
    swapped = nodes[1], nodes[0]
    for node in nodes:
        for name in KEYS.values():
            await node.call(TRANSFER_KEY_REMOVE, TransferKeyArgs(instance_name=NAME, key_name=name))
    source.disk().unlink()
    source.disk().touch()
    os.truncate(source.disk(), SIZE * MIB)
    result = await carry(swapped, {"dump": back}, into)
    assert source.disk().read_bytes() == data


@pytest.mark.requirement("G12")
@pytest.mark.parametrize("deflates", [True, False])
async def test_disk_is_compressed_on_its_way_and_stays_sparse(
    nodes: tuple[Node, Node], *, deflates: bool
) -> None:
    source, target = nodes
    data = source.fill(b"a" * (MIB + 7))
    target.disk().write_bytes(b"")
    os.truncate(target.disk(), SIZE * MIB)
    ways = {"disk": RAW, "pack": "gzip-fast"}
    result = await carry(
        nodes, {**ways, "deflates": deflates}, {"disk": RAW, "unpack": "gzip-fast"}
    )
    assert target.disk().read_bytes() == data
    assert target.disk().stat().st_blocks * 512 <= 2 * MIB
    assert result.data_bytes == SIZE * MIB
    await target.idle()
    order = json.loads(next(source.paths.streams.glob("*-out/stream.order")).read_text())
    assert (order["compress"], order.get("level", 0)) == (
        ("none", 1) if deflates else ("gzip-fast", 0)
    )


OTHER_DISK = EndArgs(disk=DiskEnd(instance=SPEC, index=1, holds_data=True))


@pytest.mark.requirement("G11", "G12")
async def test_backup_in_a_directory_of_the_same_node_needs_no_connection(
    nodes: tuple[Node, Node],
) -> None:
    """One program writes the image; the next ones read its sums, and restore another disk from it."""
    node, data = nodes[0], nodes[0].fill(os.urandom(3 * MIB + 5))
    place = node.paths.below(f"/srv/ganeti/backup/{NAME}")
    place.mkdir(parents=True, mode=0o700)
    disk = EndArgs(disk=DiskEnd(instance=SPEC, index=0, changes=True))
    limit = 2 * SIZE * MIB
    saved = await node.call(STREAM_WITHIN, within(disk, point_end(), limit=limit))
    order = json.loads(next(node.paths.streams.glob("*-copy/stream.order")).read_text())
    assert not any(order.get(name) for name in ("address", "port", "certificate"))
    assert saved.data_bytes > 3 * MIB
    commit_point(node)
    node.disk(1).write_bytes(b"x" * SIZE * MIB)
    restored = await node.call(STREAM_WITHIN, within(point_end(), OTHER_DISK))
    assert restored.data_bytes == SIZE * MIB
    assert node.disk(1).read_bytes() == data
    size = SIZE * MIB // BLOCK * 32
    sums = within(point_end(sums=True), EndArgs(sums=SumsEnd()), size=size, limit=size)
    assert (await node.call(STREAM_WITHIN, sums)).data_bytes == size
    file_of_sums = node.streams.sums_file("the token")
    parts = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    assert file_of_sums.read_bytes() == b"".join(hashlib.sha256(one).digest() for one in parts)
    for receives in (False, True):
        args = StreamArgs(instance_name=NAME, token="the token", receives=receives)
        await node.call(STREAM_END, args)
    assert not file_of_sums.exists()
    assert not list(node.paths.streams.glob("*"))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"source": EndArgs()}, "exactly one of"),
        ({"target": EndArgs(disk=DiskEnd(instance=SPEC, index=7))}, "has no disk 7"),
        ({"target": EndArgs(sums=SumsEnd())}, "another form"),
        ({"target": EndArgs(disk=replace(BY_SCRIPT, index=1))}, "another form"),
        ({"source": EndArgs(disk=BY_SCRIPT), "target": EndArgs(disk=BY_SCRIPT)}, "another form"),
        ({"limit": SIZE * MIB - 1}, "more than the"),
        ({"source": point_end()}, "has no backups"),
    ],
)
async def test_ends_of_one_node_that_do_not_fit_are_refused(
    nodes: tuple[Node, Node], fields: dict[str, Any], text: str
) -> None:
    node = nodes[0]
    node.fill(os.urandom(SIZE * MIB - 3))
    args = replace(within(EndArgs(disk=RAW), OTHER_DISK), **fields)
    with pytest.raises((GanetiError, OSError), match=text):
        await node.call(STREAM_WITHIN, args)


@pytest.mark.requirement("G12")
@pytest.mark.parametrize("in_files", [True, False])
async def test_disk_is_copied_within_a_node_without_a_socket(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch, *, in_files: bool
) -> None:
    row = replace(DISK_TEMPLATES["file"], in_files=in_files)
    monkeypatch.setattr("ganeti.node.streams.DISK_TEMPLATES", {"file": row})
    node = nodes[0]
    data = node.fill(b"data of disk 0")
    node.disk(1).write_bytes(b"x" * SIZE * MIB)
    source, target = SPEC.disks[0], replace(SPEC.disks[1], wipe=False)
    args = CopyArgs(instance_name=NAME, token="the token", source=source, target=target)
    result = await node.call(STREAM_COPY, args)
    assert result.data_bytes == SIZE * MIB
    found = node.disk(1).read_bytes()
    if in_files:  # a new file reads as zeros, so none are written
        assert (found[:14], found[-3:]) == (data[:14], b"end")
        assert set(found[MIB:-MIB]) == {ord("x")}
    else:
        assert found == data
    order = json.loads(next(node.paths.streams.glob("*-copy/stream.order")).read_text())
    assert not order.get("address")
    assert not order.get("port")


@pytest.mark.requirement("F32")
async def test_receiver_learns_why_the_sender_stopped(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    source.script("export", "head -c 1000000 /dev/urandom; exit 3")
    with pytest.raises(GanetiError, match="exit status 3"):
        await carry(nodes, {"disk": BY_SCRIPT}, {"disk": BY_SCRIPT})
    await target.idle()
    status = StreamArgs(instance_name=NAME, token="the token", receives=True)
    found = await target.call(STREAM_STATUS, status)
    assert "the sender stopped: the script export ended with exit status 3" in found.error


@pytest.mark.requirement("A61")
async def test_damaged_data_is_refused_and_the_sender_is_notified(nodes: tuple[Node, Node]) -> None:
    nodes[0].fill(b"not what was exported")
    nodes[1].fill(b"")
    with pytest.raises(GanetiError, match="the dump is damaged"):
        await carry(nodes, {"disk": RAW}, {"disk": RAW, "sha256": "0" * 64})


@pytest.mark.requirement("A61", "A52")
@pytest.mark.parametrize("tool", ["none", "gzip"])
async def test_more_than_fits_is_refused(nodes: tuple[Node, Node], tool: str) -> None:
    nodes[0].fill(b"much")
    nodes[1].fill(b"")
    before = nodes[1].disk().read_bytes()
    into = {"disk": RAW, "limit": MIB, "unpack": tool}
    with pytest.raises(GanetiError, match="bytes that the disk allows"):
        await carry(nodes, {"disk": RAW, "pack": tool}, into)
    assert len(nodes[1].disk().read_bytes()) == len(before)


@pytest.mark.parametrize(
    ("script", "body", "text"),
    [
        ("export", "echo broken >&2; exit 3", "script export ended with exit status 3"),
        ("export", "echo some data; kill -9 $$", "script export was ended by signal 9"),
        ("import", "exit 4", "script import ended with exit status 4"),
        ("import", "cat >/dev/null; exit 5", "script import ended with exit status 5"),
    ],
)
async def test_a_script_that_fails_fails_the_transfer(
    nodes: tuple[Node, Node], script: str, body: str, text: str
) -> None:
    nodes[0].fill(os.urandom(MIB))
    nodes[1].fill(b"")
    for node in nodes:
        node.script(script, body)
    with pytest.raises(GanetiError, match=text):
        await carry(nodes, {"disk": BY_SCRIPT}, {"disk": BY_SCRIPT})


async def test_what_a_script_leaves_behind_is_ended_and_the_data_is_whole(
    nodes: tuple[Node, Node],
) -> None:
    data = nodes[0].fill(b"data")
    nodes[1].fill(b"")
    nodes[0].script("export", 'setsid sleep 600 & cat "$EXPORT_DEVICE"')
    await carry(nodes, {"disk": BY_SCRIPT}, {"disk": BY_SCRIPT})
    assert nodes[1].disk().read_bytes() == data
    await nodes[0].idle()  # nothing holds the task's lock any more
    log = next((nodes[0].paths.log / "os").iterdir()).read_text()
    assert "leftover processes" in log
    assert "sleep" in log


@pytest.mark.requirement("S204", "A43", "A60")
async def test_unexpected_caller_is_disconnected_and_the_expected_one_accepted(
    nodes: tuple[Node, Node], disk_path: Path
) -> None:
    source, target = nodes
    data = source.fill(b"data")
    await target.call(EXPORT_BEGIN, ExportArgs(export=NAME))
    certificates = await source.certificate("out"), await target.certificate("in")
    listening = await target.call(STREAM_RECEIVE, receive(certificates[0], dump=DUMP))
    with socket.create_connection(("127.0.0.1", listening.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            await asyncio.to_thread(stranger.recv, 100)
    await source.call(STREAM_SEND, send(certificates[1], listening.port, disk=RAW))
    assert (target.paths.exports / f"{NAME}.new/d0").read_bytes() == data


async def test_a_wrong_certificate_is_refused_by_both_ends(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    source.fill(b"data")
    await target.call(EXPORT_BEGIN, ExportArgs(export=NAME))
    await source.certificate("out")
    await target.certificate("in")
    foreign = source.keys.create("x509-99999999", NAME)
    listening = await target.call(STREAM_RECEIVE, receive(foreign, dump=DUMP))
    for end in ("x509-99999999", KEYS["out"]):
        peer = target.keys.create(KEYS["in"], NAME) if end == KEYS["out"] else foreign
        args = replace(send(peer, listening.port, disk=RAW), key_name=end)
        with pytest.raises(GanetiError):
            await source.call(STREAM_SEND, args)
        stale = StreamArgs(instance_name=NAME, token="the token", receives=False)
        await source.call(STREAM_END, stale)
    there = StreamArgs(instance_name=NAME, token="the token", receives=True)
    assert (await target.call(STREAM_STATUS, there)).running
    await target.call(STREAM_END, there)
    assert not (await target.call(STREAM_STATUS, there)).known
    assert target.tasks.running() == []


@pytest.mark.requirement("A43", "S216")
async def test_keys_have_plain_names_and_are_gone_once_removed(nodes: tuple[Node, Node]) -> None:
    node = nodes[0]
    await node.certificate("out")
    assert node.keys.names() == [KEYS["out"]]
    for name in ("../x509-00000001", "x509-", "x509-../../etc", "", "x509-ABCDEFGH"):
        with pytest.raises(InputError):
            await node.call(TRANSFER_KEY_REMOVE, TransferKeyArgs(instance_name=NAME, key_name=name))
    args = TransferKeyArgs(instance_name=NAME, key_name=KEYS["out"])
    await node.call(TRANSFER_KEY_REMOVE, args)
    await node.call(TRANSFER_KEY_REMOVE, args)
    assert node.keys.names() == []


# --- exports ---


async def finished(node: Node, name: str = NAME, config: str = "[export]\n") -> None:
    await node.call(EXPORT_BEGIN, ExportArgs(export=name))
    (node.paths.exports / f"{name}.new/d0").write_bytes(b"dump")
    await node.call(EXPORT_FINISH, FinishExportArgs(export=name, config=config))


async def test_an_export_appears_as_a_whole_and_replaces_an_earlier_one(
    nodes: tuple[Node, Node],
) -> None:
    node = nodes[0]
    assert (await node.call(EXPORT_LIST, Nothing())).names == []
    await finished(node)
    await node.call(EXPORT_BEGIN, ExportArgs(export=NAME))
    found = await node.call(EXPORT_INFO, ExportArgs(export=NAME))
    assert (found.config, found.files) == ("[export]\n", {"d0": 4})
    await node.call(EXPORT_FINISH, FinishExportArgs(export=NAME, config="[other]\n"))
    await node.call(EXPORT_FINISH, FinishExportArgs(export=NAME, config="[other]\n"))
    assert (await node.call(EXPORT_INFO, ExportArgs(export=NAME))).files == {}
    assert (await node.call(EXPORT_LIST, Nothing())).names == [NAME]
    await node.call(EXPORT_REMOVE, ExportArgs(export=NAME))
    await node.call(EXPORT_REMOVE, ExportArgs(export=NAME))
    assert list(node.paths.exports.iterdir()) == []


async def test_a_death_between_two_renames_keeps_the_earlier_export(
    nodes: tuple[Node, Node],
) -> None:
    node = nodes[0]
    await finished(node)
    place = node.paths.exports
    (place / NAME).rename(place / f"{NAME}.old")
    (place / f"{NAME}.new").mkdir()
    await node.call(EXPORT_REMOVE, ExportArgs(export=NAME, unfinished=True))
    assert [one.name for one in place.iterdir()] == [NAME]


@pytest.mark.requirement("F32")
def test_two_deaths_between_two_renames_keep_the_earlier_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports = ExportDirectory(tmp_path)
    exports.begin("web1")
    exports.finish("web1", "the earlier one")
    exports.begin("web1")
    (tmp_path / "web1").rename(tmp_path / "web1.old")  # a death

    def die(*_words: object, **_more: object) -> None:
        raise OSError("another")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", die)
        with pytest.raises(OSError, match="another"):
            exports.finish("web1", "the new one")
    exports.remove("web1", unfinished=True)
    assert exports.info("web1").config == "the earlier one"


@pytest.mark.requirement("A42")
async def test_no_name_leads_out_and_no_link_is_followed(
    nodes: tuple[Node, Node], disk_path: Path
) -> None:
    node, treasure = nodes[0], disk_path / "treasure"
    treasure.mkdir()
    (treasure / "file").write_text("gold")
    await finished(node)
    for name in ("..", "../treasure", "/etc", "", ".", "a/b", "UPPER", f"{NAME}.new"):
        with pytest.raises(GanetiError):
            await node.call(EXPORT_REMOVE, ExportArgs(export=name))
    (node.paths.exports / "linked").symlink_to(treasure)
    (node.paths.exports / NAME / "inner").symlink_to(treasure)
    (node.paths.exports / NAME / "dump").symlink_to(treasure / "file")
    assert (await node.call(EXPORT_LIST, Nothing())).names == [NAME]
    assert (await node.call(EXPORT_INFO, ExportArgs(export=NAME))).files == {"d0": 4}
    with pytest.raises(GanetiError, match="not a separate directory"):
        await node.call(EXPORT_INFO, ExportArgs(export="linked"))
    for file in ("dump", "inner", "../treasure/file", "nothing"):
        dump = DumpEnd(export=NAME, file=file)
        args = send(await node.certificate("in"), 1, dump=dump)
        with pytest.raises(GanetiError):
            await node.call(STREAM_SEND, args)
    for name in ("linked", NAME):
        await node.call(EXPORT_REMOVE, ExportArgs(export=name))
    assert list(node.paths.exports.iterdir()) == []
    assert (treasure / "file").read_text() == "gold"


# --- moves between clusters ---


@pytest.mark.requirement("G14")
async def test_held_sender_gets_its_answer_only_after_the_commit(
    nodes: tuple[Node, Node],
) -> None:
    source, target = nodes
    data = [source.fill(b"disk %d" % index, index) for index in range(2)]
    certificates = await source.certificate("out"), await target.certificate("in")
    sending = []
    for index in range(2):
        end, token = DiskEnd(instance=SPEC, index=index), f"token {index}"
        args = receive(certificates[0], disk=end, token=token, hold=True, wait_s=30)
        port = (await target.call(STREAM_RECEIVE, args)).port
        order = send(certificates[1], port, disk=end, token=token)
        sending.append(asyncio.create_task(source.call(STREAM_SEND, order)))
    ends = [
        StreamArgs(instance_name=NAME, token=f"token {index}", receives=True) for index in range(2)
    ]
    async with asyncio.timeout(40):
        while not all([(await target.call(STREAM_STATUS, end)).result for end in ends]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert [target.disk(index).read_bytes() for index in range(2)] == data
    assert not any(one.done() for one in sending)
    assert source.streams.open == {NAME: 2}
    await target.call(STREAM_COMMIT, ends[0])
    await target.call(STREAM_END, ends[1])
    first, second = await asyncio.gather(*sending, return_exceptions=True)
    assert isinstance(first, StreamResult)
    assert isinstance(second, GanetiError)
    assert source.streams.open == {}
    await target.call(STREAM_COMMIT, ends[0])  # again: it is done
    assert not (await target.call(STREAM_STATUS, ends[0])).known


async def test_ends_that_read_data_differently_do_not_begin(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    before = target.disk().read_bytes()
    source.fill(b"data")
    with pytest.raises(GanetiError, match="both need the same scripts"):
        await carry(nodes, {"disk": BY_SCRIPT}, {"disk": RAW})
    assert target.disk().read_bytes() == before
