"""What the original is given back."""

import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.model.objects import (
    Cluster,
    DetachedDisk,
    Instance,
    Network,
    Node,
    NodeGroup,
    NodeRow,
    NodeUuid,
)
from ganeti.model.recovery import InstanceRow, NodeState
from ganeti.model.stored import Stored
from ganeti.model.webhook import Webhook
from ganeti.upstream import forms
from ganeti.upstream.choices import Choices
from ganeti.upstream.reading import translate
from ganeti.upstream.report import Verdict
from ganeti.upstream.writing import document_of, merged
from tests.unit.upstream import sample


def original() -> forms.Document:
    return forms.parse(sample.encoded(sample.document()))


def objects() -> tuple[Stored, ...]:
    return translate(original(), Choices(keep_unknown=True)).objects


def test_unchanged_objects_are_exported_as_they_were() -> None:
    written, report = document_of(objects(), original())
    assert report.decisions == []
    ours = {"version", "serial_no"}
    ports = {"tcpudp_port_pool", "highest_used_port"}
    before = sample.document()
    for name in before.keys() - ours - {"cluster"}:
        assert written[name] == before[name], name
    for name in before["cluster"].keys() - ports:
        assert written["cluster"][name] == before["cluster"][name], name


def test_what_was_changed_here_is_changed_there() -> None:
    def changed(thing: Stored) -> Stored:
        match thing:
            case Cluster():
                return replace(thing, candidate_pool_size=9)
            case Instance(name="web2.example.com"):
                return replace(thing, beparams={"maxmem": 2048})
        return thing

    left = tuple(changed(one) for one in objects() if one.name != "web1.example.com")
    written, _ = document_of(left, original())
    assert written["cluster"]["candidate_pool_size"] == 9
    assert written["cluster"]["secret_of_the_future"] == {"a": 1}
    (instance,) = written["instances"].values()
    assert instance["beparams"] == {"maxmem": 2048}
    assert list(written["disks"]) == [sample.PLAIN]


def test_the_file_of_another_cluster_is_refused() -> None:
    other = original()
    other["cluster"]["uuid"] = sample.GUEST
    with pytest.raises(InputError, match="belongs to another cluster"):
        document_of(objects(), other)


def test_schedules_of_backups_are_named_and_left_out() -> None:
    uuid = "00000000-0000-4000-e000-000000000002"
    schedule = BackupSchedule(uuid=uuid, name="nightly", calendar="daily", all_instances=True)
    written, report = document_of((*objects(), schedule), original())
    [found] = report.decisions
    assert (found.verdict, found.what) == (Verdict.KEPT, "schedule nightly")
    assert uuid not in str(written)


def test_webhooks_are_named_and_left_out() -> None:
    uuid, secret = "00000000-0000-4000-e000-000000000003", "0123456789abcdef"
    webhook = Webhook(uuid=uuid, name="chat", url="https://h.test/", secret=secret)
    written, report = document_of((*objects(), webhook), original())
    [found] = report.decisions
    assert (found.verdict, found.what) == (Verdict.KEPT, "webhook chat")
    assert uuid not in str(written)
    assert secret not in f"{written} {report.decisions}"


def test_free_ports_are_the_unused_ones() -> None:
    written, _ = document_of(objects(), original())
    cluster = written["cluster"]
    assert cluster["highest_used_port"] == 11003
    assert cluster["tcpudp_port_pool"] == [11000, 11001]


def test_a_port_that_two_have_is_refused() -> None:
    left = tuple(
        replace(one, network_port=11002) if one.name == "web2.example.com" else one
        for one in objects()
    )
    _, report = document_of(left)
    assert [one.field for one in report.refused] == ["port"]


def test_volumes_with_two_names_are_to_be_renamed_first() -> None:
    def moved(thing: Stored) -> Stored:
        if not isinstance(thing, Instance) or thing.name != "web1.example.com":
            return thing
        (disk,) = thing.disks
        data, meta = disk.children
        other = {**data.parts, NodeUuid(sample.NODES[1]): ("xenvg", "new.data")}
        return replace(thing, disks=(replace(disk, children=(replace(data, parts=other), meta)),))

    _, report = document_of(map(moved, objects()), original())
    (decision,) = report.decisions
    assert decision.verdict is Verdict.CHANGED
    assert (
        f"on node2.example.com: lvrename xenvg new.data {sample.DISK}.disk0_data" in decision.advice
    )


