"""`config.ini` of exports: ours as Ganeti reads it, Ganeti's as we read it, and whatever else it may hold."""

import configparser

import pytest

from ganeti.base.errors import InputError
from ganeti.protocols.export_description import (
    ExportDescription,
    ExportedDisk,
    ExportedNic,
    changed_by_export,
    check_export_name,
    format_description,
    parse_description,
)

# As Ganeti 3.0 writes it, for an instance with two disks of which one could not be exported.
THEIRS = """\
[export]
version = 0
timestamp = 1600000000
source = 5c3f2b1e-0000-4000-8000-000000000001
os = debootstrap+default
compression = none

[instance]
name = web1.example.com
maxmem = 1024
minmem = 512
memory = 1024
vcpus = 2
disk_template = drbd
hypervisor = kvm
tags = blue env:prod
nic0_mac = aa:00:00:11:22:33
nic0_ip = None
nic0_network = None
nic0_name = None
nic0_mode = bridged
nic0_link = br0
nic0_vlan = None
nic_count = 1
disk0_ivname = disk/0
disk0_dump = 8a4be3a4-0000-4000-8000-000000000002.snap
disk0_size = 10240
disk0_name = root
disk1_ivname = disk/1
disk1_size = 512
disk1_name = None
disk_count = 1

[hypervisor]
kernel_args = ro 50%%
serial_console = True

[backend]
maxmem = 1024
minmem = 512
vcpus = 2

[os]
ns1 = 192.0.2.53

[os_private]
password = secret

"""
MEMORY = {"maxmem": 512, "minmem": 256, "vcpus": 1}


def test_an_export_of_ganeti_is_understood() -> None:
    found = parse_description(THEIRS)
    assert (found.name, found.os, found.disk_template) == (
        "web1.example.com",
        "debootstrap+default",
        "drbd",
    )
    assert found.tags == ("blue", "env:prod")
    assert found.disks == (
        ExportedDisk(10240, "8a4be3a4-0000-4000-8000-000000000002.snap", "root"),
        ExportedDisk(512),
    )
    assert found.nics == (ExportedNic(mac="aa:00:00:11:22:33", mode="bridged", link="br0"),)
    assert found.hvparams == {"kernel_args": "ro 50%", "serial_console": "True"}
    assert found.beparams == {"maxmem": "1024", "minmem": "512", "vcpus": "2"}
    assert (found.osparams, found.osparams_private) == (
        {"ns1": "192.0.2.53"},
        {"password": "secret"},
    )
    assert (found.data, found.compression) == ("", "none")
    assert "secret" not in repr(found)


def test_very_old_exports_have_their_memory_elsewhere() -> None:
    old = THEIRS.partition("[hypervisor]")[0]
    old = old.replace("maxmem = 1024\nminmem = 512\n", "")
    assert parse_description(old).beparams == {"vcpus": "2"}
    older = old.replace("vcpus = 2\n", "")
    assert parse_description(older).beparams == {"maxmem": "1024", "minmem": "1024"}


def described() -> ExportDescription:
    return ExportDescription(
        name="web1.example.com",
        os="tiny",
        source="node1.example.com",
        timestamp=1700000000,
        compression="zstd",
        data="raw",
        disk_template="file",
        hypervisor="kvm",
        tags=("a", "b"),
        disks=(ExportedDisk(1024, "uuid-1", None, "ro", "0f" * 32),),
        nics=(ExportedNic(mac="aa:00:00:11:22:33", ip="192.0.2.1", vlan=".10"),),
        hvparams={"kernel_args": "a%(b)s 100%"},
        beparams={"vcpus": "1"},
        osparams={"ns1": "=;# [x]"},
    )


def test_what_is_written_is_read_back() -> None:
    assert parse_description(format_description(described(), MEMORY)) == described()


def test_our_form_is_read_by_upstreams_parser() -> None:
    theirs = configparser.ConfigParser()  # with interpolation, as Ganeti 3.0 reads it
    theirs.read_string(format_description(described(), MEMORY))
    assert theirs.getint("export", "version") == 0
    assert theirs.get("instance", "disk0_dump") == "uuid-1"
    assert theirs.getint("instance", "disk0_size") == 1024
    assert theirs.getint("instance", "disk_count") == 1
    assert theirs.getint("instance", "nic_count") == 1
    assert theirs.getint("instance", "memory") == 512
    assert theirs.get("hypervisor", "kernel_args") == "a%(b)s 100%"
    assert theirs.get("instance", "nic0_ip") == "192.0.2.1"


