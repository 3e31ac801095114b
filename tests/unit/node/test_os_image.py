"""The OS definition `image`, run as the scripts that it is."""

import base64
import hashlib
import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti.base import certificates
from ganeti.base.errors import GanetiError, HostError, InputError
from ganeti.base.paths import Paths
from ganeti.guest_os.definitions import load
from ganeti.images.download import fetch
from ganeti.images.package import opened_package
from ganeti.node import os_image
from ganeti.node.images import opened_image
from ganeti.protocols.fat_image import fat_files
from ganeti.protocols.ovf import OvfDisk, OvfMachine, format_ovf

MIB = 1 << 20
DATA = os.urandom(MIB) + bytes(MIB) + b"end" + bytes(MIB - 3)


class Bench:
    """A node with an image, and an instance with two disks that had something else on them."""

    def __init__(self, root: Path) -> None:
        self.root, self.paths = root, Paths(root)
        self.images = self.paths.below("/srv/ganeti/images")
        self.images.mkdir(parents=True, mode=0o755)
        (self.images / "disk.raw").write_bytes(DATA)
        self.disks = [root / "disk0", root / "disk1"]
        for disk, size in zip(self.disks, (4, 1), strict=True):
            disk.write_bytes(b"old!" * (size * MIB // 4))
        self.scripts = root / "definition"
        # What is in PATH there is not this checkout's program.
        os_image.install(self.scripts, f"{sys.executable} -m {os_image.__name__}", root)

    def environment(self, disks: int = 2, /, **parameters: str) -> dict[str, str]:
        found = {
            "INSTANCE_NAME": "web1.example.com",
            "INSTANCE_UUID": "5c3f2b1e-0000-4000-8000-000000000001",
            "DISK_COUNT": str(disks),
            "NIC_COUNT": "0",
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C",
            "HOME": "/root",
        }
        for number in range(disks):
            found |= {f"DISK_{number}_PATH": str(self.disks[number]), f"DISK_{number}_ACCESS": "rw"}
        return {**found, **{f"OSP_{name.upper()}": value for name, value in parameters.items()}}

    def create(self, disks: int = 2, /, **parameters: str) -> None:
        os_image.create(self.paths, self.environment(disks, **parameters))


@pytest.fixture
def bench(disk_path: Path) -> Bench:
    return Bench(disk_path)


RAW = {"image": "/srv/ganeti/images/disk.raw", "format": "raw"}
QCOW2 = {"image": "/srv/ganeti/images/disk.qcow2", "format": "qcow2"}


def test_the_definition_is_one_that_nodes_take(bench: Bench) -> None:
    found = load([bench.root], "definition")
    assert (found.problem, found.api_versions, found.variants) == ("", [20], [])
    assert {name for name, _ in found.parameters} == set(os_image.SeedParameters.__annotations__)
    assert set(found.scripts) >= {"create", "rename", "verify"}


@pytest.mark.sampled(0)
def test_the_scripts_write_the_disk_and_the_seed_and_rename_it(bench: Bench) -> None:
    convert = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2"]
    subprocess.run([*convert, bench.images / "disk.raw", bench.images / "disk.qcow2"], check=True)
    user_data = base64.b64encode(b"#cloud-config\nhostname: x\n").decode()
    environment = bench.environment(**QCOW2, user_data=user_data)
    for script in ("verify", "create"):
        ended = subprocess.run(
            [bench.scripts / script], check=False, env=environment, capture_output=True
        )
        assert (ended.returncode, ended.stdout) == (0, b""), ended.stderr
    written = bench.disks[0].read_bytes()
    assert written[: len(DATA)] == DATA
    assert written[len(DATA) :] == bytes(MIB)
    files = fat_files(bench.disks[1].read_bytes())
    assert files["user-data"] == b"#cloud-config\nhostname: x\n"
    assert list(bench.paths.image_work.iterdir()) == []
    environment["INSTANCE_NAME"] = "web2.example.com"
    ended = subprocess.run(
        [bench.scripts / "rename"], check=False, env=environment, capture_output=True
    )
    assert ended.returncode == 0
    files = fat_files(bench.disks[1].read_bytes())
    assert json.loads(files["meta-data"])["local-hostname"] == "web2.example.com"
    assert files["user-data"] == b"#cloud-config\nhostname: x\n"


def test_a_raw_image_with_its_digest_needs_no_seed(bench: Bench) -> None:
    digest = hashlib.sha256(DATA).hexdigest()
    bench.create(1, **RAW, sha256=digest.upper())
    assert bench.disks[0].read_bytes()[: len(DATA)] == DATA
    assert bench.disks[1].read_bytes()[:4] == b"old!"
    os_image.rename(bench.environment())
    assert bench.disks[1].read_bytes()[:4] == b"old!"


@pytest.mark.requirement("F32")
def test_what_a_full_disk_takes_in_part_is_written_again_or_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda fd, data, at: write(fd, data[: len(data) // 2 + 1], at)
    )
    bench.create(**RAW)
    assert bench.disks[0].read_bytes()[: len(DATA)] == DATA
    assert "meta-data" in fat_files(bench.disks[1].read_bytes())


@pytest.mark.requirement("A51", "A52")
def test_missing_or_unreadable_files_are_reported_except_the_manifest(
    bench: Bench,
) -> None:
    place = "/srv/ganeti/images"
    for path, why in (("gone.raw", "No such file"), ("a" * 300, "File name too long")):
        with (
            opened_image(bench.paths, f"{place}/{path}") as beside,
            pytest.raises(HostError, match=why),
        ):
            beside(path)
    disk = OvfDisk("disk.raw", len(DATA), is_vmdk=False)
    text = format_ovf(OvfMachine("web1", 512, 1, 0, (disk,)), [len(DATA)])
    (bench.images / "box.ovf").write_text(text.replace("vmdk", "raw"))
    with (
        opened_image(bench.paths, f"{place}/box.ovf") as beside,
        opened_package(beside, "box.ovf") as found,
    ):
        assert found.sizes == (len(DATA),)


def test_user_data_may_be_a_file(bench: Bench) -> None:
    (bench.images / "user-data").write_text("#!/bin/sh\n")
    bench.create(**RAW, user_data_file="/srv/ganeti/images/user-data")
    assert fat_files(bench.disks[1].read_bytes())["user-data"] == b"#!/bin/sh\n"


@pytest.mark.requirement("A51", "G24")
@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"format": "raw"}, "pass it with -O"),
        ({"image": RAW["image"]}, "pass it with -O"),
        ({**RAW, "format": "qcow2"}, "no header"),
        ({**RAW, "format": "auto"}, "must be raw or qcow2"),
        ({**RAW, "sha256": "0" * 64}, "the file differs or is damaged"),
        ({**RAW, "sha256": "abc"}, "64 hexadecimal"),
        ({**RAW, "image": "/etc/shadow"}, "not below a directory"),
        ({**RAW, "image": "/srv/ganeti/images/../../../etc/shadow"}, "absolute path"),
        ({**RAW, "image": "/srv/ganeti/images/link"}, "not a regular file"),
        ({**RAW, "image": "/srv/ganeti/images/missing"}, "No such file"),
        ({**RAW, "image": "disk.raw"}, "absolute path"),
        ({**RAW, "image": "http://host/disk.raw"}, "absolute path or an https"),
        ({**RAW, "image": "https://user:word@host/disk.raw"}, "without a user"),
        ({**RAW, "image": "https://host/disk.raw"}, "is required"),
        ({**RAW, "user_data_file": "/etc/shadow"}, "not below a directory"),
        ({**RAW, "user_data": "*"}, "base64"),
        ({**RAW, "user_data": "YQ==", "user_data_file": "/a"}, "pass only one"),
        ({**RAW, "seed_disk": "0"}, "from 1 to 1"),
        ({**RAW, "seed_disk": "2"}, "from 1 to 1"),
        ({**RAW, "seed_disk": "-1"}, "must be a disk number"),
        ({**RAW, "seed_disk": "none", "ssh_key": "k"}, "no disk for the cloud-init settings"),
        ({**RAW, "dns": "192.0.2.1 x"}, "not an address"),
        ({**RAW, "user_data_file": "/srv/ganeti/images/disk.raw"}, "bytes"),
    ],
)
def test_errors_are_reported_before_any_write(
    bench: Bench, parameters: dict[str, str], why: str
) -> None:
    (bench.images / "link").symlink_to("/etc/shadow")
    with pytest.raises((GanetiError, OSError), match=why):
        bench.create(**parameters)
    assert [disk.read_bytes()[:4] for disk in bench.disks] == [b"old!", b"old!"]
    assert not list(bench.paths.image_work.glob("*"))