def test_a_guest_that_upstream_cannot_run_is_refused_by_name() -> None:
    left = tuple(
        replace(one, hvparams={"firmware": "uefi", "tpm": True})
        if isinstance(one, Instance)
        else one
        for one in objects()
    )
    _, report = document_of(left)
    assert {one.field for one in report.refused} == {"kvm.firmware", "kvm.tpm"}
    _, kept = document_of(left, keep_unknown=True)
    assert kept.refused == []


def test_a_network_of_ipv6_is_refused_by_name() -> None:
    left = tuple(
        replace(one, network="2001:db8::/120", gateway=None, external=())
        if isinstance(one, Network)
        else one
        for one in objects()
    )
    _, report = document_of(left)
    assert "network lan" in [one.what for one in report.refused]


DISK_FIELDS = {
    *("uuid", "name", "dev_type", "logical_id", "children", "nodes", "iv_name", "size", "mode"),
    *("params", "spindles", "pci", "hvinfo", "serial_no", "dynamic_params", "ctime", "mtime"),
}
"""What the original's reader takes of a disk; any other field stops it."""


@pytest.mark.requirement("G28")
def test_a_disk_that_was_detached_here_is_one_that_upstream_reads() -> None:
    web1, rest = _detached()
    for source in (None, original()):
        written, report = document_of((*rest, web1), source)
        assert report.refused == []
        assert set(written["disks"]) == {sample.DISK, sample.PLAIN}
        for disk in written["disks"].values():
            assert disk.keys() <= DISK_FIELDS


def _detached() -> tuple[DetachedDisk, list[Stored]]:
    """The first instance's disk without it, and all other objects."""
    (web1,) = [one for one in objects() if one.name == "web1.example.com"]
    assert isinstance(web1, Instance)
    (disk,) = web1.disks
    detached = DetachedDisk(
        uuid=disk.uuid, name="root", disk=disk, nodes=web1.all_nodes, last_instance=web1.name
    )
    bare = replace(web1, disks=(), secondary_nodes=(), disk_template="diskless")
    return detached, [bare if one.uuid == web1.uuid else one for one in objects()]


def test_merging_is_by_what_has_changed() -> None:
    base = {"same": 1, "odd": [2], "deep": {"a": 1, "unknown": 3}, "gone": 4}
    old = {"same": "1", "deep": {"a": "1"}, "gone": "4"}
    new = {"same": "1", "deep": {"a": "2"}, "more": "5"}
    assert merged(base, old, new) == {
        "same": 1, "odd": [2], "deep": {"a": "2", "unknown": 3}, "more": "5",
    }  # fmt: skip


@pytest.mark.requirement("G28")
def test_parameters_of_automatic_recovery_are_left_out_and_reported() -> None:
    def changed(thing: Stored) -> Stored:
        match thing:
            case Cluster():
                params = {"default": {"recovery": "restart"}}
                return replace(thing, beparams=params, ndparams={"fence_methods": "watchdog"})
            case NodeGroup():
                own = {"fence_agent": "fence_ipmilan", "ssh_port": 2222}
                return replace(thing, ndparams=own, beparams={"recovery": "failover"})
            case Node(name="node1.example.com"):
                row = NodeRow(thing.uuid, NodeState.FENCED, 7, why="power off")
                return replace(thing, ndparams={"fence_options": "ip=192.0.2.9"}, recovery=row)
            case Instance(name="web2.example.com"):
                own = {"maxmem": 2048, "recovery": "failover", "recovery_priority": 80}
                return replace(thing, beparams=own, recovery=InstanceRow(thing.uuid, (1.0,)))
        return thing

    written, report = document_of(map(changed, objects()), original())
    assert report.refused == []
    assert all(one.verdict is Verdict.KEPT for one in report.decisions)
    (group,) = {one.what for one in report.decisions if one.what.startswith("group ")}
    assert {(one.what, one.field) for one in report.decisions} == {
        ("cluster", "beparams.recovery"),
        ("cluster", "ndparams.fence_methods"),
        (group, "ndparams.fence_agent"),
        (group, "beparams.recovery"),
        ("node node1.example.com", "ndparams.fence_options"),
        ("node node1.example.com", "recovery"),
        ("instance web2.example.com", "beparams.recovery"),
        ("instance web2.example.com", "beparams.recovery_priority"),
    }
    text = str(written)
    assert "recovery" not in text
    assert "fence_" not in text
    assert [one["ndparams"] for one in written["nodegroups"].values()] == [{"ssh_port": 2222}]


def test_export_without_an_original_has_only_parameters_that_upstream_knows() -> None:
    written, _ = document_of(objects())
    assert not [name for name in written["cluster"]["ndparams"] if name.startswith("fence_")]
    assert not [
        name for name in written["cluster"]["beparams"]["default"] if name.startswith("recovery")
    ]
