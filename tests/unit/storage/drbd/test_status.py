"""What DRBD 8.4.11 with drbd-utils 9.22 said on a real node, and what is read from it."""

from dataclasses import replace

import pytest

from ganeti.storage.drbd.status import (
    JUST_CREATED,
    Progress,
    Resource,
    Settings,
    Superblock,
    parse_events,
    parse_generations,
    parse_progress,
    parse_show,
    parse_superblock,
)

EVENTS = """\
exists resource name:abc-uuid role:Primary suspended:no write-ordering:flush
exists connection name:abc-uuid peer-node-id:0 conn-name:peer connection:Connected role:Secondary congested:no
exists device name:abc-uuid volume:0 minor:0 disk:UpToDate size:98304 read:11692 written:0 blocked:no
exists peer-device name:abc-uuid peer-node-id:0 conn-name:peer volume:0 replication:SyncSource \
peer-disk:Inconsistent resync-suspended:no received:0 sent:11692 out-of-sync:86612 pending:0 unacked:0
exists -
"""
NEW = """\
exists resource name:abc-uuid role:Secondary suspended:no write-ordering:flush
exists connection name:abc-uuid peer-node-id:0 connection:StandAlone role:Unknown congested:no
exists device name:abc-uuid volume:0 minor:0 disk:Diskless size:0 read:0 written:0 blocked:no
exists peer-device name:abc-uuid peer-node-id:0 volume:0 replication:Off peer-disk:DUnknown out-of-sync:0
exists -
"""
SHOW = """\
resource abc-uuid {
    options {
    }
    net {
        cram-hmac-alg   \t"sha256";
        shared-secret   \t"s3cret";
        allow-two-primaries\tyes;
    }
    _remote_host {
        address\t\t\tipv4 10.77.4.2:11000;
    }
    _this_host {
        address\t\t\tipv4 10.77.4.1:11000;
        volume 0 {
            device\t\t\tminor 0;
            disk\t\t\t"/dev/xenvg/d0.data";
            meta-disk\t\t\t"/dev/xenvg/d0.meta";
            disk {
                size            \t196608s; # bytes
                resync-rate     \t4096k; # bytes/second
            }
        }
    }
}
"""
UNCONNECTED = """\
resource abc-uuid {
    options {
    }
    _this_host {
        volume 0 {
            device\t\t\tminor 0;
        }
    }
}
"""
PROC = """\
version: 8.4.11 (api:1/proto:86-101)
srcversion: F73C670A7EC572DB9CF3E5B
 0: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent C r-----
    ns:9408 nr:0 dw:0 dr:9408 al:8 bm:0 lo:0 pe:6 ua:0 ap:0 ep:1 wo:f oos:89784
\t[==>.................] sync'ed: 16.0% (89784/98304)K
\tfinish: 0:00:10 speed: 8,520 (8,520) K/sec
 7: cs:SyncTarget ro:Secondary/Primary ds:Inconsistent/UpToDate C r-----
    ns:0 nr:37888 dw:37888 dr:0 al:8 bm:0 lo:1 pe:10 ua:0 ap:0 ep:1 wo:f oos:60416
\t[=======>............] sync'ed: 44.0% (60416/98304)K
\tfinish: 1:01:06 speed: 9,472 (9,472) want: 100,000 K/sec
 8: cs:Connected ro:Secondary/Secondary ds:UpToDate/UpToDate C r-----
    ns:0 nr:0 dw:0 dr:0 al:8 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
"""
SUPERBLOCK = (
    "0000000000000004 0000000000000000 0000000000000000 0000000000000000"
    "0000000000000000 0000000000000000 00000080 8374026b"
    "00040000 00000008 00000101 00000048 00001000 00000000 00000001 00000008"
)


def test_a_device_that_is_being_filled() -> None:
    (found,) = parse_events(EVENTS).values()
    assert found == Resource(
        name="abc-uuid",
        role="Primary",
        minor=0,
        disk="UpToDate",
        size_kib=98304,
        connection="Connected",
        peer_role="Secondary",
        peer_disk="Inconsistent",
        replication="SyncSource",
        out_of_sync_kib=86612,
    )
    assert found.settled
    assert found.synchronising
    assert found.words == "Primary, UpToDate, peer Secondary, Inconsistent, SyncSource"


def test_a_device_without_disk_and_connection() -> None:
    (found,) = parse_events(NEW).values()
    assert not found.attached
    assert not found.settled
    assert found.words == "Secondary, Diskless, StandAlone"
    assert parse_events("exists -\n") == {}


def test_the_settings_of_a_resource_without_its_secret() -> None:
    found = parse_show(SHOW)
    assert found == Settings(
        data="/dev/xenvg/d0.data",
        meta="/dev/xenvg/d0.meta",
        own=("10.77.4.1", 11000),
        peer=("10.77.4.2", 11000),
        two_primaries=True,
    )
    assert "s3cret" not in repr(found)
    assert parse_show(UNCONNECTED) == Settings()


def test_the_progress_of_one_minor_of_several() -> None:
    assert parse_progress(PROC, 0) == Progress(16.0, 10.0, 8520)
    assert parse_progress(PROC, 7) == Progress(44.0, 3666.0, 9472)
    assert parse_progress(PROC, 8) is None
    assert parse_progress(PROC, 1) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "0000000000000004:0000000000000000:0000000000000000:0000000000000000:0:0:0",
            (JUST_CREATED,),
        ),
        (
            "C47D8768AFB91AF9:45219F9124E60F5B:0000000000000004:0000000000000000:1:1",
            ("C47D8768AFB91AF8",),
        ),
    ],
)
def test_generations(text: str, wanted: tuple[str, ...]) -> None:
    found = parse_generations(text)
    assert found[:1] == wanted
    assert len(found) == 4


@pytest.mark.parametrize("text", ["", "unknown minor", "12:34:56:78"])
def test_no_generations(text: str) -> None:
    assert parse_generations(text) == ()


def test_metadata_as_drbdmeta_makes_it() -> None:
    block = bytes(8) + bytes.fromhex(SUPERBLOCK.replace(" ", ""))
    new = Superblock(0, (JUST_CREATED, *["0" * 16] * 3))
    assert parse_superblock(block) == new
    used = (98304 * 2).to_bytes(8, "big") + block[8:]
    assert parse_superblock(used) == replace(new, size_sectors=98304 * 2)
    assert parse_superblock(bytes(4096)) is None
    assert parse_superblock(b"short") is None
