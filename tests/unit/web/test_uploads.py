"""Uploads of images by REST: they continue where they stopped, and no client exceeds its bounds."""

import asyncio
import dataclasses
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.clock import SystemClock
from ganeti.base.errors import HostError
from ganeti.images import uploads as files
from ganeti.images.uploads import LIFE_S, UploadDirectory
from ganeti.model.names import JobStatus
from ganeti.model.objects import Image, ImageDisk, ImageUuid
from ganeti.model.opcodes.image import OpImageImport
from ganeti.web import bodies, uploads
from ganeti.web.uploads import Uploads
from tests.support.patience import patience
from tests.support.rest import (
    ADMIN,
    GUEST,
    OPERATOR,
    READER,
    TENANT,
    Answer,
    RestRig,
    request,
    rest_rig,
)
from tests.unit.query.cluster import job

UPLOADS = "/2/image-uploads"
DATA = os.urandom(1000)
DIGEST = hashlib.sha256(DATA).hexdigest()
STREAM = {"Content-Type": "application/octet-stream"}


async def begin(rig: RestRig, user: str = ADMIN, **fields: Any) -> str:
    """Begin an upload; return its path."""
    body = {"name": "box", "size": len(DATA), "digest": DIGEST, "source_format": "raw", **fields}
    answer = await rig.ask("POST", UPLOADS, body, user=user)
    assert answer.status == 200, answer.explain
    return f"{UPLOADS}/{answer.json['id']}"


async def put(
    rig: RestRig, path: str, first: int, end: int, *, user: str = ADMIN, **headers: str
) -> Answer:
    span = {"Content-Range": f"bytes {first}-{end - 1}/{len(DATA)}"}
    return await rig.ask(
        "PUT", path, data=DATA[first:end], user=user, headers={**STREAM, **span, **headers}
    )


def stored(rig: RestRig) -> dict[str, int]:
    where = rig.audit.parent / "uploads"
    return {path.name[32:]: path.stat().st_size for path in sorted(where.iterdir())}


def submitted(rig: RestRig) -> OpImageImport:
    """The only job's opcode."""
    [[op]] = rig.master.queue.submitted
    assert isinstance(op, OpImageImport)
    return op


async def test_upload_continues_and_its_last_byte_submits_the_import(rig: RestRig) -> None:
    path = await begin(rig, description="A box", disk_size=2048)
    answer = await put(rig, path, 0, 300)
    assert answer.status == 200, answer
    assert answer.json["offset"] == 300
    assert (await put(rig, path, 300, 301)).json["offset"] == 301
    shown = (await rig.ask("GET", path)).json
    assert (shown["offset"], shown["state"], shown["job"]) == (301, "receiving", None)
    assert (await rig.ask("GET", UPLOADS)).json == [shown]
    assert rig.master.queue.submitted == []
    last = (await put(rig, path, 301, 1000)).json
    assert (last["offset"], last["state"], last["job"]) == (1000, "complete", 1)
    op = submitted(rig)
    ident = path.rpartition("/")[2]
    assert (op.image_name, op.source, op.source_format, op.digest, op.description, op.disk_size) == (
        "box", f"upload:{ident}", "raw", DIGEST, "A box", 2048,
    )  # fmt: skip
    assert op.node == "node1.example.com"
    descriptor = files.open_complete(rig.audit.parent / "uploads", ident)
    assert os.read(descriptor, 2000) == DATA
    os.close(descriptor)


async def test_lost_answer_to_the_last_byte_is_asked_for_again(rig: RestRig) -> None:
    path = await begin(rig)
    first = await put(rig, path, 0, 1000)
    again = await rig.ask("PUT", path, headers={"Content-Range": "bytes */1000"})
    assert again.json == first.json
    assert len(rig.master.queue.submitted) == 1
    assert (await put(rig, path, 0, 1000)).json["job"] == 1


async def test_import_is_submitted_later_if_the_queue_was_drained(rig: RestRig) -> None:
    path = await begin(rig)
    rig.master.queue.is_drained = True
    assert (await put(rig, path, 0, 1000)).status == 503
    rig.master.queue.is_drained = False
    again = await rig.ask("PUT", path, headers={"Content-Range": "bytes */1000"})
    assert again.json["job"] == 1