def test_disks_that_are_read_only_missing_or_too_small_are_refused(bench: Bench) -> None:
    for disks, change, why in (
        (2, {"DISK_1_ACCESS": "ro"}, "read-only"),
        (2, {"DISK_0_ACCESS": "ro"}, "read-only"),
        (0, {}, "no disk"),
        (1, {"OSP_SSH_KEY": "k"}, "no disk for the cloud-init settings"),
        (2, {"DISK_0_PATH": str(bench.disks[1])}, "enlarge the first disk"),
    ):
        environment: dict[str, Any] = {**bench.environment(disks, **RAW), **change}
        with pytest.raises(GanetiError, match=why):
            os_image.create(bench.paths, environment)


def test_parameters_for_the_cluster_may_be_a_part_of_them(bench: Bench) -> None:
    root = str(bench.root)
    assert os_image.run([root, "verify"], {"OSP_FORMAT": "qcow2"}) == 0
    assert os_image.run([root, "verify"], {}) == 0
    assert os_image.run([root, "verify"], {"OSP_FORMAT": "vdi"}) == 1


# --- by https ---


class _Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1/disk.raw")
            self.end_headers()
            return
        found = self.path in ("/disk.raw", "/cut")
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(DATA) + (self.path == "/cut")) if found else "0")
        self.end_headers()
        if found:
            self.wfile.write(DATA)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, ssl.SSLContext]]:
    """The address of a server, and what trusts it."""
    key, certificate = certificates.new_key(), tmp_path / "site.pem"
    made = certificates.for_rest(key, ["localhost"], ["127.0.0.1"], time.time())
    certificate.write_bytes(key + made)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = http.server.HTTPServer(("127.0.0.1", 0), _Site)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # callers that do not trust it
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield (
        f"https://127.0.0.1:{server.server_port}",
        ssl.create_default_context(cafile=str(certificate)),
    )
    server.shutdown()
    thread.join()
    server.server_close()


