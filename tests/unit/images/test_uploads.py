"""Files of uploads: what a directory of the REST server's user may contain, and what a node reads from it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import HostError
from ganeti.images import uploads
from ganeti.images.uploads import (
    LIFE_S,
    Upload,
    UploadDirectory,
    copy_in,
    forget,
    new_id,
    open_complete,
    write_piece,
)

A, B = "a" * 32, "b" * 32


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[UploadDirectory]:
    one = UploadDirectory.open(tmp_path / "srv/uploads")
    yield one
    one.close()


def place(tmp_path: Path) -> Path:
    return tmp_path / "srv/uploads"


def upload(ident: str = A) -> Upload:
    return Upload(id=ident, user="anna", begun=1.5, size=4, request={"image_name": "box"})


def content(path: Path, ident: str) -> bytes:
    descriptor = open_complete(path, ident)
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


def test_upload_becomes_readable_only_when_it_is_complete(
    directory: UploadDirectory, tmp_path: Path
) -> None:
    directory.begin(upload())
    with directory.writing(A) as descriptor:
        write_piece(descriptor, b"ab", 0)
    assert directory.length(A) == 2
    with pytest.raises(HostError, match=f"upload {A} does not exist"):
        open_complete(place(tmp_path), A)
    with directory.writing(A) as descriptor:
        write_piece(descriptor, b"cd", 2)
    directory.complete(A)
    assert content(place(tmp_path), A) == b"abcd"
    assert directory.uploads() == [upload()]
    with pytest.raises(FileNotFoundError), directory.writing(A):
        pass
    directory.remove(A)
    directory.remove(A)
    assert os.listdir(place(tmp_path)) == []  # noqa: PTH208 - names are enough


def test_failed_write_leaves_the_file_as_before_it(
    directory: UploadDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.begin(upload())
    real = os.pwrite

    def half(descriptor: int, data: memoryview, offset: int) -> int:
        if offset >= 3:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[:1], offset)

    with directory.writing(A) as descriptor:
        write_piece(descriptor, b"ab", 0)
        monkeypatch.setattr(os, "pwrite", half)
        with pytest.raises(OSError, match="No space"):
            write_piece(descriptor, b"cdef", 2)
    assert directory.length(A) == 2


@pytest.mark.requirement("A50")
def test_node_reads_no_link_pipe_directory_or_file_of_others(
    directory: UploadDirectory, tmp_path: Path
) -> None:
    where, secret = place(tmp_path), tmp_path / "secret"
    secret.write_text("secret")
    (where / A).symlink_to(secret)
    with pytest.raises(HostError, match="cannot be read"):
        open_complete(where, A)
    (where / A).unlink()
    os.link(secret, where / A)
    with pytest.raises(HostError, match="plain file with one name"):
        open_complete(where, A)
    (where / A).unlink()
    os.mkfifo(where / A)
    with pytest.raises(HostError, match="plain file"):
        open_complete(where, A)
    (where / A).unlink()
    (where / A).mkdir()
    with pytest.raises(HostError, match="plain file"):
        open_complete(where, A)
    (where / B).write_text("data")
    if os.geteuid() == 0:
        os.chown(where / B, 12345, 12345)
        with pytest.raises(HostError, match="belongs to user 12345"):
            open_complete(where, B)
    for name in ("../secret", "", ".", f"{B}.part", f"{B}/x", B.upper()):
        with pytest.raises(HostError, match="does not exist"):
            open_complete(where, name)


def test_directory_itself_may_not_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostError, match="unusable"):
        UploadDirectory.open(tmp_path / "link")
    with pytest.raises(HostError, match="cannot be read"):
        open_complete(tmp_path / "link", A)


def test_descriptions_that_are_no_descriptions_are_ignored(
    directory: UploadDirectory, tmp_path: Path
) -> None:
    where = place(tmp_path)
    directory.begin(upload())
    (where / f"{B}.json").write_text("{")
    (where / f"{'c' * 32}.json").symlink_to(where / f"{A}.json")
    shutil.copy(where / f"{A}.json", where / f"{'d' * 32}.json")
    (where / "README").write_text("of an administrator")
    assert directory.uploads() == [upload()]


def test_stale_uploads_are_removed_and_others_stay(
    directory: UploadDirectory, tmp_path: Path
) -> None:
    now = 2 * LIFE_S
    for ident, age in ((A, LIFE_S + 1), (B, LIFE_S - 1), ("c" * 32, LIFE_S + 1)):
        directory.begin(upload(ident))
        for path in place(tmp_path).glob(f"{ident}*"):
            os.utime(path, (now - age, now - age))
    (place(tmp_path) / "README").write_text("of an administrator")
    os.utime(place(tmp_path) / "README", (0, 0))
    assert directory.remove_stale(now, keep=lambda ident: ident.startswith("c")) == [A]
    assert {path.name[:1] for path in place(tmp_path).iterdir()} == {"b", "c", "R"}


def test_local_file_is_copied_completely_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, source = place(tmp_path), tmp_path / "disk.raw"
    source.write_bytes(b"data" * 1000)
    ident = copy_in(where, source)
    descriptor = open_complete(where, ident)
    assert os.fstat(descriptor).st_size == 4000
    os.close(descriptor)
    forget(where, ident)
    forget(where, ident)
    for bad in (tmp_path, tmp_path / "missing"):
        with pytest.raises(HostError):
            copy_in(where, bad)
    monkeypatch.setattr(UploadDirectory, "room", lambda _self: 3999)
    with pytest.raises(HostError, match="may fill only 3999 bytes"):
        copy_in(where, source)
    monkeypatch.undo()

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(uploads, "_write_at", full)
    with pytest.raises(HostError, match="the disk is full"):
        copy_in(where, source)
    assert list(where.iterdir()) == []


def test_names_of_uploads_cannot_be_guessed() -> None:
    assert len({new_id() for _ in range(100)}) == 100