async def test_without_a_digest_the_job_gets_that_of_the_content(rig: RestRig) -> None:
    path = await begin(rig, digest="")
    assert (await put(rig, path, 0, 1000)).json["digest"] == DIGEST
    op = submitted(rig)
    assert op.digest == DIGEST


async def test_restarted_server_continues_an_upload(rig: RestRig) -> None:
    path = await begin(rig, digest=hashlib.sha512(DATA).hexdigest())
    await put(rig, path, 0, 400)
    directory = UploadDirectory.open(rig.audit.parent / "uploads")
    rig.services.uploads = Uploads(directory, rig.services.master, SystemClock())
    assert (await put(rig, path, 400, 1000)).json["job"] == 1
    rig.services.uploads = Uploads(directory, rig.services.master, SystemClock())
    assert (await rig.ask("GET", path)).json["state"] == "complete"
    directory.close()


@pytest.mark.parametrize("first", [0, 299, 301, 999])
async def test_wrong_offset_gets_the_right_one_and_writes_nothing(rig: RestRig, first: int) -> None:
    path = await begin(rig)
    await put(rig, path, 0, 300)
    answer = await put(rig, path, first, 1000)
    assert (answer.status, answer.headers["upload-offset"]) == (409, "300")
    assert "next byte of the upload is 300" in answer.explain
    assert stored(rig)[".part"] == 300
    assert (await put(rig, path, 300, 1000)).json["job"] == 1


@pytest.mark.requirement("A9")
@pytest.mark.parametrize(
    "text",
    [
        "", "bytes", "bytes 0-999/*", "bytes 0-999/1001", "bytes 5-4/1000", "bytes 0-1000/1000", "bytes -5/1000",
        "bytes 0-9,20-29/1000", f"bytes 0-{10**17}/1000", f"bytes 0-999/{10**30}", "bytes 0x0-10/1000",
        "bytes 0-99/1000", "bytes */1000", "items 0-999/1000", "bytes ٠-999/1000",
    ],
)  # fmt: skip
async def test_wrong_range_is_refused(rig: RestRig, text: str) -> None:
    path = await begin(rig)
    headers = {**STREAM, "Content-Range": text.encode().decode("latin-1")}
    answer = await rig.ask("PUT", path, data=DATA, headers=headers)
    assert answer.status == 400
    assert stored(rig)[".part"] == 0


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "../box"}, "is not a name"),
        ({"name": ""}, "is not a name"),
        ({"name": None}, "image_name"),
        ({"size": 0}, "size"),
        ({"size": True}, "size"),
        ({"size": 1.5}, "size"),
        ({"size": 2**60}, "size"),
        ({"digest": "00"}, "64"),
        ({"digest": 5}, "digest"),
        ({"source_format": "ovf"}, "source_format"),
        ({"source_format": ["raw"]}, "source_format"),
        ({"source": "/etc/shadow"}, "unknown field 'source'"),
        ({"node": "node2"}, "unknown field 'node'"),
        ({"disk_size": "x"}, "disk_size"),
    ],
)
async def test_wrong_declarations_are_refused(
    rig: RestRig, fields: dict[str, Any], text: str
) -> None:
    answer = await rig.ask("POST", UPLOADS, {"name": "box", "size": 1000, **fields})
    assert answer.status == 400
    assert text in answer.explain
    assert stored(rig) == {}


async def test_wrong_digest_removes_the_upload_and_submits_nothing(rig: RestRig) -> None:
    path = await begin(rig, digest="0" * 64)
    answer = await put(rig, path, 0, 1000)
    assert answer.status == 400
    assert DIGEST in answer.explain
    assert (await rig.ask("GET", path)).status == 404
    assert (stored(rig), rig.master.queue.submitted) == ({}, [])


