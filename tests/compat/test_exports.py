"""Debian's Ganeti reads the exports that are written here."""

from pathlib import Path

import pytest

from ganeti.protocols.export_description import (
    ExportDescription,
    ExportedDisk,
    ExportedNic,
    format_description,
)
from tests.support.debian_ganeti import COMMANDS, PROGRAMS
from tests.support.debian_packages import said_by_python

READER = Path(__file__).parents[1] / "support" / "read_export.py"
EXPORT = ExportDescription(
    name="web1.example.com",
    os="debootstrap+default",
    source="5c3f2b1e-0000-4000-8000-000000000001",
    timestamp=1600000000,
    data="script",
    disk_template="file",
    hypervisor="kvm",
    tags=("blue", "env:prod"),
    disks=(
        ExportedDisk(10240, "8a4be3a4-0000-4000-8000-000000000002", "root", "rw", "ab" * 32),
        ExportedDisk(512, "8a4be3a4-0000-4000-8000-000000000003"),
    ),
    nics=(
        ExportedNic(mac="aa:00:00:11:22:33", ip="192.0.2.7", mode="bridged", link="br0", vlan=""),
        ExportedNic(mac="aa:00:00:11:22:34", mode="routed", link="100", name="inner"),
    ),
    hvparams={"kernel_args": "ro 50% %(x)s", "acpi": "True", "vnc_bind_address": "0.0.0.0"},
    beparams={"maxmem": "1024", "minmem": "512", "vcpus": "2", "always_failover": "False"},
    osparams={"dhcp": "yes", "mirror": "http://mirror.example.com/%d?a=b;c#d"},
    osparams_private={"key": "secret: value"},
)


@pytest.mark.requirement("S132", "S133")
def test_debian_s_import_finds_what_was_exported(tmp_path: Path) -> None:
    text = format_description(EXPORT, {"maxmem": 1024, "minmem": 512, "vcpus": 2})
    (tmp_path / "config.ini").write_text(text)
    found = said_by_python(READER, str(tmp_path), packages=COMMANDS, below=PROGRAMS)
    assert (found["name"], found["version"]) == (EXPORT.name, True)
    assert (found["os_type"], found["hypervisor"]) == (EXPORT.os, "kvm")
    assert found["tags"] == list(EXPORT.tags)
    assert found["disks"] == [{"size": 10240, "name": "root"}, {"size": 512, "name": None}]
    assert found["dumps"] == [str(tmp_path / disk.dump) for disk in EXPORT.disks]
    first, second = found["nics"]
    assert (first["mac"], first["ip"], first["link"]) == ("aa:00:00:11:22:33", "192.0.2.7", "br0")
    assert (second["mac"], second["ip"], second["name"]) == ("aa:00:00:11:22:34", None, "inner")
    assert (second["mode"], second["link"]) == ("routed", "100")
    assert found["hvparams"] == {**EXPORT.hvparams, "acpi": True}
    assert (found["beparams"]["maxmem"], found["beparams"]["vcpus"]) == (1024, 2)
    assert found["beparams"]["always_failover"] is False
    assert found["osparams"] == EXPORT.osparams
    assert found["osparams_private"] == EXPORT.osparams_private
