"""Names, parameters, reservations."""

import msgspec
import pytest

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.fill import (
    filled_beparams,
    filled_hvparams,
    filled_ipolicy,
    filled_ndparams,
    filled_nicparams,
    filled_osparams,
    instance_spec,
)
from ganeti.config.reservations import Reservations
from ganeti.config.resolve import kept_name, resolve_group, resolve_instance, resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.simulation.counting_ids import CountingIds
from tests.unit.config.sample import (
    GROUP,
    sample_cluster,
    sample_group,
    sample_instance,
    sample_node,
    sample_snapshot,
)

SNAPSHOT = sample_snapshot(3)


@pytest.mark.requirement("S91")
@pytest.mark.parametrize(
    "text",
    ["web1.example.com", "WEB1.Example.COM", "web1", "web1.example", sample_instance(1).uuid],
)
def test_an_instance_is_found_by_uuid_full_and_short_name(text: str) -> None:
    assert resolve_instance(SNAPSHOT, text).name == "web1.example.com"


def test_nodes_and_groups_are_found_too() -> None:
    assert resolve_node(SNAPSHOT, "node2").name == "node2.example.com"
    assert resolve_node(SNAPSHOT, sample_node(3).uuid).name == "node3.example.com"
    assert resolve_group(SNAPSHOT, "default").uuid == GROUP
    assert resolve_group(SNAPSHOT, GROUP).name == "default"


@pytest.mark.parametrize("text", ["web", "web11", "node1", "b" * 36, sample_node(1).uuid])
def test_what_does_not_exist_is_unknown(text: str) -> None:
    with pytest.raises(PrereqError, match="there is no instance") as caught:
        resolve_instance(SNAPSHOT, text)
    assert caught.value.code is ErrorCode.UNKNOWN_ENTITY


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("wbe1", "; did you mean web1?"),
        ("web1.exampel.com", "; did you mean web1.example.com?"),
        ("database", ";"),
    ],
)
def test_error_for_an_unknown_name_suggests_the_most_similar_one(
    text: str, suggestion: str
) -> None:
    with pytest.raises(PrereqError) as caught:
        resolve_instance(SNAPSHOT, text)
    assert f"there is no instance {text}{suggestion}" in caught.value.message


def test_a_short_name_of_several_is_not_unique() -> None:
    twin = sample_instance(9, name="web1.example.org")
    snapshot = Snapshot.of(
        1, sample_cluster(), nodes=[sample_node(1)], instances=[sample_instance(1), twin]
    )
    with pytest.raises(PrereqError, match=r"web1\.example\.com, web1\.example\.org") as caught:
        resolve_instance(snapshot, "web1")
    assert caught.value.code is ErrorCode.NOT_UNIQUE
    assert resolve_instance(snapshot, "web1.example.org") == twin


@pytest.mark.requirement("A40")
@pytest.mark.parametrize("text", ["", "../x", "a b", "a\n", "$(id)", "a" * 300, "ｗeb1", "-x"])
def test_what_is_no_name_is_wrong_input(text: str) -> None:
    for resolve in (resolve_instance, resolve_node, resolve_group):
        with pytest.raises(InputError):
            resolve(SNAPSHOT, text)


@pytest.mark.requirement("S83")
def test_hypervisor_parameters_have_their_layers_and_globals_come_from_the_cluster() -> None:
    cluster = sample_cluster(
        hvparams={"kvm": {"acpi": False, "migration_port": 9000, "kernel_args": "cluster"}},
        os_hvp={"debian": {"kvm": {"kernel_args": "os"}}},
    )
    instance = sample_instance(1, os="debian", hvparams={"migration_port": 1, "acpi": True})
    filled = filled_hvparams(cluster, instance)
    assert filled["acpi"] is True
    assert filled["kernel_args"] == "os"
    assert filled["migration_port"] == 9000
    assert filled["boot_order"] == "disk"


