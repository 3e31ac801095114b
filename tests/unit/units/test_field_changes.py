"""When a running guest has what was changed of its instance."""

import pytest

from ganeti.model.applies import Applies
from ganeti.units.instance.field_changes import FieldChange, waiting

CHANGES = [
    FieldChange("be", "vcpus", 2, Applies.BY_HOTPLUG),
    FieldChange("be", "auto_balance", False, Applies.NOW),
    FieldChange("hv", "cdrom_image_path", "/srv/a.iso", Applies.BY_HOTPLUG),
    FieldChange("nic.mac", "0", "aa:00:00:00:00:01", Applies.BY_HOTPLUG),
    FieldChange("nic.1", "", "remove", Applies.BY_HOTPLUG),
    FieldChange("nic.1", "", "add:…", Applies.BY_HOTPLUG),
    FieldChange("os", "", "tiny", Applies.NOW),
]


@pytest.mark.parametrize(
    ("has_devices", "at_once", "names"),
    [
        (True, (), ("be/vcpus", "hv/cdrom_image_path")),
        (True, ("hv/cdrom_image_path",), ("be/vcpus",)),
        (False, ("be/vcpus",), ("hv/cdrom_image_path", "nic.mac/0", "nic.1")),
        (False, (), ("be/vcpus", "hv/cdrom_image_path", "nic.mac/0", "nic.1")),
    ],
)
def test_what_waits_for_the_next_start_is_reported_once(
    has_devices: bool,
    at_once: tuple[str, ...],
    names: tuple[str, ...],
) -> None:
    assert waiting(CHANGES, has_devices=has_devices, at_once=at_once) == names


def test_clients_know_changes_by_their_labels() -> None:
    assert [one.label for one in CHANGES[-4:]] == ["nic.mac/0", "nic.1", "nic.1", "os"]
