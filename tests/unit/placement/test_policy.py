"""Instance policies: what they allow, and how they say no."""

from typing import Any

import pytest

from ganeti.model.params import IPOLICY_DEFAULTS
from ganeti.placement.policy import InstanceSize, policy_violations

pytestmark = pytest.mark.requirement("S235")


def size(**fields: Any) -> InstanceSize:
    given: dict[str, Any] = {
        "memory": 128,
        "vcpus": 1,
        "disks": (1024,),
        "nics": 1,
        "disk_template": "file",
    }
    return InstanceSize(**{**given, **fields})


def test_the_default_policy_allows_ordinary_instances() -> None:
    assert policy_violations(IPOLICY_DEFAULTS, size()) == []
    assert policy_violations(IPOLICY_DEFAULTS, size(disk_template="diskless", disks=())) == []


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"memory": 0}, "memory-size 0 is not between 1 and 1048576"),
        ({"vcpus": 257}, "cpu-count 257 is not between 1 and 256"),
        ({"disks": (1,) * 17}, "disk-count 17 is not between 0 and 16"),
        ({"nics": 9}, "nic-count 9 is not between 0 and 8"),
        ({"disks": (1, 2**40)}, f"disk-size {2**40} is not between 0 and"),
        ({"spindle_use": 65}, "spindle-use 65 is not between 0 and 64"),
        ({"disk_template": "nosuch"}, "disk template nosuch is not allowed"),
    ],
)
def test_each_limit_binds(fields: dict[str, Any], text: str) -> None:
    (wrong,) = policy_violations(IPOLICY_DEFAULTS, size(**fields))
    assert text in wrong


def test_one_range_that_fits_is_enough() -> None:
    small = {"min": {"memory-size": 1}, "max": {"memory-size": 100}}
    large = {"min": {"memory-size": 1000}, "max": {"memory-size": 2000}}
    policy = {"minmax": [small, large]}
    assert policy_violations(policy, size(memory=50)) == []
    assert policy_violations(policy, size(memory=1500)) == []
    (wrong,) = policy_violations(policy, size(memory=500))
    assert (
        wrong
        == "memory-size 500 is not between 1 and 100 or memory-size 500 is not between 1000 and 2000"
    )


def test_a_policy_without_limits_allows_all() -> None:
    assert policy_violations({}, size(memory=10**9)) == []