@pytest.mark.parametrize("value", ["b\n[export]", "\0", "a\x1b[2J", "\x85", "x" * 70_000])
def test_a_value_that_no_import_would_read_cannot_be_exported(value: str) -> None:
    wrong = ExportDescription(name="web1", osparams={"a": value})
    with pytest.raises(InputError, match=r"os\.a"):
        format_description(wrong, MEMORY)


@pytest.mark.requirement("S132")
def test_whatever_text_was_exported_can_be_imported() -> None:
    odd = {"a": "b\tc", "d": "\u00a0e\u200b\u2028f", "g": "%" * 40_000, "h": ""}
    export = ExportDescription(name="web1", osparams=odd)
    back = parse_description(format_description(export, MEMORY)).osparams
    assert back == {**odd, "d": "e\u200b\u2028f"}
    assert changed_by_export(export, MEMORY) == ["osparams.d"]
    blanks = ExportDescription(name="web1", hvparams={"A": " b"}, beparams={"vcpus": "1"})
    assert changed_by_export(blanks, MEMORY) == ["hvparams.A"]


@pytest.mark.parametrize("name", ["web1.new", "web1.old", "a." * 121 + "b"])
def test_a_name_that_means_an_export_in_the_making_is_refused(name: str) -> None:
    check_export_name("new.example.com")
    with pytest.raises(InputError, match="gnt-instance rename"):
        check_export_name(name)


@pytest.mark.requirement("A54")
@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("version = 0", "version = -1", "version"),
        ("version = 0", "version = ٣", "version"),
        ("version = 0\n", "", "is missing"),
        ("[export]", "[DEFAULT]\na = b\n[export]", "defaults"),
        ("[export]", "no section\n[export]", "cannot be read"),
        ("[backend]", "[os]", "cannot be read"),
        ("ns1 = 192.0.2.53", "ns1 = a\nns1 = b", "cannot be read"),
        ("ns1 = 192.0.2.53", "ns1 = %(password)s", "refers to another value"),
        ("ns1 = 192.0.2.53", "ns1 = a\x1b[2J", "one line"),
        ("ns1 = 192.0.2.53", "ns1 = a\n two", "one line"),
        ("disk_count = 1", "disk_count = 3", "disk_count: is 3, but 2"),
        ("disk_count = 1", "disk_count = 0", "disk_count"),
        ("disk_count = 1", "disk_count = x", "disk_count"),
        ("nic_count = 1", "nic_count = 2", "nic_count: is 2, but 1"),
        ("disk1_size = 512", "disk2_size = 512", "disk 2 is in it and disk 1 is not"),
        ("disk0_size = 10240", "disk0_size = 0", "disk0_size"),
        ("disk0_size = 10240", "disk0_size = 9223372036854775808", "disk0_size"),
        ("8a4be3a4-0000-4000-8000-000000000002.snap", "../../../etc/shadow", "disk0_dump"),
        ("8a4be3a4-0000-4000-8000-000000000002.snap", "/etc/shadow", "disk0_dump"),
        ("disk1_size = 512", "disk1_size = 512\ndisk1_dump = X\ndisk2_size = 1\ndisk2_dump = X",
         "same dump"),
        ("name = web1", "name = ../web1", "instance.name"),
        ("os = debootstrap", "os = ../debootstrap", "export.os"),
    ],
)  # fmt: skip
def test_a_strange_description_is_refused(old: str, new: str, text: str) -> None:
    assert old in THEIRS
    with pytest.raises(InputError, match=text):
        parse_description(THEIRS.replace(old, new, 1))


@pytest.mark.sampled(0)
@pytest.mark.requirement("A54")
def test_a_huge_description_is_refused_quickly() -> None:
    for many in (
        "".join(f"[s{number}]\n" for number in range(100_000)),
        "[export]\n" + "".join(f"a{number} = 1\n" for number in range(20_000)),
        "[export]\nversion = 0\n[instance]\nname = a\n"
        + "".join(f"disk{number}_size = 1\n" for number in range(20)),
    ):
        with pytest.raises(InputError):
            parse_description(many)
