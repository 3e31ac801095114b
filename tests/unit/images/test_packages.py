"""Images and OVA files of others: converted by a confined qemu-img, or refused; and exports packed as OVA."""

import contextlib
import hashlib
import io
import os
import random
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import GanetiError, HostError, InputError
from ganeti.images import convert as conversion
from ganeti.images.convert import (
    Report,
    convert_package,
    describe,
    description_text,
    run_confined,
    show_nothing,
)
from ganeti.images.ova import pack, read_export
from ganeti.images.package import Member, open_beside, opened_package
from ganeti.protocols.export_description import parse_description
from ganeti.protocols.ovf import OvfDisk, OvfMachine, format_ovf
from ganeti.protocols.vmdk import GRAIN, stream_optimized

MIB = 1 << 20
SIZE = 9 * MIB + 512
ODD_UID = 61999
PYTHON = "/usr/bin/python3"  # a program that may be read there
is_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes somebody else")


def content() -> bytes:
    """A disk with data at the begin, in the middle and in the last sector, mostly holes."""
    data = bytearray(SIZE)
    maker = random.Random(7)
    for at, length in ((0, 70_000), (4 * MIB + 100, 3000), (SIZE - 512, 512)):
        data[at : at + length] = maker.randbytes(length)
    return bytes(data)


