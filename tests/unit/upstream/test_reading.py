"""What becomes of each thing in a configuration of the original."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ganeti.base.errors import InputError
from ganeti.config.index import index_of
from ganeti.config.kinds import entry_of, problems_of
from ganeti.config.snapshot import Snapshot
from ganeti.model.job_filter import FilterAction, JobFilter
from ganeti.model.objects import Instance, Network, Node, NodeGroup
from ganeti.upstream import forms
from ganeti.upstream.choices import Choices, parse_hypervisors, parse_names
from ganeti.upstream.reading import Imported, translate
from ganeti.upstream.report import Verdict
from ganeti.upstream.writing import document_of
from tests.unit.upstream import sample

KEEP = Choices(keep_unknown=True)
FIXTURES = Path(
    os.environ.get("GANETI_FIXTURES") or Path(__file__).resolve().parents[4] / "shared" / "fixtures"
)
VERSIONS = ("2.7", "2.8", "2.9", "2.10", "2.11", "2.13", "2.14", "2.16", "3.0")


def read(document: sample.Document, choices: Choices = KEEP) -> Imported:
    return translate(forms.parse(sample.encoded(document)), choices)


def snapshot_of(found: Imported) -> Snapshot:
    return Snapshot.of(1, found.cluster, others=found.others)


def wrong_in(found: Imported) -> list[Any]:
    """What our rules have against it."""
    snapshot = snapshot_of(found)
    _, conflicts = index_of(entry_of(found.cluster, one) for one in found.objects)
    problems = [text for one in found.objects for _, text in problems_of(snapshot, one)]
    return [*conflicts, *problems]


def decided(found: Imported) -> dict[tuple[str, str], Verdict]:
    return {(one.what, one.field): one.verdict for one in found.report.decisions}


def only(found: Imported, kind: type[Any]) -> Any:
    (one,) = (thing for thing in found.others if isinstance(thing, kind))
    return one


def test_the_cluster_has_its_parameters() -> None:
    cluster = read(sample.document()).cluster
    assert (cluster.name, cluster.uuid, cluster.serial_no) == (
        "cluster.example.com", sample.CLUSTER, 41,
    )  # fmt: skip
    assert (cluster.master_node, cluster.master_ip) == (sample.NODES[0], "192.0.2.9")
    assert (cluster.vg_name, cluster.mac_prefix, cluster.uid_pool) == (
        "xenvg", "aa:bb:cc", ((61000, 61099),),
    )  # fmt: skip
    assert (cluster.hidden_os, cluster.blacklisted_os) == (("old",), ("bad",))
    assert cluster.beparams == {"default": {"vcpus": 2}}
    assert cluster.ndparams == {"cpu_speed": 2.0, "oob_program": "/usr/local/bin/oob"}
    assert cluster.diskparams == {"drbd": {"resync-rate": 1024}}
    assert cluster.enabled_data_collectors == {"drbd": False}
    assert cluster.data_collector_interval == {"drbd": 7_000_000}
    assert not cluster.prealloc_wipe_disks
    assert cluster.file_storage_dir == "/srv/ganeti/files"
    assert cluster.shared_file_storage_dir == ""


def test_different_defaults_of_upstream_are_stored() -> None:
    kvm = read(sample.document()).cluster.hvparams["kvm"]
    assert kvm["kvm_path"] == "/usr/bin/kvm"
    assert kvm["scsi_controller_type"] == "lsi"
    assert "kernel_path" not in kvm  # said to be empty, as here


def test_compressions_are_those_that_upstream_allows() -> None:
    document = sample.document()
    assert read(document).cluster.compression_tools == ("gzip", "gzip-fast", "gzip-slow")
    document["cluster"]["compression_tools"] = ["lz4", "gzip", "pigz"]
    found = read(document)
    assert found.cluster.compression_tools == ("gzip", "lz4")
    assert decided(found)["cluster", "compression_tools"] is Verdict.KEPT
    written, _ = document_of([found.cluster, *found.others], None, keep_unknown=True)
    assert written["cluster"]["compression_tools"] == ["gzip", "lz4"]


def test_a_mirrored_disk_has_port_minors_secret_and_both_volumes() -> None:
    snapshot = snapshot_of(read(sample.document()))
    instance = snapshot.instance_by_name("web1.example.com")
    assert instance is not None
    assert instance.secondary_nodes == (sample.NODES[1],)
    (disk,) = instance.disks
    assert disk.logical_id == (11002,)
    assert disk.parts == {sample.NODES[0]: (0,), sample.NODES[1]: (5,)}
    assert len(disk.secret) == 40
    assert [child.size for child in disk.children] == [1024, 128]
    assert disk.children[0].parts == dict.fromkeys(
        sample.NODES, ("xenvg", f"{sample.DISK}.disk0_data")
    )
    assert instance.osparams_private == {"password": "s3cret"}


def test_an_interface_in_a_network_has_what_the_network_has() -> None:
    found = read(sample.document())
    instance = snapshot_of(found).instance_by_name("web1.example.com")
    assert instance is not None
    assert instance.nics[0].nicparams == {}
    assert instance.nics[0].ip == "203.0.113.20"
    assert only(found, Network).external == ((8, 8),)
    assert only(found, NodeGroup).networks[sample.NETWORK]["link"] == "br9"


def test_an_interface_that_differs_from_its_network_is_a_decision() -> None:
    document = sample.document()
    (nic,) = document["instances"][sample.instance(1, [])["uuid"]]["nics"]
    nic["nicparams"] = {"mode": "bridged", "link": "br8"}
    what = ("instance web1.example.com: interface 0", "nicparams")
    assert decided(read(document))[what] is Verdict.KEPT
    assert decided(read(document, Choices()))[what] is Verdict.REFUSED


def test_images_outside_of_our_directory_open_theirs() -> None:
    assert read(sample.document()).cluster.hvparams["kvm"]["image_directories"] == (
        "/srv/ganeti/images:/data/iso"
    )
    document = sample.document()
    document["instances"][sample.instance(2, [])["uuid"]]["hvparams"]["cdrom_image_path"] = "/etc/a"
    assert decided(read(document, Choices()))["cluster", "cdrom_image_path"] is Verdict.REFUSED


def test_a_filter_keeps_its_number() -> None:
    job_filter = only(read(sample.document()), JobFilter)
    assert (job_filter.action, job_filter.most, job_filter.watermark) == (
        FilterAction.RATE_LIMIT, 3, 12,
    )  # fmt: skip


def test_nodes_have_joined_nothing() -> None:
    nodes = [one for one in read(sample.document()).others if isinstance(one, Node)]
    assert [node.certificate for node in nodes] == ["", ""]
    assert [node.master_candidate for node in nodes] == [True, False]


def test_an_unknown_field_is_refused_by_name_or_kept_on_request() -> None:
    what = ("cluster", "secret_of_the_future")
    refused = read(sample.document(), Choices())
    assert [(one.what, one.field) for one in refused.report.refused] == [what]
    assert "--keep-unknown" in str(refused.report.refused[0])
    assert decided(read(sample.document()))[what] is Verdict.KEPT


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hypervisor": "xen-pvm"}, "hypervisor"),
        ({"forthcoming": True}, "forthcoming"),
        ({"disks": ["gone"]}, "disks"),
        ({"disks": [sample.DISK, sample.PLAIN]}, "disks"),
    ],
)
def test_an_instance_that_cannot_be_here_is_refused_by_name_or_left_in_the_file(
    change: dict[str, Any], field: str
) -> None:
    document = sample.document()
    del document["cluster"]["secret_of_the_future"]
    document["instances"][sample.instance(2, [])["uuid"]] |= change
    what = ("instance web2.example.com", field)
    assert decided(read(document, Choices()))[what] is Verdict.REFUSED
    kept = read(document)
    assert decided(kept)[what] is Verdict.KEPT
    assert snapshot_of(kept).instance_by_name("web2.example.com") is None
    again, _ = document_of(kept.objects, forms.parse(sample.encoded(document)))
    assert sample.instance(2, [])["uuid"] in again["instances"]


@pytest.mark.parametrize(
    "logical_id",
    [["xenvg"], ["xenvg", "../../etc/passwd"], ["-vg", "a"], ["a", 1], None],
)
def test_names_of_volumes_reach_no_command_as_something_else(logical_id: object) -> None:
    document = sample.document()
    document["disks"][sample.PLAIN]["logical_id"] = logical_id
    assert ("instance web2.example.com", "disks") in decided(read(document))


def test_a_hypervisor_can_be_exchanged() -> None:
    document = sample.document()
    document["cluster"]["enabled_hypervisors"] = ["xen-pvm"]
    for one in document["instances"].values():
        one |= {"hypervisor": "xen-pvm", "hvparams": {"root_path": "/dev/xvda1"}}
    refused = read(document)
    assert "--hypervisor" in str(refused.report.refused[0])
    found = read(document, Choices(True, {}, parse_hypervisors(["xen-pvm=kvm"], ["kvm"])))
    assert found.report.refused == []
    instances = [one for one in found.others if isinstance(one, Instance)]
    assert [(one.hypervisor, one.hvparams) for one in instances] == [("kvm", {})] * 2
    assert found.cluster.enabled_hypervisors == ("kvm",)


def test_a_name_that_nothing_can_have_is_refused_with_the_option_that_helps() -> None:
    document = sample.document()
    document["networks"][sample.NETWORK]["name"] = "a network"
    (refused,) = read(document).report.refused
    assert "--rename='network:a network=a-network'" in str(refused)
    found = read(document, Choices(True, parse_names(["network:a network=a-network"])))
    assert found.report.refused == []
    assert only(found, Network).name == "a-network"


@pytest.mark.parametrize("text", ["lan=a", "planet:a=b", "network:=b", "network:a="])
def test_a_request_without_a_change_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_names([text])


def test_shutdown_by_users_counts_only_if_the_cluster_enables_it() -> None:
    document = sample.document()
    document["cluster"]["hvparams"]["kvm"]["user_shutdown"] = True
    assert "user_shutdown" not in read(document).cluster.hvparams["kvm"]
    document["cluster"]["enabled_user_shutdown"] = True
    assert read(document).cluster.hvparams["kvm"]["user_shutdown"] is True


@pytest.mark.sampled(8)
@pytest.mark.parametrize("value", [None, 7, "x", [], [[]], {"a": {"b": 1}}])
@pytest.mark.parametrize(
    "table", ["nodes", "instances", "nodegroups", "networks", "disks", "filters"]
)
def test_damage_of_a_field_is_an_error_or_a_decision(table: str, value: object) -> None:
    original = sample.document()
    places = [(key, name) for key, one in original[table].items() for name in one]
    assert sum(_is_judged(original, table, *place, value) for place in places) == len(places)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("value", [None, 7, "x", [], [[]], {"a": {"b": 1}}])
def test_damage_of_the_cluster_is_an_error_or_a_decision(value: object) -> None:
    original = {"cluster": sample.document()["cluster"]}
    assert all(
        _is_judged(sample.document(), "", "cluster", name, value) for name in original["cluster"]
    )


def _is_judged(original: sample.Document, table: str, key: str, name: str, value: object) -> bool:
    """Whether it is read to its end, or refused with words."""
    document = copy.deepcopy(original)
    (document[table] if table else document)[key][name] = value
    try:
        read(document)
    except InputError as err:
        return bool(err.message)
    return True


@pytest.mark.parametrize("field", ["primary_ip", "secondary_ip"])
def test_a_node_without_an_address_is_refused_by_name(field: str) -> None:
    document = sample.document()
    document["nodes"][sample.NODES[0]][field] = "somewhere"
    assert decided(read(document))["node node1.example.com", field] is Verdict.REFUSED


def test_addresses_are_written_alike_so_that_two_of_the_same_are_found() -> None:
    document = sample.document()
    document["nodes"][sample.NODES[0]]["primary_ip"] = "2001:DB8:0::1"
    nodes = [one for one in read(document).others if isinstance(one, Node)]
    assert nodes[0].primary_ip == "2001:db8::1"


def test_static_states_of_a_node_or_group_are_reported_and_kept() -> None:
    document = sample.document()
    document["nodes"][sample.NODES[0]]["hv_state_static"] = {"kvm": {"mem_node": 1024}}
    document["nodegroups"][sample.GROUP]["disk_state_static"] = {"plain": {}}
    found = decided(read(document))
    assert found["node node1.example.com", "hv_state_static"] is Verdict.KEPT
    assert found["group default", "disk_state_static"] is Verdict.KEPT


@pytest.mark.requirement("G28")
def test_an_unknown_table_is_refused_by_name_and_exported_again() -> None:
    document = sample.document() | {"maintenance": {"maint_balance": True}}
    what = ("configuration", "maintenance")
    assert decided(read(document, Choices()))[what] is Verdict.REFUSED
    kept = read(document)
    assert decided(kept)[what] is Verdict.KEPT
    again, _ = document_of(kept.objects, forms.parse(sample.encoded(document)))
    assert again["maintenance"] == {"maint_balance": True}


def test_a_mirrored_disk_must_be_on_the_primary_node() -> None:
    document = sample.document()
    other = "22222222-0000-4000-8000-000000000003"
    document["nodes"][other] = {
        **document["nodes"][sample.NODES[0]],
        "uuid": other,
        "name": "node3.example.com",
        "primary_ip": "192.0.2.3",
        "secondary_ip": "198.51.100.3",
        "master_candidate": False,
    }
    document["instances"][sample.GUEST]["primary_node"] = other
    assert ("instance web1.example.com", "disks") in decided(read(document))


@pytest.mark.parametrize(
    ("disk", "change"),
    [
        (sample.PLAIN, {"mode": "-rf"}),
        (sample.DISK, {"children": [sample.volume(sample.PLAIN, "a", logical_id=[None, 7])] * 2}),
    ],
)
def test_a_disk_that_cannot_be_is_refused_by_name(disk: str, change: dict[str, Any]) -> None:
    document = sample.document()
    document["disks"][disk] |= change
    assert any(field == "disks" for _, field in decided(read(document)))


def test_names_of_disks_and_interfaces_are_names() -> None:
    document = sample.document()
    document["disks"][sample.DISK]["name"] = document["instances"][sample.GUEST]["nics"][0][
        "name"
    ] = "a\nb"
    found = decided(read(document))
    assert found["instance web1.example.com: disk 0", "name"] is Verdict.KEPT
    assert found["instance web1.example.com: interface 0", "name"] is Verdict.KEPT


def test_a_detached_disk_that_cannot_be_here_is_left_in_the_file_on_request() -> None:
    document = sample.document()
    document["disks"]["88888888-0000-4000-8000-000000000009"] = sample.volume(
        "88888888-0000-4000-8000-000000000009", "x", dev_type="gluster"
    )
    refused = read(document, Choices()).report.refused
    assert "disks of the kind gluster are not supported" in refused[-1].text
    assert read(document).report.refused == []


@pytest.mark.parametrize("bits", [64, 0, -1])
def test_a_netmask_that_the_address_cannot_have_is_refused(bits: int) -> None:
    document = sample.document()
    document["cluster"]["master_netmask"] = bits
    assert ("cluster", "master_netmask") in decided(read(document))


def test_reservations_are_bits() -> None:
    document = sample.document()
    document["networks"][sample.NETWORK]["ext_reservations"] = "yes"
    assert ("network lan", "ext_reservations") in decided(read(document))


def test_an_unsupported_value_is_reported_even_if_it_is_empty() -> None:
    document = sample.document()
    document["instances"][sample.GUEST]["hvparams"] = {"cpu_mask": "", "migration_downtime": None}
    found = decided(read(document))
    assert found["instance web1.example.com", "hvparams.kvm.cpu_mask"] is Verdict.CHANGED
    assert ("instance web1.example.com", "hvparams.kvm.migration_downtime") not in found


def test_a_report_contains_a_field_once() -> None:
    document = sample.document()
    document["instances"][sample.GUEST]["tags"] = ["größe"]
    (refused,) = [one for one in read(document, Choices()).report.refused if one.field == "tags"]
    assert refused.text.startswith("'größe' is not a tag")


def test_the_report_is_readable_and_json() -> None:
    report = read(sample.document(), Choices()).report
    assert next(iter(report.lines())).startswith("refused: cluster: secret_of_the_future: ")
    data = json.loads(json.dumps(report.as_json()))
    assert data["counts"]["instances"] == 2
    assert {"verdict", "what", "field", "text", "advice"} == data["decisions"][0].keys()


@pytest.mark.sampled(0)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sample.documents())
def test_what_was_imported_and_exported_is_imported_as_the_same(document: sample.Document) -> None:
    first = read(document, Choices())
    assert first.report.refused == []
    assert wrong_in(first) == []
    for original in (None, forms.parse(sample.encoded(document))):
        written, report = document_of(first.objects, original)
        assert report.refused == []
        again = read(written, Choices())
        assert again.report.refused == []
        assert {one.uuid: one for one in again.objects} == {one.uuid: one for one in first.objects}


@pytest.mark.parametrize("version", VERSIONS)
def test_upstreams_own_files_go_in_out_and_in(version: str) -> None:
    path = FIXTURES / "config" / f"cluster_config_{version}.json"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    choices = Choices(
        names=parse_names(["network:a network=lan"]),
        hypervisors=parse_hypervisors(["xen-pvm=kvm"], ["kvm"]),
    )
    document = forms.parse(path.read_bytes())
    first = translate(document, choices)
    assert first.report.refused == []
    assert wrong_in(first) == []
    assert first.report.counts == {
        "groups": 2, "nodes": 3, "networks": 1, "instances": 3, "disks": 3,
    }  # fmt: skip
    for original in (None, document):
        written, report = document_of(first.objects, original)
        assert report.refused == []
        again = translate(forms.parse(sample.encoded(written)))
        assert {one.uuid: one for one in again.objects} == {one.uuid: one for one in first.objects}
    kept = translate(document, Choices(keep_unknown=True, names=choices.names))
    assert [one.field for one in kept.report.refused] == ["enabled_hypervisors"]


def test_nothing_of_a_disk_is_dropped_in_silence() -> None:
    document = sample.document()
    del document["cluster"]["secret_of_the_future"]
    document["disks"][sample.DISK]["spindles"] = 2
    document["disks"][sample.PLAIN]["spindles"] = 3
    first, second = document["instances"].values()
    first |= {"admin_state": "up", "disks_active": False}
    second |= {"admin_state": "down", "disks_active": True}
    found = translate(forms.parse(sample.encoded(document)))
    said = {(one.what, one.field): one.text for one in found.report.decisions}
    assert said["instance web1.example.com: disk 0", "spindles"] == "a disk of drbd has none here"
    assert ("instance web2.example.com: disk 0", "spindles") not in said
    assert "are not active" in said["instance web1.example.com", "disks_active"]
    assert "are active" in said["instance web2.example.com", "disks_active"]
    assert said["disks", "ctime, mtime"].startswith("2 disks")
    written, _ = document_of(found.objects)
    assert written["disks"][sample.PLAIN]["spindles"] == 3
    assert written["disks"][sample.PLAIN]["params"] == {}
