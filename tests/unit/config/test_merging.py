"""What two configurations become, and what stops or decides it (S40, S41, S49)."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.base.ids import RandomIds
from ganeti.config.fill import (
    filled_beparams,
    filled_diskparams,
    filled_hvparams,
    filled_ipolicy,
    filled_ndparams,
    filled_nicparams,
    filled_osparams,
    group_of,
)
from ganeti.config.kinds import problems_of
from ganeti.config.merging.merge import merge
from ganeti.config.merging.plan import (
    Choice,
    MergeOptions,
    MergePlan,
    Part,
    SameName,
    Severity,
    parse_choices,
)
from ganeti.config.reservations import PORTS
from ganeti.config.snapshot import Snapshot
from ganeti.config.upgrade import Reader
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.model.job_filter import FilterAction, JobFilter
from ganeti.model.objects import Cluster, Instance, Network, NetworkUuid, Nic, NodeRow
from ganeti.model.recovery import NodeState
from ganeti.model.webhook import Webhook
from tests.unit.config.merging_clusters import Maker, changed, cluster

KEEP, OURS = MergeOptions(default=Choice.KEEP), MergeOptions(default=Choice.OURS)


def texts(plan: MergePlan, severity: Severity) -> list[str]:
    return [one.text for one in plan.findings if one.severity is severity]


def only_error(plan: MergePlan) -> str:
    (error,) = plan.errors
    return error.text


def ports_of(snapshot: Snapshot) -> list[int]:
    """Every port that the configuration gives, as often as it gives it."""
    found = [one.network_port for one in snapshot.instances.values() if one.network_port]
    for instance in snapshot.instances.values():
        for disk in instance.disks:
            found += [
                int(layer.logical_id[0]) for layer in disk.layers() if layer.template == "drbd"
            ]
    return found


@pytest.mark.requirement("S41")
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), min_size=2, max_size=4),
)
def test_no_port_and_no_minor_appears_twice_in_any_merged_configuration(
    seed: int, sizes: list[tuple[int, int]]
) -> None:
    chooser = random.Random(seed)
    given_ = [Maker(number, chooser).snapshot(*size) for number, size in enumerate(sizes, 1)]
    plan = merge(given_[0], given_[1:])
    assert not plan.errors
    merged = plan.snapshot
    ports = ports_of(merged)
    assert len(set(ports)) == len(ports) == sum(len(ports_of(one)) for one in given_)
    assert set(ports) <= set(PORTS)
    minors = [
        (node, part)
        for one in merged.instances.values()
        for disk in one.disks
        for node, part in disk.parts.items()
    ]
    assert len(set(minors)) == len(minors)
    for thing in merged.objects():
        assert list(problems_of(merged, thing)) == []
    # what was ours is as it was
    for thing in given_[0].objects():
        assert merged.find(thing.uuid) == thing


@pytest.mark.requirement("S40", "S49")
def test_the_steps_of_the_design_on_two_stored_configurations() -> None:
    stored = [
        [(row.kind, row.key, row.value) for row in merge(cluster(number), []).rows()]
        for number in (1, 2)
    ]
    snapshots = []
    for rows in stored:  # opened offline: rows in, objects out
        reader = Reader(RandomIds())
        for row in rows:
            reader.add(*row)
        reader.finish()
        (one,) = [thing for thing in reader.objects if isinstance(thing, Cluster)]
        snapshots.append(Snapshot.of(1, one, others=[x for x in reader.objects if x is not one]))
    mine, other = snapshots
    plan = merge(mine, [other])
    assert not plan.errors
    merged = plan.snapshot
    assert len(merged.nodes) == len(mine.nodes) + len(other.nodes)
    assert len(merged.instances) == len(mine.instances) + len(other.instances)
    for uuid, node in other.nodes.items():
        after = merged.nodes[uuid]
        assert (after.name, after.group, after.primary_ip) == (
            node.name,
            node.group,
            node.primary_ip,
        )
        assert not after.master_candidate
        assert after.offline, "it belongs to us only when it is added again"
    assert set(plan.joining) == set(other.nodes)
    drbd = [one for one in other.instances.values() if one.disk_template == "drbd"]
    assert drbd
    taken = set(ports_of(mine))
    for before in drbd:
        after_ = merged.instances[before.uuid]
        assert [disk.uuid for disk in after_.disks] == [disk.uuid for disk in before.disks]
        for disk in after_.disks:
            assert disk.logical_id[0] not in taken
            assert disk.secret


@pytest.mark.requirement("S40")
def test_more_than_one_cluster_is_merged_at_once() -> None:
    given_ = [cluster(number) for number in (1, 2, 3)]
    plan = merge(given_[0], given_[1:])
    assert not plan.errors
    assert len(plan.snapshot.nodes) == 9
    assert plan.cluster.name == given_[0].cluster.name


def test_offline_and_drained_nodes_are_remembered() -> None:
    theirs = cluster(2)
    one, two, three = theirs.nodes_by_name()
    theirs = changed(
        theirs,
        replace(one, master_candidate=True),
        replace(two, drained=True, master_candidate=False),
        replace(three, offline=True, master_candidate=False),
    )
    plan = merge(cluster(1), [theirs])
    assert not plan.errors
    assert set(plan.joining) == {one.uuid, two.uuid}
    assert plan.drained == (two.uuid,)
    assert any(three.name in text for text in texts(plan, Severity.NOTE))


def test_the_same_objects_are_not_merged_twice() -> None:
    theirs = cluster(2)
    plan = merge(cluster(1), [theirs])
    again = merge(plan.snapshot, [theirs])
    assert "was it merged before" in only_error(again)
    assert again.snapshot == plan.snapshot


@pytest.mark.parametrize("what", ["node", "instance", "mac", "address", "volume"])
def test_what_both_claim_stops_the_merge_and_both_are_named(what: str) -> None:
    ours, theirs = cluster(1), cluster(2)
    mine, other = (one.nodes_by_name()[0] for one in (ours, theirs))
    guest, its = (next(iter(one.instances.values())) for one in (ours, theirs))
    plain = replace(its, disks=guest.disks, secondary_nodes=(), disk_template="plain")
    conflicting = {
        "node": replace(other, name=mine.name),
        "instance": replace(its, name=guest.name),
        "mac": replace(its, nics=(replace(its.nics[0], mac=guest.nics[0].mac),)),
        "address": replace(other, primary_ip=mine.primary_ip, secondary_ip=mine.primary_ip),
        "volume": plain,
    }[what]
    plan = merge(ours, [changed(theirs, conflicting)])
    assert plan.errors
    assert any(conflicting.name in one.text and "is used by" in one.text for one in plan.errors)


def test_an_address_of_a_network_that_becomes_one_is_not_given_twice() -> None:
    ours, theirs = cluster(1, 5, instances=12), cluster(2, 5, instances=12)
    (mine,), (other,) = ours.networks.values(), theirs.networks.values()
    moved = [
        replace(one, nics=tuple(_in(nic, mine) for nic in one.nics))
        for one in theirs.instances.values()
    ]
    same = replace(other, network=mine.network, name=mine.name, external=((250, 251),))
    theirs = changed(theirs, same, *moved)
    assert "this name exists here" in merge(ours, [theirs]).errors[0].text
    plan = merge(ours, [theirs], MergeOptions(networks=SameName.MERGE))
    assert any("IP address 10.1.0." in one.text for one in plan.errors)
    assert plan.snapshot.networks[mine.uuid].external == ((250, 251),)
    assert other.uuid not in plan.snapshot.networks
    free = changed(theirs, *(replace(one, nics=()) for one in moved))
    assert not merge(ours, [free], MergeOptions(networks=SameName.MERGE)).errors


def _in(nic: Nic, network: Network) -> Nic:
    address = nic.ip
    if not address:
        return nic
    return replace(nic, ip=network.network.replace("0/24", address.rpartition(".")[2]))


def test_overlapping_ranges_must_be_declared_separate() -> None:
    ours, theirs = cluster(1, instances=0), cluster(2, instances=0)
    (other,) = theirs.networks.values()
    theirs = changed(theirs, replace(other, network="10.1.0.0/16"))
    assert "overlaps 10.1.0.0/24 of our net1" in only_error(merge(ours, [theirs]))
    plan = merge(ours, [theirs], MergeOptions(networks=SameName.RENAME))
    assert not plan.errors
    assert any("overlaps" in text for text in texts(plan, Severity.NOTE))


def test_groups_of_one_name_are_merged_renamed_or_mapped() -> None:
    ours, theirs = cluster(1), cluster(2)
    (mine,), (other,) = ours.groups.values(), theirs.groups.values()
    theirs = changed(theirs, replace(other, name=mine.name))
    assert "--groups=merge" in only_error(merge(ours, [theirs]))

    renamed = merge(ours, [theirs], MergeOptions(groups=SameName.RENAME))
    assert not renamed.errors
    assert renamed.snapshot.groups[other.uuid].name == "group1-c2"

    named = merge(ours, [theirs], MergeOptions(group_names={"c2.example.com/group1": "east"}))
    assert named.snapshot.groups[other.uuid].name == "east"

    for options in (
        MergeOptions(groups=SameName.MERGE),
        MergeOptions(group_names={mine.name: mine.name}),
    ):
        plan = merge(ours, [theirs], options)
        assert not plan.errors
        assert other.uuid not in plan.snapshot.groups
        after = plan.snapshot.groups[mine.uuid]
        assert set(after.networks) == {*mine.networks, *other.networks}
        assert {node.group for node in plan.snapshot.nodes.values()} == {mine.uuid}


@pytest.mark.requirement("S39")
def test_clusters_whose_names_begin_alike_get_different_names() -> None:
    found = [cluster(number) for number in (1, 2, 3)]
    ours, *theirs = found
    (mine,) = ours.groups.values()
    for number, one in enumerate(theirs, 2):
        (other,) = one.groups.values()
        name = f"cluster.c{number}.test"
        theirs[number - 2] = changed(one, replace(other, name=mine.name), name=name)
    plan = merge(ours, theirs, MergeOptions(groups=SameName.RENAME))
    assert not plan.errors
    assert {one.name for one in plan.snapshot.groups.values()} == {
        "group1", "group1-cluster", "group1-cluster.c3",
    }  # fmt: skip


@pytest.mark.parametrize("what", ["group", "network"])
def test_a_name_in_an_option_that_nothing_has_stops_the_merge(what: str) -> None:
    ours, theirs = cluster(1), cluster(2)
    for name in ("typo", "c1.example.com/typo", f"c3.example.com/{what}2"):
        names = {name: "east"}
        options = (
            MergeOptions(group_names=names)
            if what == "group"
            else MergeOptions(network_names=names)
        )
        assert f"the {what} {name} does not exist" in only_error(merge(ours, [theirs], options))


@pytest.mark.requirement("S40")
@pytest.mark.parametrize(
    ("choice", "vlan"), [(Choice.STRICT, None), (Choice.KEEP, ".7"), (Choice.OURS, "")]
)
def test_interfaces_keep_their_vlan_in_a_merged_group(choice: Choice, vlan: str | None) -> None:
    ours, theirs = cluster(1), changed(cluster(2), nicparams={"default": {"vlan": ".7"}})
    options = MergeOptions(
        group_names={"group2": "group1"},
        choices={Part.NICPARAMS: choice},
    )
    plan = merge(ours, [theirs], options)
    if vlan is None:
        assert any(one.text.startswith("nicparams: ") for one in plan.errors)
        return
    assert not plan.errors
    for uuid in theirs.instances:
        nics = effective(plan.snapshot, uuid)["nics"]
        assert isinstance(nics, list)
        assert {nic["vlan"] for nic in nics} == {vlan}
    assert any(text.startswith("nicparams: ") for text in texts(plan, Severity.DECISION))


def test_a_group_connected_to_what_is_no_network_stops_the_merge() -> None:
    theirs = cluster(2)
    (group,) = theirs.groups.values()
    gone = NetworkUuid("99999999-0000-4000-8000-000000000009")
    theirs = changed(theirs, replace(group, networks={**group.networks, gone: {}}))
    assert gone in only_error(merge(cluster(1), [theirs]))


DIFFERENT = {
    "hvparams": {"kvm": {"kernel_args": "ro there"}},
    "os_hvp": {"debian": {"kvm": {"kernel_args": "ro debian"}}},
    "beparams": {"default": {"maxmem": 512}},
    "nicparams": {"default": {"link": "br7"}},
    "osparams": {"debian": {"mirror": "there"}},
    "ndparams": {"spindle_count": 7},
    "diskparams": {"drbd": {"c-max-rate": 777}},
    "ipolicy": {"vcpu-ratio": 9.0},
}


def effective(snapshot: Snapshot, uuid: str) -> dict[str, object]:
    """What holds for an instance in the end."""
    one = snapshot.instances[uuid]
    group = group_of(snapshot, one.primary_node)
    return {
        "hv": filled_hvparams(snapshot.cluster, one),
        "os": filled_osparams(snapshot.cluster, one),
        "be": filled_beparams(snapshot, one),
        "nics": [filled_nicparams(snapshot.cluster, nic, group) for nic in one.nics],
        "disks": filled_diskparams(snapshot.cluster, group, one.disk_template),
        "policy": filled_ipolicy(snapshot.cluster, group),
        "node": filled_ndparams(snapshot, snapshot.nodes[one.primary_node]),
    }


@pytest.mark.parametrize("name", sorted(DIFFERENT))
def test_differing_parameter_is_reported_and_resolved(name: str) -> None:
    ours, theirs = cluster(1), cluster(2)
    theirs = changed(
        theirs,
        *(replace(one, os="debian") for one in theirs.instances.values()),
        **{name: DIFFERENT[name]},
    )
    strict = merge(ours, [theirs])
    part = {"os_hvp": "hvparams"}.get(name, name)
    assert strict.errors
    assert all(f"{part}=keep or {part}=ours" in one.text for one in strict.errors)

    kept = merge(ours, [theirs], KEEP)
    assert not kept.errors
    for uuid in theirs.instances:
        assert effective(kept.snapshot, uuid) == effective(theirs, uuid)
    given_up = merge(ours, [theirs], OURS)
    assert not given_up.errors
    assert any(
        effective(given_up.snapshot, uuid) != effective(theirs, uuid) for uuid in theirs.instances
    )
    for plan in (kept, given_up):
        assert any(text.startswith(part) for text in texts(plan, Severity.DECISION))
        for uuid in ours.instances:
            assert effective(plan.snapshot, uuid) == effective(ours, uuid)


def test_recovery_parameters_of_a_group_are_kept_with_it() -> None:
    own = {"recovery_priority": 80}
    theirs = cluster(2)
    theirs = changed(theirs, *(replace(one, beparams=own) for one in theirs.groups.values()))
    merged = merge(cluster(1), [theirs])
    assert not merged.errors
    for uuid in theirs.instances:
        assert effective(merged.snapshot, uuid)["be"] == effective(theirs, uuid)["be"]
    joined = merge(cluster(1), [theirs], MergeOptions(group_names={"group2": "group1"}))
    assert all("beparams" in one.text for one in joined.errors)
    assert joined.errors


def test_parameter_set_only_in_the_local_cluster_cannot_be_unset() -> None:
    ours, theirs = cluster(1), cluster(2)
    ours = changed(ours, osparams={"debian": {"mirror": "here"}})
    theirs = changed(theirs, *(replace(one, os="debian") for one in theirs.instances.values()))
    assert "cannot be unset" in only_error(merge(ours, [theirs], KEEP))
    assert not merge(ours, [theirs], OURS).errors


def test_a_policy_cannot_be_kept_where_the_nodes_join_our_group() -> None:
    ours, theirs = cluster(1), changed(cluster(2), ipolicy={"vcpu-ratio": 9.0})
    options = MergeOptions(default=Choice.KEEP, group_names={"group2": "group1"})
    assert "its nodes join a local group" in only_error(merge(ours, [theirs], options))


def test_templates_and_hypervisors_in_use_are_enabled_or_stop_the_merge() -> None:
    ours = changed(cluster(1, instances=0), enabled_disk_templates=("plain",))
    theirs = cluster(2, instances=12)
    assert "drbd, disabled in the local cluster" in only_error(merge(ours, [theirs]))
    assert merge(ours, [theirs], KEEP).cluster.enabled_disk_templates == ("plain", "drbd")


def test_tags_lists_and_filters_of_the_cluster_are_decided() -> None:
    rule = JobFilter(
        uuid="00000000-0000-4000-e000-000000000001",
        name="f",
        watermark=9,
        action=FilterAction.PAUSE,
    )
    ours = cluster(1)
    theirs = changed(cluster(2), rule, tags=("blue",), hidden_os=("old",))
    assert len(merge(ours, [theirs]).errors) == 3
    options = MergeOptions(default=Choice.KEEP, watermark=1234)
    plan = merge(ours, [theirs], options)
    assert plan.cluster.tags == ("blue",)
    assert plan.cluster.hidden_os == ("old",)
    assert plan.snapshot.table(JobFilter)[rule.uuid].watermark == 1234
    mixed = MergeOptions(default=Choice.OURS, choices={Part.TAGS: Choice.KEEP})
    assert merge(ours, [theirs], mixed).cluster.tags == ("blue",)
    assert not merge(ours, [theirs], mixed).snapshot.table(JobFilter)


def test_schedules_of_backups_are_named_and_not_merged() -> None:
    uuid = "00000000-0000-4000-e000-000000000002"
    schedule = BackupSchedule(uuid=uuid, name="nightly", calendar="daily", all_instances=True)
    plan = merge(cluster(1), [changed(cluster(2), schedule)])
    assert any("are not merged: nightly;" in one for one in texts(plan, Severity.NOTE))
    assert not plan.snapshot.table(BackupSchedule)


def test_webhooks_are_named_and_not_merged() -> None:
    uuid = "00000000-0000-4000-e000-000000000003"
    webhook = Webhook(uuid=uuid, name="chat", url="https://h.test/", secret="0123456789abcdef")
    plan = merge(cluster(1), [changed(cluster(2), webhook)])
    assert any("webhooks are not merged: chat;" in one for one in texts(plan, Severity.NOTE))
    assert not plan.snapshot.table(Webhook)


def test_other_parameters_of_the_cluster_are_noted() -> None:
    plan = merge(cluster(1), [changed(cluster(2), mac_prefix="aa:00:77")])
    assert not plan.errors
    assert "mac_prefix was aa:00:77 in its own cluster and becomes aa:00:00" in texts(
        plan, Severity.NOTE
    )


def test_an_unsettled_migration_stops_the_merge() -> None:
    theirs = cluster(2)
    one: Instance = next(iter(theirs.instances.values()))
    theirs = changed(theirs, replace(one, migrating_to=theirs.nodes_by_name()[0].uuid))
    assert "is not settled" in only_error(merge(cluster(1), [theirs]))


def test_exhausted_ports_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganeti.config.merging.merge.PORTS", range(11000, 11001))
    plan = merge(cluster(1, instances=0), [cluster(2, instances=12)])
    assert any("no port from 11000 to 11000 is left" in one.text for one in plan.errors)


def test_choices_are_read_from_one_word() -> None:
    assert parse_choices("keep, tags=ours") == (Choice.KEEP, {Part.TAGS: Choice.OURS})
    assert parse_choices("") == (Choice.STRICT, {})
    for wrong in ("mine", "colour=keep", "tags=maybe"):
        with pytest.raises(InputError, match="must be CHOICE or PART=CHOICE"):
            parse_choices(wrong)


@pytest.mark.requirement("D7")
def test_protected_instances_of_the_other_cluster_stop_the_merge() -> None:
    theirs = cluster(2)
    one: Instance = next(iter(theirs.instances.values()))
    protected = changed(theirs, replace(one, beparams={"recovery": "failover"}))
    error = only_error(merge(cluster(1), [protected]))
    assert f"automatic recovery protects {one.name} there" in error
    assert "set recovery=none there first" in error


@pytest.mark.requirement("D12")
def test_recovery_of_the_other_clusters_epochs_is_forgotten() -> None:
    theirs = cluster(2)
    node = theirs.nodes_by_name()[0]
    row = NodeRow(node.uuid, NodeState.FENCED, 9)
    plan = merge(cluster(1), [changed(theirs, replace(node, recovery=row))])
    assert not plan.errors
    assert plan.snapshot.nodes[node.uuid].recovery is None