async def test_only_users_who_may_import_upload_and_each_sees_the_own_ones(rig: RestRig) -> None:
    rig.users.write_text(
        rig.users.read_text() + "other secret write\nimporter secret read,+image_import\n"
    )
    path = await begin(rig)
    for user in (READER, OPERATOR, GUEST, TENANT):
        body = {"name": "crate", "size": 5}
        assert (await rig.ask("POST", UPLOADS, body, user=user)).status == 403
        assert (await put(rig, path, 0, 10, user=user)).status == 403
        assert (await rig.ask("DELETE", path, user=user)).status == 403
        assert (await rig.ask("GET", UPLOADS, user=user)).status == 403
    assert (await rig.ask("GET", UPLOADS, user="other")).json == []
    for method in ("GET", "DELETE"):
        assert (await rig.ask(method, path, user="other")).status == 404
    assert (await put(rig, path, 0, 10, user="other")).status == 404
    mine = await begin(rig, user="importer", name="crate")
    assert (await put(rig, mine, 0, 10, user="importer")).json["offset"] == 10


async def test_counts_and_room_are_bounded(rig: RestRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UploadDirectory, "room", lambda _self: 2500)
    paths = [await begin(rig), await begin(rig)]
    await put(rig, paths[0], 0, 400)
    answer = await rig.ask("POST", UPLOADS, {"name": "box", "size": 1000})
    assert (answer.status, "room for 900" in answer.explain) == (507, True)
    monkeypatch.setattr(UploadDirectory, "room", lambda _self: 2**40)
    paths += [await begin(rig), await begin(rig)]
    answer = await rig.ask("POST", UPLOADS, {"name": "box", "size": 1})
    assert (answer.status, "4 uploads" in answer.explain) == (429, True)
    monkeypatch.setattr(uploads, "UPLOADS_LIMIT", 4)
    rig.users.write_text(rig.users.read_text() + "other secret write\n")
    assert (await rig.ask("POST", UPLOADS, {"name": "box", "size": 1}, user="other")).status == 503
    assert (await rig.ask("DELETE", paths[0])).status == 200
    await begin(rig)


async def test_full_disk_keeps_the_offset(rig: RestRig, monkeypatch: pytest.MonkeyPatch) -> None:
    path = await begin(rig)
    await put(rig, path, 0, 100)
    real = files._write_at

    def full(descriptor: int, data: bytes, offset: int) -> None:
        real(descriptor, data[:5], offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_write_at", full)
    assert (await put(rig, path, 100, 500)).status == 507
    monkeypatch.undo()
    assert (await rig.ask("GET", path)).json["offset"] == 100
    assert stored(rig)[".part"] == 100
    assert (await put(rig, path, 100, 1000)).json["job"] == 1


async def test_second_client_waits_for_its_turn(rig: RestRig) -> None:
    path = await begin(rig)
    headers = {**STREAM, "Content-Range": "bytes 0-999/1000", "Content-Length": "1000"}
    reader, writer = await rig.connect()
    writer.write(request("PUT", path, b"", ADMIN, headers) + DATA[:300])
    while not any(  # noqa: ASYNC110 - it comes over the network
        one.is_busy for one in (rig.services.uploads._active or {}).values()
    ):
        await asyncio.sleep(0.01)
    answer = await put(rig, path, 0, 1000)
    assert (answer.status, "another request" in answer.explain) == (409, True)
    assert (await rig.ask("DELETE", path)).status == 409
    assert (await rig.ask("GET", UPLOADS)).status == 200
    writer.write(DATA[300:])
    async with asyncio.timeout(20):
        assert b"200 OK" in await reader.readuntil(b"\r\n")
    assert len(rig.master.queue.submitted) == 1


async def test_client_that_hangs_up_continues_from_what_was_stored(
    rig: RestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "PIECE_BYTES", 100)
    path = await begin(rig)
    headers = {**STREAM, "Content-Range": "bytes 0-999/1000", "Content-Length": "1000"}
    _reader, writer = await rig.connect()
    writer.write(request("PUT", path, b"", ADMIN, headers) + DATA[:300])
    async with asyncio.timeout(20 * patience()):
        while stored(rig)[".part"] != 300:  # noqa: ASYNC110 - it comes over the network
            await asyncio.sleep(0.01)
    writer.transport.abort()
    async with asyncio.timeout(20 * patience()):
        while (answer := await put(rig, path, 300, 1000)).status == 409:  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.01)
    assert answer.json["job"] == 1


