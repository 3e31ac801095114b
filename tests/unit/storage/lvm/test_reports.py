"""What LVM says, word for word as lvm2 2.03 prints it."""

import json

import pytest

from ganeti.base.errors import StorageError
from ganeti.storage.lvm import commands, reports
from ganeti.storage.lvm.commands import VolumeName

VOLUMES = b"""
  {
      "report": [
          {
              "lv": [
                  {"vg_name":"xenvg", "vg_uuid":"gUuLYU-aa", "lv_name":"d1", "lv_uuid":"ZBh6-bb", "lv_attr":"-wi-ao----", "lv_size":"67108864", "lv_tags":"ganeti.disk.11111111-0000-4000-8000-000000000000,ganeti.unwiped.4194304", "lv_kernel_major":"253", "lv_kernel_minor":"4", "origin":""},
                  {"vg_name":"xenvg", "vg_uuid":"gUuLYU-aa", "lv_name":"[m_mlog]", "lv_uuid":"x", "lv_attr":"lwi---r-p-", "lv_size":"4194304", "lv_tags":"", "lv_kernel_major":"-1", "lv_kernel_minor":"-1", "origin":""}
              ]
          }
      ]
  }
"""
PARTS = b"""{"report": [{"lv": [
 {"vg_name":"xenvg", "lv_name":"d1", "lv_attr":"-wi-a-----", "lv_size":"67108864", "devices":"/dev/sda5(0),/dev/sdb(16)"},
 {"vg_name":"xenvg", "lv_name":"d1", "lv_attr":"-wi-a-----", "lv_size":"67108864", "devices":"/dev/sdc(0)"}]}]}"""


def test_a_volume_has_its_tags_state_and_device() -> None:
    first, second = reports.volumes(VOLUMES)
    assert (first.name, first.size, first.device) == ("d1", 64 * 2**20, (253, 4))
    assert (first.is_active, first.is_open, first.is_partial, first.is_plain) == (
        True,
        True,
        False,
        True,
    )
    assert first.disk == "11111111-0000-4000-8000-000000000000"
    assert first.unwiped_from == 4194304
    assert first.device_mapper_uuid == "LVM-gUuLYUaaZBh6bb"
    assert (second.name, second.device, second.disk) == ("m_mlog", None, None)
    assert (second.is_active, second.is_partial, second.is_plain) == (False, True, False)


def test_a_volume_of_several_segments_is_listed_once_with_all_that_it_lies_on() -> None:
    (one,) = reports.parts(PARTS)
    assert one.devices == ("/dev/sda5", "/dev/sdb", "/dev/sdc")


@pytest.mark.parametrize(
    "text", ["", "no such report", "{}", '{"report": [{"vg": [{}]}]}', '{"report": 1}']
)
def test_what_is_no_report_is_an_error(text: str) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        reports.groups(text.encode())


def test_a_report_without_rows_is_empty() -> None:
    empty = json.dumps({"report": [{"pv": []}]}).encode()
    assert reports.physical(empty) == []


@pytest.mark.requirement("S77")
def test_the_words_of_a_creation() -> None:
    words = commands.create(
        VolumeName("xenvg", "d0"), 8, ["t1"], stripes=(2, 128), clear=False, on=["/dev/sda"]
    )
    assert " ".join(words) == (
        "lvcreate --yes --wipesignatures n --zero n --size 8b --stripes 2 --stripesize 128k"
        " --addtag t1 --name d0 -- xenvg /dev/sda"
    )


@pytest.mark.requirement("A49", "G24")
@pytest.mark.parametrize("path", ["sda", "/dev/../etc/x", "/etc/x", "-f", "/dev/a\nb"])
def test_only_devices_are_physical_volumes(path: str) -> None:
    with pytest.raises(StorageError, match="not the path of a device"):
        commands.set_allocatable(path, allocatable=False)