def test_other_parameters_have_their_layers() -> None:
    cluster = sample_cluster(
        beparams={"default": {"vcpus": 2, "maxmem": 512}},
        nicparams={"default": {"link": "br1"}},
        ndparams={"ssh_port": 23, "spindle_count": 2},
        ipolicy={"vcpu-ratio": 8.0},
        osparams={"debian": {"a": "1", "b": "1"}, "debian+min": {"b": "2", "c": "2"}},
    )
    group = sample_group(ndparams={"spindle_count": 3}, ipolicy={"spindle-ratio": 1.0})
    node = sample_node(1, ndparams={"cpu_speed": 2.0})
    snapshot = Snapshot.of(1, cluster, nodes=[node], groups=[group])
    instance = sample_instance(1, os="debian+min", beparams={"maxmem": 64}, osparams={"c": "3"})
    assert filled_beparams(snapshot, instance)["maxmem"] == 64
    assert filled_beparams(snapshot, instance)["vcpus"] == 2
    assert filled_nicparams(cluster, instance.nics[0])["link"] == "br1"
    ndparams = filled_ndparams(snapshot, node)
    assert (ndparams["ssh_port"], ndparams["spindle_count"], ndparams["cpu_speed"]) == (23, 3, 2.0)
    policy = filled_ipolicy(cluster, group)
    assert (policy["vcpu-ratio"], policy["spindle-ratio"]) == (8.0, 1.0)
    assert filled_osparams(cluster, instance) == {"a": "1", "b": "2", "c": "3"}
    spec = instance_spec(snapshot, instance)
    assert (spec.memory, spec.vcpus, spec.nics[0].link) == (64, 2, "br1")
    assert spec.disks[0].logical_id == ("loop", "/srv/web1/disk0")


@pytest.mark.requirement("G11")
def test_what_one_job_reserved_no_other_gets_until_it_ends() -> None:
    reservations = Reservations(CountingIds())
    mac = reservations.new_mac(1, SNAPSHOT)
    assert mac.startswith("aa:00:00:")
    assert reservations.new_mac(1, SNAPSHOT) != mac
    with pytest.raises(PrereqError, match="reserved by job 1"):
        reservations.take_mac(2, mac.upper(), SNAPSHOT)
    reservations.take_name(1, "new.example.com")
    with pytest.raises(PrereqError) as caught:
        reservations.take_name(2, "new.example.com")
    assert caught.value.code is ErrorCode.EXISTS
    reservations.release(1)
    reservations.release(1)
    assert reservations.count() == 0
    assert reservations.take_mac(2, mac, SNAPSHOT) == mac
    reservations.take_name(2, "new.example.com")


def test_what_an_instance_has_cannot_be_reserved() -> None:
    reservations = Reservations(CountingIds())
    (nic,) = sample_instance(1).nics
    with pytest.raises(PrereqError, match="already in use") as caught:
        reservations.take_mac(1, nic.mac, SNAPSHOT)
    assert caught.value.code is ErrorCode.NOT_UNIQUE
    with pytest.raises(InputError):
        reservations.take_mac(1, "rubbish", SNAPSHOT)
    addressed = msgspec.structs.replace(nic, ip="198.51.100.1")
    snapshot = Snapshot.of(1, sample_cluster(), instances=[sample_instance(1, nics=(addressed,))])
    with pytest.raises(PrereqError, match="already in use"):
        reservations.take_ip(1, "198.51.100.1", "br0", snapshot)
    reservations.take_ip(1, "198.51.100.1", "br9", snapshot)


def test_new_addresses_are_never_those_in_use() -> None:
    class Stuck(CountingIds):
        def number(self, below: int) -> int:
            return 1 if self._count < 3 and self._next() else super().number(below)

    mac = Reservations(Stuck()).new_mac(1, SNAPSHOT)
    assert mac not in {nic.mac for one in SNAPSHOT.instances.values() for nic in one.nics}

    class Broken(CountingIds):
        def number(self, below: int) -> int:
            return 1

    with pytest.raises(PrereqError, match="no free MAC address") as caught:
        Reservations(Broken()).new_mac(1, SNAPSHOT)
    assert caught.value.code is ErrorCode.NO_RESOURCES


def test_backups_are_named_like_their_instance_even_if_it_has_another_domain_than_the_cluster() -> (
    None
):
    other = sample_instance(1, name="web1.other.test")
    twin = sample_instance(2, name="web2.other.test"), sample_instance(3, name="web2.example.com")
    snapshot = Snapshot.of(1, sample_cluster(), nodes=[sample_node(1)], instances=[other, *twin])
    assert kept_name(snapshot, "web1") == kept_name(snapshot, other.uuid) == "web1.other.test"
    assert kept_name(snapshot, "gone") == "gone.example.com"
    assert kept_name(snapshot, "gone.other.test") == "gone.other.test"
    with pytest.raises(PrereqError, match="matches"):
        kept_name(snapshot, "web2")
    with pytest.raises(PrereqError, match="there is no instance"):
        kept_name(snapshot, sample_instance(9).uuid)
