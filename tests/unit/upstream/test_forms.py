"""Older files in the form of 3.0."""

import pytest

from ganeti.base.errors import InputError
from ganeti.upstream import forms
from tests.unit.upstream import sample


def test_an_older_file_has_the_same_nodes_instances_and_disks_as_a_new_one() -> None:
    new = forms.parse(sample.encoded(sample.document()))
    old = forms.parse(sample.encoded(sample.older(sample.document())))
    assert old["nodes"] == new["nodes"]
    assert old["cluster"]["master_node"] == sample.NODES[0]
    for uuid, one in new["instances"].items():
        disks = [old["disks"][disk] for disk in old["instances"][uuid]["disks"]]
        assert [disk["dev_type"] for disk in disks] == [
            new["disks"][disk]["dev_type"] for disk in one["disks"]
        ]
        assert [disk["logical_id"] for disk in disks] == [
            new["disks"][disk]["logical_id"] for disk in one["disks"]
        ]
        assert old["instances"][uuid]["primary_node"] == one["primary_node"]


def test_uuids_that_a_file_lacks_are_the_same_each_time() -> None:
    data = sample.encoded(sample.older(sample.document()))
    assert forms.parse(data) == forms.parse(data)
    assert all(len(uuid) == 36 for uuid in forms.parse(data)["disks"])


def test_a_policy_with_one_pair_of_bounds_has_a_list_of_pairs() -> None:
    policy = forms.parse(sample.encoded(sample.older(sample.document())))["cluster"]["ipolicy"]
    (pair,) = policy["minmax"]
    assert pair["max"]["cpu-count"] == 9
    assert not {"min", "max"} & policy.keys()


def test_a_file_storage_word_that_meant_two_templates_becomes_the_right_one() -> None:
    old = sample.older(sample.document())
    one = old["instances"]["web2.example.com"]
    one["disk_template"] = "sharedfile"
    one["disks"][0] |= {"dev_type": "file", "logical_id": ["loop", "/srv/shared/a"]}
    new = forms.parse(sample.encoded(old))
    (disk,) = new["instances"][one["uuid"]]["disks"]
    assert new["disks"][disk]["dev_type"] == "sharedfile"


@pytest.mark.parametrize("version", [2060000, 2180000, 3020000, "3", None])
def test_other_versions_are_refused_by_name(version: object) -> None:
    with pytest.raises(InputError, match="version"):
        forms.parse(sample.encoded({**sample.document(), "version": version}))


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"cluster": 1}', b'{"cluster": {}, "version": 3000000, "nodes": [1]}',
     b'{"cluster": {}, "version": 3000000, "nodes": {"a": {}}}', b'{"version": NaN}'],
)  # fmt: skip
def test_what_is_no_configuration_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        forms.parse(data)
