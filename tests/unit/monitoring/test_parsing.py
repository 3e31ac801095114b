"""Figures of the kernel and of programs, as the collectors report them."""

import pytest

from ganeti.base.errors import HostError
from ganeti.monitoring import disks, drbd, processors
from ganeti.monitoring.processors import Sample, Window
from ganeti.monitoring.report import Code

STAT = """\
cpu  100 20 30 5000 7 3 2 1 60 10
cpu0 50 10 15 2500 3 1 1 1 30 5
cpu1 50 10 15 2500 4 2 1 0 30 5
intr 12345 6 7
btime 1700000000
"""


def test_a_processor_s_work_is_all_but_idling_and_guests_count_once() -> None:
    assert processors.parse_stat(STAT) == {"cpu": 163.0, "cpu0": 81.0, "cpu1": 82.0}


@pytest.mark.parametrize("text", ["", "intr 1\n", "cpu  1 2 x 4 5\n"])
def test_what_is_no_such_file_is_refused(text: str) -> None:
    with pytest.raises(HostError):
        processors.parse_stat(text)


def window(*samples: tuple[float, dict[str, float]]) -> Window:
    one = Window()
    for at, values in samples:
        one.add(Sample(at, values))
    return one


def test_the_load_is_the_mean_over_the_window() -> None:
    loads = window((0, {"cpu": 0, "cpu0": 0}), (5, {"cpu": 100, "cpu0": 90}), (10, {"cpu": 500, "cpu0": 400}))  # fmt: skip
    assert processors.load_data(loads.rates(), 100) == {
        "cpu_number": 1, "cpus": [0.4], "cpu_total": 0.5,
    }  # fmt: skip


def test_samples_older_than_ten_minutes_do_not_count() -> None:
    assert window((0, {"cpu": 0}), (500, {"cpu": 0}), (1000, {"cpu": 50})).rates() == {"cpu": 0.1}


@pytest.mark.parametrize("samples", [(), ((0.0, {"cpu": 1.0}),), ((3.0, {"cpu": 1.0}),) * 2])
def test_one_moment_is_no_load(samples: tuple[tuple[float, dict[str, float]], ...]) -> None:
    with pytest.raises(HostError, match="not sufficient"):
        processors.load_data(window(*samples).rates(), 100)


def test_restarted_counter_is_counted_from_its_restart() -> None:
    fell = window((0, {"vm": 900.0}), (10, {"vm": 1000.0}), (20, {"vm": 5.0}), (120, {"vm": 105.0}))
    assert fell.rates() == {"vm": 1.0}
    assert fell.rates(least_s=processors.XEN_LEAST_S) == {"vm": 1.0}
    assert fell.rates(least_s=101) == {}


def test_domains_of_xen_and_their_seconds() -> None:
    text = (
        "      NAME  STATE   CPU(sec) CPU(%)\n"
        "  Domain-0 -----r       1234    1.0\n"
        "      web1 --b---         17    0.0\n"
        "     later ------        n/a    0.0\n"
    )
    assert processors.parse_xentop(text) == {"web1": 17.0}
    for other in ("", "NAME STATE MEM\n", "nonsense"):
        with pytest.raises(HostError):
            processors.parse_xentop(other)


def test_block_devices_with_or_without_what_newer_kernels_tell() -> None:
    line = "   7       0 loop0 125 19 4272 31 602 969 7534 781 0 828 1486"
    [old] = disks.parse_diskstats(f"{line}\n")
    assert disks.parse_diskstats(f"{line} 1 2 3 4 5 6\n") == [old]
    assert old == {
        "major": 7, "minor": 0, "name": "loop0", "readsNum": 125, "mergedReads": 19,
        "secRead": 4272, "timeRead": 31, "writes": 602, "mergedWrites": 969, "secWritten": 7534,
        "timeWrite": 781, "ios": 0, "timeIO": 828, "wIOmillis": 1486,
    }  # fmt: skip
    for bad in ("7 0", "7 0 loop0 1 2 3", "a 0 loop0 1 2 3 4 5 6 7 8 9 10 11"):
        with pytest.raises(HostError):
            disks.parse_diskstats(bad)


LVS = (
    "  uuid-1;9ff3.disk0_data;-wi-ao;-1;-1;253;0;1073741824B;1;a,originstname+web1.example.com;;"
    "vg-uuid;xenvg;linear;0B;0;1073741824B;;/dev/sda5:0-15;/dev/sda5(0)\n"
)