def vmdk(data: bytes) -> bytes:
    grains = ((at // GRAIN, data[at : at + GRAIN]) for at in range(0, len(data), GRAIN))
    return b"".join(
        stream_optimized(((n, one) for n, one in grains if one.strip(b"\0")), len(data), "a.vmdk")
    )


def qemu_img(*words: str | Path) -> None:
    subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disk in each format."""
    place = tmp_path_factory.mktemp("images")
    (place / "raw").write_bytes(content())
    (place / "stream.vmdk").write_bytes(vmdk(content()))
    for form, name, more in (
        ("qcow2", "qcow2", ()),
        ("qcow2", "packed.qcow2", ("-c",)),
        ("vmdk", "sparse.vmdk", ()),
    ):
        qemu_img("convert", *more, "-f", "raw", "-O", form, place / "raw", place / name)
    return place


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def convert(source: Path, target: Path, form: str = "auto", report: Report = show_nothing) -> str:
    """All disks below `target`; the description."""
    directory = os.open(source.parent, os.O_RDONLY)
    try:
        with opened_package(lambda name: open_beside(directory, name), source.name, form) as found:
            convert_package(found, target, report)
            return description_text(describe(found))
    finally:
        os.close(directory)


@pytest.mark.requirement("A51")
@pytest.mark.parametrize("name", ["raw", "qcow2", "packed.qcow2", "sparse.vmdk", "stream.vmdk"])
def test_an_image_becomes_the_disk_that_it_holds(images: Path, tmp_path: Path, name: str) -> None:
    described = parse_description(convert(images / name, tmp_path))
    assert (tmp_path / "disk0.raw").read_bytes() == content()
    assert names_in(tmp_path) == ["disk0.raw"]
    status = (tmp_path / "disk0.raw").stat()
    assert (status.st_mode & 0o777, status.st_uid) == (0o600, os.getuid())
    assert status.st_blocks * 512 < 2 * MIB  # holes stay
    assert [(disk.size, disk.dump) for disk in described.disks] == [(10, "disk0.raw")]
    assert (len(described.nics), described.name, described.data) == (1, "imported", "raw")


@pytest.mark.parametrize("name", ["raw", "stream.vmdk"])
def test_position_in_an_image_that_is_copied_is_reported(
    images: Path, tmp_path: Path, name: str
) -> None:
    reported: list[tuple[str, int, int]] = []
    convert(images / name, tmp_path, report=lambda *one: reported.append(one))
    whole = (images / name).stat().st_size
    copied = [one for one in reported if one[0] == f"copying {name}"]
    assert copied == sorted(copied)
    assert copied[-1][1:] == (whole, whole)


def test_position_of_qemu_img_is_reported_as_it_prints_it(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[tuple[str, int, int]] = []
    real = conversion.run_confined

    def run(argv: list[str], *args: Any, **options: Any) -> tuple[int, str]:
        assert "-p" in argv
        options["look"]("")
        options["look"]("    (0.00/100%)    (37.50/100%)")
        return real(argv, *args, **options)

    monkeypatch.setattr(conversion, "run_confined", run)
    convert(images / "qcow2", tmp_path, report=lambda *one: reported.append(one))
    assert ("converting qcow2", int(0.375 * SIZE), SIZE) in reported


def test_the_output_of_a_running_program_is_available(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "LOOK_EVERY_S", 0.05)
    uid = ODD_UID if os.getuid() == 0 else os.getuid()
    seen: list[str] = []
    code = "import time; print('half', flush=True); time.sleep(0.5); print('all')"
    argv = [PYTHON, "-I", "-c", code]
    assert run_confined(argv, work, uid, file_size=MIB, look=seen.append) == (0, "half\nall")
    assert "half" in seen


def test_the_named_format_is_used(images: Path, tmp_path: Path) -> None:
    convert(images / "qcow2", tmp_path, "raw")
    assert (tmp_path / "disk0.raw").read_bytes() == (images / "qcow2").read_bytes()
    for name, form, why in (
        ("raw", "qcow2", "no header"),
        ("qcow2", "vmdk", "no header"),
        ("raw", "ova", "not a tar archive"),
        ("raw", "ovf", "more than"),
        ("raw", "iso", "is not one of"),
    ):
        with pytest.raises(InputError, match=why):
            convert(images / name, tmp_path, form)


@pytest.mark.requirement("A51")
def test_backing_files_data_files_and_foreign_extents_are_refused(
    images: Path, tmp_path: Path
) -> None:
    base = images / "qcow2"
    (tmp_path / "raw").write_bytes(content())
    qemu_img("create", "-f", "qcow2", "-b", base, "-F", "qcow2", tmp_path / "backed")
    qemu_img(
        "create", "-f", "qcow2", "-o", f"data_file={tmp_path}/data", tmp_path / "elsewhere", "1M"
    )
    qemu_img(
        "convert",
        "-f",
        "raw",
        "-O",
        "vmdk",
        "-o",
        "subformat=monolithicFlat",
        tmp_path / "raw",
        tmp_path / "flat",
    )
    qemu_img("create", "-f", "vmdk", "-b", images / "sparse.vmdk", "-F", "vmdk", tmp_path / "child")
    for name in ("backed", "elsewhere", "flat", "child"):
        for form in ("auto", "vmdk" if name in ("flat", "child") else "qcow2"):
            with pytest.raises(InputError, match=r"backing|another file|other files|parent"):
                convert(tmp_path / name, tmp_path, form)


def test_a_damaged_image_is_an_error_that_leaves_nothing(images: Path, tmp_path: Path) -> None:
    damaged = bytearray((images / "packed.qcow2").read_bytes())
    damaged[0x30000:] = b"\xff" * (len(damaged) - 0x30000)
    source = tmp_path / "source"
    source.mkdir()
    (source / "x").write_bytes(damaged)
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(HostError, match="qemu-img cannot convert"):
        convert(source / "x", target)
    assert names_in(target) == []


def test_links_and_pipes_are_no_images(images: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(images / "raw")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing"):
        with pytest.raises(HostError, match=name):
            convert(tmp_path / name, tmp_path)


# --- OVA ---


def description(*files: str, capacity: int = SIZE) -> bytes:
    disks = tuple(OvfDisk(name, capacity) for name in files)
    return format_ovf(OvfMachine("Web Server", 512, 2, 2, disks), [1] * len(files)).encode()


def archive(path: Path, *members: tuple[tarfile.TarInfo | str, bytes]) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for info, data in members:
            one = tarfile.TarInfo(info) if isinstance(info, str) else info
            one.size = len(data)
            tar.addfile(one, io.BytesIO(data))
    return path


def link(name: str, kind: bytes, target: str = "/etc/passwd") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_an_ova_is_a_machine(tmp_path: Path) -> None:
    disk = vmdk(content())
    manifest = f"SHA256(a.vmdk)= {hashlib.sha256(disk).hexdigest()}\n"
    archive(
        tmp_path / "box.ova",
        ("box.ovf", description("a.vmdk")), ("box.mf", manifest.encode()), ("a.vmdk", disk),
    )  # fmt: skip
    described = parse_description(convert(tmp_path / "box.ova", tmp_path))
    assert (tmp_path / "disk0.raw").read_bytes() == content()
    assert (described.name, len(described.nics)) == ("web-server", 2)
    assert described.beparams == {"maxmem": "512", "minmem": "512", "vcpus": "2"}
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose/box.ovf").write_bytes(description("a.vmdk"))
    (tmp_path / "loose/a.vmdk").write_bytes(disk)
    (tmp_path / "disk0.raw").unlink()
    convert(tmp_path / "loose/box.ovf", tmp_path)
    assert (tmp_path / "disk0.raw").read_bytes() == content()


@pytest.mark.parametrize("kind", ["SHA1", "SHA256"])
def test_a_disk_that_differs_from_the_manifest_is_refused(tmp_path: Path, kind: str) -> None:
    archive(
        tmp_path / "box.ova",
        ("box.ovf", description("a.vmdk")),
        ("box.mf", f"{kind}(a.vmdk)= {'0' * 64}\n".encode()), ("a.vmdk", vmdk(content())),
    )  # fmt: skip
    with pytest.raises(InputError, match="damaged"):
        convert(tmp_path / "box.ova", tmp_path)
    assert names_in(tmp_path) == ["box.ova"]


@pytest.mark.requirement("A51")
@pytest.mark.parametrize("loose", [False, True])
def test_a_description_that_differs_from_the_manifest_is_refused(
    tmp_path: Path, *, loose: bool
) -> None:
    good = description("a.vmdk")
    manifest = f"SHA256(box.ovf)= {hashlib.sha256(good).hexdigest()}\n".encode()
    for text, why in ((good, ""), (good.replace(b">512<", b">513<"), "remove the manifest")):
        members = (("box.ovf", text), ("box.mf", manifest), ("a.vmdk", vmdk(content())))
        for name, data in members:
            (tmp_path / name).write_bytes(data)
        archive(tmp_path / "box.ova", *members)
        target = tmp_path / f"target-{why[:1]}"
        target.mkdir()
        source = tmp_path / ("box.ovf" if loose else "box.ova")
        with pytest.raises(InputError, match=why) if why else contextlib.nullcontext():
            convert(source, target)
        assert names_in(target) == ([] if why else ["disk0.raw"])


OVF = ("box.ovf", description("a.vmdk"))


@pytest.mark.requirement("A52", "A53")
@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([("../box.ovf", b"x")], "not a name"),
        ([("/etc/box.ovf", b"x")], "not a name"),
        ([("a/../../box.ovf", b"x")], "not a name"),
        ([OVF, (link("a.vmdk", tarfile.SYMTYPE), b"")], "regular"),
        ([OVF, (link("a.vmdk", tarfile.LNKTYPE), b"")], "regular"),
        ([OVF, (link("a.vmdk", tarfile.CHRTYPE), b"")], "regular"),
        ([OVF, (link("d", tarfile.DIRTYPE), b"")], "regular"),
        ([OVF, (link("a.vmdk", tarfile.GNUTYPE_SPARSE), b"")], "not a regular file"),
        ([OVF, (link("a.vmdk", tarfile.GNUTYPE_LONGNAME), b"")], "not a regular file"),
        ([OVF, (link("a.vmdk", tarfile.XHDTYPE), b"")], "not a regular file"),
        ([OVF, ("a.vmdk", b"x"), ("a.vmdk", b"y")], "twice"),
        ([OVF, *((f"f{n}", b"") for n in range(70))], "more than 64 files"),
        ([("x", b"")], "0 OVF descriptions"),
        ([OVF, ("other.ovf", b"")], "2 OVF descriptions"),
        ([OVF], "has no file a.vmdk"),
        ([OVF, ("a.vmdk", b"not one")], "no header"),
        ([OVF, ("a.vmdk", b"# Disk DescriptorFile\n")], "only the description"),
        (
            [("box.ovf", description("a.vmdk", capacity=MIB)), ("a.vmdk", vmdk(content()))],
            "its description",
        ),
        ([("box.ovf", b" " * 2_000_000)], "more than"),
        ([("box.ovf", b"<!DOCTYPE x><Envelope/>")], "declares"),
    ],
)
def test_archives_that_lie_are_refused(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo | str, bytes]], why: str
) -> None:
    archive(tmp_path / "box.ova", *members)
    with pytest.raises(InputError, match=why):
        convert(tmp_path / "box.ova", tmp_path, "ova")
    assert names_in(tmp_path) == ["box.ova"]


@pytest.mark.requirement("A52")
def test_a_member_that_claims_a_pebibyte_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a.vmdk")
    info.size = 1 << 50
    ovf = tarfile.TarInfo("box.ovf")
    ovf.size = len(OVF[1])
    data = ovf.tobuf(tarfile.USTAR_FORMAT) + OVF[1].ljust(-(-len(OVF[1]) // 512) * 512, b"\0")
    (tmp_path / "box.ova").write_bytes(data + info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(InputError, match="truncated"):
        convert(tmp_path / "box.ova", tmp_path)


def test_an_archive_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = archive(tmp_path / "whole", OVF, ("a.vmdk", vmdk(content()))).read_bytes()
    useful = len(whole.rstrip(b"\0"))
    for length in [*range(1, useful, useful // 40)]:
        (tmp_path / "box.ova").write_bytes(whole[:length])
        with pytest.raises(GanetiError):
            convert(tmp_path / "box.ova", tmp_path, "ova")


# --- packed ---


@pytest.fixture
def export(tmp_path: Path, images: Path) -> Path:
    place = tmp_path / "web1"
    place.mkdir()
    (place / "config.ini").write_text(convert(images / "qcow2", place).replace("imported", "web1"))
    return place


def test_an_export_packed_is_read_by_others_and_by_us(export: Path, tmp_path: Path) -> None:
    pack(export, read_export(export), tmp_path / "web1.ova")
    with tarfile.open(tmp_path / "web1.ova") as tar:
        names = tar.getnames()
    assert names == ["web1.ovf", "web1-disk0.vmdk", "web1.mf"]
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "web1.ova", "-C", theirs], check=True)
    for line in (theirs / "web1.mf").read_text().splitlines():
        name, _, digest = line.removeprefix("SHA256(").partition(")= ")
        assert hashlib.sha256((theirs / name).read_bytes()).hexdigest() == digest
    qemu_img("check", "-f", "vmdk", theirs / "web1-disk0.vmdk")
    qemu_img("convert", "-f", "vmdk", "-O", "raw", theirs / "web1-disk0.vmdk", theirs / "raw")
    padded = content().ljust(10 * MIB, b"\0")
    assert (theirs / "raw").read_bytes() == padded
    ours = tmp_path / "ours"
    ours.mkdir()
    assert parse_description(convert(tmp_path / "web1.ova", ours)).name == "web1"
    assert (ours / "disk0.raw").read_bytes() == padded


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("data = raw", "data = script", "not images"),
        ("compression = none", "compression = gzip", "compressed"),
        ("disk0_size = 10", "disk0_size = 9", "longer"),
        ("disk0_dump = disk0.raw", "disk0_dump = gone", "gone"),
    ],
)
def test_what_cannot_be_packed_is_refused_and_leaves_nothing(
    export: Path, tmp_path: Path, old: str, new: str, why: str
) -> None:
    text = (export / "config.ini").read_text()
    assert old in text
    (export / "config.ini").write_text(text.replace(old, new))
    with pytest.raises(GanetiError, match=why):
        pack(export, read_export(export), tmp_path / "web1.ova")
    assert names_in(tmp_path) == ["web1"]


# --- confined ---


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory of somebody else's, if we may make one."""
    if os.getuid() == 0:
        os.chown(tmp_path, ODD_UID, ODD_UID)
    return tmp_path


@pytest.fixture
def attempt(work: Path) -> Callable[[str], tuple[int, str]]:
    uid = ODD_UID if os.getuid() == 0 else os.getuid()

    def run(code: str) -> tuple[int, str]:
        (work / "messages").unlink(missing_ok=True)
        return run_confined([PYTHON, "-I", "-c", code], work, uid, file_size=MIB)

    return run


@pytest.mark.sampled(4)
@pytest.mark.requirement("A51")
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import socket; socket.socket()", "Operation not permitted"),
        ("import socket; socket.socketpair()", "Operation not permitted"),
        ("open('/etc/hostname')", "Permission denied"),
        ("open('/proc/1/cmdline')", "Permission denied"),
        ("import os; os.listdir('/tmp')", "Permission denied"),
        ("import os; os.symlink('/etc/passwd', 'x')", "Operation not permitted"),
        ("import os; os.link('messages', 'x')", "Operation not permitted"),
        ("import os; os.mkfifo('x')", "Operation not permitted"),
        ("import ctypes, os; c = ctypes.CDLL(None, use_errno=True); c.unshare(0x10000000) and exit(os.strerror(ctypes.get_errno()))",
         "Operation not permitted"),
        ("import ctypes, os; c = ctypes.CDLL(None, use_errno=True); c.ptrace(16, 1, 0, 0) and exit(os.strerror(ctypes.get_errno()))",
         "Operation not permitted"),
        ("open('x', 'wb').write(bytes(2 << 20))", "File too large"),
        ("bytearray(3 << 30)", "MemoryError"),
    ],
)  # fmt: skip
def test_a_confined_program_can_do_next_to_nothing(
    attempt: Callable[[str], tuple[int, str]], code: str, why: str
) -> None:
    status, said = attempt(code)
    assert status != 0
    assert why in said


@is_root
@pytest.mark.requirement("A51")
def test_a_confined_program_is_nobody(attempt: Callable[[str], tuple[int, str]]) -> None:
    status, said = attempt(
        "import os; print(os.getresuid(), os.getresgid(), os.getgroups());"
        "print([l.split()[1] for l in open('/proc/self/status') if l[:3] == 'Cap']);"
        "print(open('/proc/self/net/dev').read().count(':'))"
    )
    assert (status, said.splitlines()) == (
        0,
        [
            f"({ODD_UID}, {ODD_UID}, {ODD_UID}) ({ODD_UID}, {ODD_UID}, {ODD_UID}) []",
            str(["0" * 16] * 3 + said.splitlines()[1].split("'")[7:8] + ["0" * 16]),
            "1",
        ],
    )


def test_a_member_ends_where_it_ends(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    descriptor = os.open(tmp_path / "x", os.O_RDONLY)
    member = Member("x", descriptor, 2, 4)
    assert [member.read(0, 10), member.read(3, 9), member.read(4, 1)] == [b"2345", b"5", b""]
    os.close(descriptor)