async def test_slow_client_ends_and_keeps_what_it_sent(
    rig: RestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "GRACE_S", 0.2)
    path = await begin(rig)
    headers = {**STREAM, "Content-Range": "bytes 0-999/1000", "Content-Length": "1000"}
    data = await rig.raw(request("PUT", path, b"", ADMIN, headers) + DATA[:300])
    assert b"408" in data.split(b"\r\n")[0]
    assert (await rig.ask("GET", path)).json["offset"] == 300


async def test_chunked_body_may_not_exceed_its_range(rig: RestRig) -> None:
    path = await begin(rig)
    headers = {**STREAM, "Content-Range": "bytes 0-9/1000", "Transfer-Encoding": "chunked"}
    body = b"b\r\n" + DATA[:11] + b"\r\n0\r\n\r\n"
    data = await rig.raw(
        request("PUT", path, b"", ADMIN, {**headers, "Connection": "close"}) + body
    )
    assert b"400" in data.split(b"\r\n")[0]
    assert stored(rig)[".part"] == 0


async def test_client_that_asks_first_sends_no_refused_body(rig: RestRig) -> None:
    path = await begin(rig)
    headers = {
        **STREAM, "Content-Range": "bytes 5-999/1000", "Content-Length": "995", "Expect": "100-continue",
        "Connection": "close",
    }  # fmt: skip
    reader, writer = await rig.connect()
    begun = time.monotonic()
    writer.write(request("PUT", path, b"", ADMIN, headers))
    assert (await reader.readline()).startswith(b"HTTP/1.1 409")
    assert time.monotonic() - begun < bodies.PAUSE_S
    good = {**headers, "Content-Range": "bytes 0-999/1000", "Content-Length": "1000"}
    reader, writer = await rig.connect()
    writer.write(request("PUT", path, b"", ADMIN, good))
    async with asyncio.timeout(20):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(DATA)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_name_of_an_existing_image_is_refused_early(rig: RestRig) -> None:
    shown = rig.master.config.snapshot
    box = Image(uuid=ImageUuid("u-1"), name="box", disks=(ImageDisk(size=1),), nodes=())
    rig.master.config.snapshot = dataclasses.replace(
        shown, tables={**shown.tables, Image: {box.uuid: box}}, index=type(shown.index)()
    )
    answer = await rig.ask("POST", UPLOADS, {"name": "box", "size": 5})
    assert (answer.status, "exists already" in answer.explain) == (409, True)


async def test_stale_and_imported_uploads_are_removed(rig: RestRig) -> None:
    stale, done, failed = [await begin(rig, name=name) for name in ("old", "done", "failed")]
    for path in (done, failed):
        await put(rig, path, 0, 1000)
    where = rig.audit.parent / "uploads"
    for file in where.glob(f"{stale.rpartition('/')[2]}*"):
        os.utime(file, (time.time() - LIFE_S - 60,) * 2)
    rig.master.queue.live = [job(1, JobStatus.SUCCESS), job(2, JobStatus.ERROR)]
    await rig.services.uploads.look()
    assert [one["name"] for one in (await rig.ask("GET", UPLOADS)).json] == ["failed"]
    assert (await rig.ask("PUT", stale, headers={"Content-Range": "bytes */1000"})).status == 404
    assert len(list(where.iterdir())) == 2


async def test_only_the_end_of_an_upload_is_in_the_audit_log(rig: RestRig) -> None:
    path = await begin(rig)
    await put(rig, path, 0, 10)
    await put(rig, path, 10, 1000)
    lines = rig.audit.read_text().splitlines()
    assert [('"POST"' in one, '"jobs":[1]' in one.replace(" ", "")) for one in lines] == [
        (True, False), (False, True),
    ]  # fmt: skip


@pytest.fixture
async def without(tmp_path: Path) -> AsyncIterator[RestRig]:
    async with rest_rig(tmp_path) as one:
        reason = HostError("the directory of uploads is unusable")
        one.services.uploads = Uploads(reason, one.services.master, SystemClock())
        yield one


async def test_server_without_a_directory_serves_all_the_rest(without: RestRig) -> None:
    answer = await without.ask("POST", UPLOADS, {"name": "box", "size": 5})
    assert (answer.status, answer.explain) == (503, "the directory of uploads is unusable")
    await without.services.uploads.look()
    assert (await without.ask("GET", "/2/images")).status == 200