def test_logical_volumes_with_the_instance_of_their_tag() -> None:
    [volume] = disks.parse_lvs(LVS)
    assert (volume["name"], volume["size"], volume["kernel_major"]) == (
        "9ff3.disk0_data", 1073741824, 253,
    )  # fmt: skip
    assert (volume["vg_name"], volume["seg_pe_ranges"]) == ("xenvg", "/dev/sda5:0-15")
    assert volume["instance"] == "web1.example.com"
    assert disks.parse_lvs(LVS.replace("originstname+", "other+"))[0]["instance"] is None
    with pytest.raises(HostError):
        disks.parse_lvs(LVS.replace(";linear", ""))


DRBD = """\
version: 8.4.11 (api:1/proto:86-101)
srcversion: 99E7D3BB3BAD5AE1E1A9E1F
 0: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----
    ns:1048576 nr:0 dw:0 dr:1049240 al:0 bm:64 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
 1: cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent C r-----
    ns:184640 nr:0 dw:0 dr:185304 al:0 bm:11 lo:0 pe:2 ua:0 ap:0 ep:1 wo:f oos:864896
	[==>.................] sync'ed: 17.7% (864896/1048576)K
	finish: 0:00:18 speed: 46,160 (46,160) K/sec
 2: cs:Unconfigured
"""


def test_mirrored_disks_as_the_kernel_shows_them() -> None:
    found = drbd.parse(DRBD, {1: "web1"})
    assert found["versionInfo"] == {
        "version": "8.4.11", "api": "1", "proto": "86-101", "srcversion": "99E7D3BB3BAD5AE1E1A9E1F",
    }  # fmt: skip
    good, syncing, none = found["deviceInfos"]
    assert none == {"minor": 2, "connectionState": "Unconfigured"}
    assert good["instance"] is None
    assert (good["localRole"], good["remoteState"], good["ioFlags"]) == (
        "Primary",
        "UpToDate",
        "r-----",
    )
    assert good["perfIndicators"]["networkSend"] == 1048576
    assert good["perfIndicators"]["writeOrder"] == "f"
    assert len(good["perfIndicators"]) == 13
    assert syncing["instance"] == "web1"
    assert syncing["syncStatus"] == {
        "percentage": 17.7, "progress": "864896/1048576", "progressUnit": "KiloByte",
        "timeToFinish": "0:00:18", "speed": 46160, "speedUnit": "KiloByte/Second",
    }  # fmt: skip
    assert found["status"] == {
        "code": Code.MENDING,
        "message": "1: the disks are being synchronized",
    }


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----", Code.GOOD),
        ("cs:Unconfigured", Code.GOOD),
        ("cs:WFConnection ro:Primary/Unknown ds:UpToDate/DUnknown C r-----", Code.MENDING),
        ("cs:StandAlone ro:Primary/Unknown ds:UpToDate/DUnknown   r-----", Code.BAD),
        ("cs:Connected ro:Primary/Secondary ds:Diskless/UpToDate C r-----", Code.BAD),
        ("cs:Connected ro:Primary/Secondary ds:UpToDate/Failed C r-----", Code.BAD),
        ("cs:Connected ro:Primary/Secondary ds:UpToDate/Outdated C r-----", Code.UNKNOWN),
        ("cs:NewWord ro:Primary/Secondary ds:UpToDate/UpToDate C r-----", Code.UNKNOWN),
    ],
)
def test_what_to_think_of_a_mirrored_disk(line: str, code: Code) -> None:
    found = drbd.parse(f"version: 8.4.11\n 0: {line}\n")
    assert found["status"]["code"] == code
    assert bool(found["status"]["message"]) == (code != Code.GOOD)


def test_the_worst_disk_decides() -> None:
    lines = "".join(
        f" {minor}: cs:{state} ro:a/b ds:UpToDate/UpToDate C r\n"
        for minor, state in enumerate(("StandAlone", "WFConnection", "Connected"))
    )
    status = drbd.parse(f"version: 8.4.11\n{lines}")["status"]
    assert status["code"] == Code.BAD
    assert status["message"].startswith("0: ")
    assert "; 1: " in status["message"]


def test_a_file_without_a_version_is_refused() -> None:
    with pytest.raises(HostError):
        drbd.parse("")
