"""Older files in the form of 3.0."""

import re

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
    with pytest.raises(InputError, match=r"not a config\.data of Ganeti|nodes"):
        forms.parse(data)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("cluster", "serial_no"), "x", "cluster.serial_no"),
        (("cluster", "tcpudp_port_pool"), [None], "cluster.tcpudp_port_pool[0]"),
        (("cluster", "highest_used_port"), "x", "cluster.highest_used_port"),
        (("cluster", "hvparams"), {"kvm": 7}, "cluster.hvparams[...]"),
        (("nodes", sample.NODES[0], "offline"), "no", "node node1.example.com.offline"),
        (("nodes", sample.NODES[0], "tags"), 7, "node node1.example.com.tags"),
        (("instances", sample.GUEST, "hvparams"), 7, "instance web1.example.com.hvparams"),
        (("instances", sample.GUEST, "network_port"), -1, "instance web1.example.com.network_port"),
        (("instances", sample.GUEST, "ctime"), 1e300, "instance web1.example.com.ctime"),
        (("nodegroups", sample.GROUP, "diskparams"), [[]], "group default.diskparams"),
    ],
)  # fmt: skip
def test_what_no_field_can_be_is_refused_with_object_and_field(
    place: tuple[str, ...], value: object, said: str
) -> None:
    document = sample.document()
    at = document
    for name in place[:-1]:
        at = at[name]
    at[place[-1]] = value
    with pytest.raises(InputError, match=f"^{re.escape(said)}: "):
        forms.parse(sample.encoded(document))


@pytest.mark.parametrize("table", ["nodes", "nodegroups", "instances"])
def test_a_file_without_a_table_that_each_has_is_no_configuration(table: str) -> None:
    document = sample.document()
    del document[table]
    with pytest.raises(InputError, match=f"it has no {table}"):
        forms.parse(sample.encoded(document))


@pytest.mark.requirement("G28")
def test_two_with_one_uuid_are_refused_and_none_is_lost() -> None:
    document = sample.document()
    one, two = document["instances"].values()
    two["uuid"] = one["uuid"]
    with pytest.raises(InputError, match="has the UUID of web1"):
        forms.parse(sample.encoded(document))
    document = sample.document()
    document["disks"][sample.PLAIN]["uuid"] = sample.DISK
    with pytest.raises(InputError, match="is stored under the UUID"):
        forms.parse(sample.encoded(document))
