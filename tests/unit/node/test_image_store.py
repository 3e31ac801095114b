"""The image store of a node: raw disks in whole MiB with their digests, and files that are made of them."""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import IO

import pytest

from ganeti.base.errors import GanetiError, HostError, InputError
from ganeti.base.paths import Paths
from ganeti.images.convert import show_nothing
from ganeti.images.download import fetch
from ganeti.images.package import opened_package
from ganeti.images.uploads import copy_in
from ganeti.node import image_store
from ganeti.node.export_directory import ExportDirectories
from ganeti.node.image_store import store, write
from ganeti.node.images import opened_image, opened_source
from ganeti.protocols.export_description import ExportDescription, parse_description

MIB = 1 << 20
NAME = "image-5c3f2b1e-0000-4000-8000-000000000001"
DATA = os.urandom(70_000) + bytes(3 * MIB) + b"end"
SHA256 = hashlib.sha256(DATA).hexdigest()
PADDED = DATA.ljust(4 * MIB, b"\0")
URL = "https://images.example.com/disk"


class Bench:
    """A node with a source, and an unfinished image."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(root)
        self.sources = self.paths.below("/srv/ganeti/images")
        self.sources.mkdir(parents=True, mode=0o755)
        (self.sources / "disk").write_bytes(DATA)
        self.images = ExportDirectories.of_node(self.paths).images
        self.images.begin(NAME)
        self.new = self.images.directory(NAME, unfinished=True)

    def store(
        self, source: str = "/srv/ganeti/images/disk", form: str = "raw", digest: str = ""
    ) -> None:
        store(self.paths, self.new, source, form, digest, report=show_nothing)

    def finished(self) -> ExportDescription:
        config = self.images.info(NAME, unfinished=True).config
        self.images.finish(NAME, config)
        return parse_description(config)

    def write(self, path: str, form: str) -> Path:
        directory = self.images.directory(NAME, unfinished=False)
        write(self.paths, directory, path, form, "box", report=show_nothing)
        return self.paths.below(path)


@pytest.fixture
def bench(disk_path: Path) -> Bench:
    return Bench(disk_path)


def test_image_has_whole_mebibytes_and_their_digest(bench: Bench) -> None:
    bench.store(digest=SHA256.upper())
    (disk,) = bench.finished().disks
    assert (disk.size, disk.sha256) == (4, hashlib.sha256(PADDED).hexdigest())
    dump = bench.images.file(NAME, disk.dump)
    assert dump.read_bytes() == PADDED
    assert dump.stat().st_blocks * 512 < MIB  # a hole stays a hole
    assert dump.stat().st_mode & 0o777 == 0o600
    assert sorted(one.name for one in dump.parent.iterdir()) == ["config.ini", "disk0.raw"]


@pytest.mark.sampled(0)
def test_qcow2_is_converted_and_written_again(bench: Bench) -> None:
    words = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2"]
    subprocess.run([*words, bench.sources / "disk", bench.sources / "in.qcow2"], check=True)
    bench.store("/srv/ganeti/images/in.qcow2", "auto")
    bench.finished()
    out = bench.write("/srv/ganeti/images/out.qcow2", "qcow2")
    subprocess.run(["qemu-img", "check", "-q", "-f", "qcow2", out], check=True)
    back = bench.sources / "back"
    subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", out, back], check=True)
    assert back.read_bytes() == PADDED


def test_image_becomes_raw_files_and_an_ova_that_can_be_imported(bench: Bench) -> None:
    bench.store()
    bench.finished()
    assert bench.write("/srv/ganeti/images/out.raw", "raw").read_bytes() == PADDED
    bench.write("/srv/ganeti/images/out.ova", "ova")
    with (
        opened_image(bench.paths, "/srv/ganeti/images/out.ova") as beside,
        opened_package(beside, "out.ova") as package,
    ):
        assert package.sizes == (4 * MIB,)
    assert sorted(one.name for one in bench.sources.iterdir()) == ["disk", "out.ova", "out.raw"]


@pytest.mark.requirement("A41", "A50")
@pytest.mark.parametrize("form", ["raw", "ova"])
def test_existing_file_and_forbidden_path_are_refused(bench: Bench, form: str) -> None:
    bench.store()
    bench.finished()
    with pytest.raises(InputError, match="exists"):
        bench.write("/srv/ganeti/images/disk", form)
    (bench.sources / "link").symlink_to(bench.sources / "target")
    with pytest.raises(InputError, match="exists"):
        bench.write("/srv/ganeti/images/link", form)
    for path in ("/etc/cron.d/x", "/srv/ganeti/image-store/x", "/srv/ganeti/images/../x"):
        with pytest.raises(GanetiError):
            bench.write(path, form)
    assert (bench.sources / "disk").read_bytes() == DATA
    assert sorted(one.name for one in bench.sources.iterdir()) == ["disk", "link"]


@pytest.mark.requirement("A51")
def test_upload_is_imported_and_reads_no_file_beside_it(bench: Bench) -> None:
    ident = copy_in(bench.paths.image_uploads, bench.sources / "disk")
    bench.store(f"upload:{ident}", digest=SHA256)
    assert bench.finished().disks[0].sha256 == hashlib.sha256(PADDED).hexdigest()
    other = copy_in(bench.paths.image_uploads, bench.sources / "disk")
    description = (
        "<?xml version='1.0'?><Envelope xmlns='http://schemas.dmtf.org/ovf/envelope/1'"
        " xmlns:ovf='http://schemas.dmtf.org/ovf/envelope/1'><References>"
        f"<File ovf:id='f' ovf:href='{other}'/></References></Envelope>"
    )
    (bench.sources / "box.ovf").write_text(description)
    ident = copy_in(bench.paths.image_uploads, bench.sources / "box.ovf")
    with (
        opened_source(bench.paths, f"upload:{ident}") as (beside, name),
        pytest.raises(InputError, match="an upload is one file"),
        opened_package(beside, name, "ovf"),
    ):
        pass
    with pytest.raises(HostError, match="does not exist on this node"):
        bench.store(f"upload:{'0' * 32}")


@pytest.mark.requirement("A50", "A51")
def test_hostile_sources_are_refused(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (bench.sources / "link").symlink_to(secret)
    os.link(bench.sources / "disk", bench.sources / "hard")
    os.mkfifo(bench.sources / "pipe")
    (bench.sources / "empty").write_bytes(b"")
    for source in ("link", "hard", "pipe", "empty", "missing", "../../../etc/shadow"):
        with pytest.raises((GanetiError, OSError)):
            bench.store(f"/srv/ganeti/images/{source}")
    (bench.sources / "hard").unlink()
    backed = bench.sources / "backed"
    backed.write_bytes(
        b"QFI\xfb\0\0\0\x03" + (104).to_bytes(8, "big") + (11).to_bytes(4, "big") + bytes(4096)
    )
    for form in ("qcow2", "auto"):
        with pytest.raises(GanetiError):
            bench.store("/srv/ganeti/images/backed", form)


def test_wrong_digest_of_a_file_is_refused(bench: Bench) -> None:
    with pytest.raises(InputError, match="differs or is damaged"):
        bench.store(digest="0" * 64)
    with pytest.raises(InputError, match="hexadecimal"):
        bench.store(digest="0")
    assert list(bench.new.iterdir()) == []


@pytest.mark.requirement("A50")
def test_download_must_have_its_digest(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(_address: str, target: IO[bytes], _limit: int) -> int:
        return target.write(DATA[:1000]) + target.write(DATA[1000:])

    monkeypatch.setattr(image_store, fetch.__name__, fetched)
    with pytest.raises(InputError, match="is required for a URL"):
        bench.store(URL)
    with pytest.raises(InputError, match="differs or is damaged"):
        bench.store(URL, digest="0" * 128)
    assert list(bench.new.iterdir()) == []
    bench.store(URL, digest=hashlib.sha512(DATA).hexdigest())
    assert bench.finished().disks[0].size == 4
    assert sorted(one.name for one in bench.images.directory(NAME, unfinished=False).iterdir()) == [
        "config.ini", "disk0.raw",
    ]  # fmt: skip


def test_download_ends_before_the_disk_is_full(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def refused(_address: str, _target: object, limit: int) -> int:
        limits.append(limit)
        raise HostError("it is longer than the limit")

    monkeypatch.setattr(image_store, fetch.__name__, refused)
    with pytest.raises(HostError, match="longer"):
        bench.store(URL, digest="0" * 64)
    space = os.statvfs(bench.new)
    assert 0 <= limits[0] < space.f_bavail * space.f_frsize
    assert list(bench.new.iterdir()) == []


def test_change_of_a_complete_copy_is_seen_until_it_is_sealed(bench: Bench) -> None:
    bench.store()
    bench.finished()
    assert [one.unchanged for one in bench.images.files(NAME).values()] == [True]
    with bench.images.file(NAME, "disk0.raw").open("r+b") as file:
        file.write(b"x")
    (found,) = bench.images.files(NAME).values()
    assert (found.unchanged, found.length) == (False, 4 * MIB)
    bench.images.seal(NAME)
    assert [one.unchanged for one in bench.images.files(NAME).values()] == [True]


def test_failure_ends_the_program_with_a_sentence(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    log = bench.new.parent / "log"
    words = [str(log), str(bench.paths.root), "store", str(bench.new)]
    assert image_store.main([*words, "/etc/shadow", "raw", ""]) == 1
    assert "not below a directory" in capsys.readouterr().err
    assert image_store.main([*words, "/srv/ganeti/images/disk", "raw", ""]) == 0