def test_file_is_fetched_by_https_from_a_trusted_server(
    site: tuple[str, ssl.SSLContext], tmp_path: Path
) -> None:
    address, trusting = site
    with (tmp_path / "x").open("w+b") as target:
        assert fetch(f"{address}/disk.raw", target, 10 * MIB, trusting) == len(DATA)
        target.seek(0)
        assert target.read() == DATA
        for path, limit, why in (
            ("/disk.raw", MIB, "longer than"),
            ("/cut", 10 * MIB, "cannot be downloaded|truncated"),
            ("/missing", MIB, "404"),
        ):
            with pytest.raises(HostError, match=why):
                fetch(f"{address}{path}", target, limit, trusting)
        with pytest.raises(HostError, match="certificate"):
            fetch(f"{address}/disk.raw", target, 10 * MIB)
        with pytest.raises(InputError, match="https"):
            fetch(f"{address}/away", target, MIB, trusting)


def test_a_definition_runs_its_program_although_that_was_called_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/ganeti-os-image", "--install", "os/image", "/node"])
    with pytest.raises(SystemExit) as ended:
        os_image.main()
    assert ended.value.code == 0
    assert (
        f'exec {tmp_path}/bin/ganeti-os-image "/node" create'
        in (tmp_path / "os/image/create").read_text()
    )


def test_stored_image_is_left_as_the_cluster_has_written_it(bench: Bench) -> None:
    before = bench.disks[0].read_bytes()
    bench.create(stored_image="debian", ssh_key="ssh-ed25519 AAAA")
    assert bench.disks[0].read_bytes() == before
    assert b"ssh-ed25519 AAAA" in fat_files(bench.disks[1].read_bytes())["meta-data"]
    for wrong, text in (
        ({"stored_image": "debian", **RAW}, "excludes image"),
        ({"stored_image": "debian", "format": "raw"}, "excludes format"),
        ({"stored_image": "../debian"}, "is not a name"),
        ({"format": "raw"}, "or use --image"),
    ):
        with pytest.raises(InputError, match=text):
            bench.create(**wrong)
    assert bench.disks[0].read_bytes() == before
