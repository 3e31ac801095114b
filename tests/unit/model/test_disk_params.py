"""Parameters of disk templates: names, types, ranges."""

from typing import Any

import pytest

from ganeti.base.errors import InputError
from ganeti.model.disk_params import check_disk_params
from ganeti.model.disk_templates import TEMPLATES


def test_every_default_is_a_sound_value() -> None:
    for template in TEMPLATES.values():
        assert check_disk_params(template.name, template.params, "x") == template.params


@pytest.mark.requirement("S78")
def test_no_name_has_two_meanings() -> None:
    found: dict[str, Any] = {}
    for template in TEMPLATES.values():
        for name, default in template.params.items():
            assert found.setdefault(name, default) == default, name


def test_text_of_a_command_line_takes_the_type_of_the_parameter() -> None:
    given = {"resync-rate": "1024", "dynamic-resync": "yes", "protocol": "A", "metavg": None}
    assert check_disk_params("drbd", given, "diskparams.drbd") == {
        "resync-rate": 1024,
        "dynamic-resync": True,
        "protocol": "A",
        "metavg": None,
    }


@pytest.mark.requirement("S78", "G24")
@pytest.mark.parametrize(
    ("template", "given", "where"),
    [
        ("nosuch", {}, "x: 'nosuch' is not a disk template"),
        ("file", {"stripes": 2}, "x.stripes: disk template file has no such parameter"),
        (
            "plain",
            {"strip": 2},
            "x.strip: .* it has stripe_size, stripes, thin_overcommit, thin_pool, vg",
        ),
        ("plain", {"stripe": 2, "stripes": 3}, "x.stripes: is given twice"),
        ("plain", {"stripe_size": 48}, "x.stripe_size: must be a power of two"),
        ("plain", {"vg": "-y"}, "x.vg: '-y' is not the name of a volume"),
        ("plain", {"stripes": 0}, "x.stripes: must be from 1"),
        ("plain", {"stripes": "many"}, "x.stripes: "),
        ("plain", {"stripes": True}, "x.stripes: "),
        ("drbd", {"protocol": "D"}, "x.protocol: must be one of A, B, C"),
        ("drbd", {"disk-barriers": "fb"}, "x.disk-barriers: "),
        ("drbd", {"resync-rate": -1}, "x.resync-rate: "),
        ("drbd", {"metavg": "vg/../x"}, "x.metavg: "),
        ("drbd", {"metavg": "-x"}, "x.metavg: "),
        ("drbd", {"net-custom": "--a; reboot"}, "x.net-custom: "),
        ("drbd", {"disk-custom": "a\nb"}, "x.disk-custom: "),
        ("rbd", {"access": "both"}, "x.access: "),
    ],
)
def test_what_no_template_can_have_is_refused(
    template: str, given: dict[str, Any], where: str
) -> None:
    with pytest.raises(InputError, match=f"^{where}"):
        check_disk_params(template, given, "x")


@pytest.mark.requirement("S77")
def test_the_names_of_the_design_are_taken_for_those_that_are_stored() -> None:
    assert check_disk_params("plain", {"stripe": "2", "stripe_size": 128}, "x") == {
        "stripes": 2,
        "stripe_size": 128,
    }
