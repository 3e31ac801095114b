"""What a form gets: each value with its layer, its bounds, and when a running guest follows."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError, PrereqError
from ganeti.config.snapshot import Snapshot
from ganeti.model import wire
from ganeti.model.applies import Applies
from ganeti.model.objects import Network, NetworkUuid, Nic
from ganeti.model.opcode_table import parse_opcode
from ganeti.query.settings import Setting, settings_of
from ganeti.web.operations import JobOf
from ganeti.web.resources.every import OPERATIONS
from tests.unit.query.cluster import snapshot

MODIFY = {
    "cluster": "put_cluster_modify",
    "group": "put_groups_name_modify",
    "instance": "put_instances_name_modify",
    "node": "post_nodes_name_modify",
}
NAMES = {"cluster": "", "group": "default", "instance": "web1", "node": "node2"}


def changed(
    *,
    cluster: dict[str, Any] | None = None,
    group: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
    networks: Sequence[Network] = (),
) -> Snapshot:
    """The small cluster with values of some layers."""
    one = snapshot()
    first = one.instance_by_name("web1.example.com")
    assert first is not None
    return Snapshot.of(
        2,
        replace(one.cluster, **(cluster or {})),
        nodes=list(one.nodes.values()),
        groups=[replace(each, **(group or {})) if each.name == "default" else each for each in one.groups.values()],
        others=networks,
        instances=[replace(first, **(own or {}))],
    )  # fmt: skip


def setting(of: Snapshot, kind: str, *path: str | int) -> Setting:
    found = [one for one in settings_of(of, kind, NAMES[kind]).settings if one.path == path]
    assert len(found) == 1, path
    return found[0]


@pytest.mark.parametrize(
    ("given", "value", "source", "inherited", "inherited_from"),
    [
        ({"own": {"beparams": {}}}, 128, "default", 128, "default"),
        ({"own": {"beparams": {"maxmem": 512}}}, 512, "own", 128, "default"),
        (
            {"cluster": {"beparams": {"default": {"maxmem": 256}}}, "own": {"beparams": {}}},
            *(256, "cluster", 256, "cluster"),
        ),
        (
            {
                "cluster": {"beparams": {"default": {"maxmem": 256}}},
                "own": {"beparams": {"maxmem": 1}},
            },
            *(1, "own", 256, "cluster"),
        ),
    ],
)
def test_setting_names_the_layer_of_its_value(
    given: dict[str, Any], value: int, source: str, inherited: int, inherited_from: str
) -> None:
    found = setting(changed(**given), "instance", "custom_beparams", "maxmem")
    assert (found.value, found.source) == (value, source)
    assert (found.inherited, found.inherited_from) == (inherited, inherited_from)
    assert found.form == "size"


def test_group_layer_is_between_cluster_and_instance() -> None:
    of = changed(
        cluster={"beparams": {"default": {"max_snapshots": 3}}},
        group={"beparams": {"max_snapshots": 5}},
    )
    found = setting(of, "instance", "custom_beparams", "max_snapshots")
    assert (found.value, found.source) == (5, "group")


def test_setting_says_when_a_running_guest_follows() -> None:
    of = changed(own={"hypervisor": "kvm"})
    assert setting(of, "instance", "custom_beparams", "vcpus").applies == Applies.BY_HOTPLUG.value
    assert setting(of, "instance", "custom_beparams", "auto_balance").applies == Applies.NOW.value
    assert setting(of, "instance", "custom_hvparams", "cdrom_image_path").applies == "hotplug"
    assert setting(of, "instance", "custom_hvparams", "cpu_type").applies == "start"
    assert setting(of, "instance", "nics", 0, "link").applies == "hotplug"
    assert setting(of, "instance", "nics", 0, "name").applies == "now"


def test_bounds_come_from_the_declaration_and_the_policy() -> None:
    bounds = [{"min": dict.fromkeys(POLICY, 1), "max": dict.fromkeys(POLICY, 9)}]
    of = changed(group={"ipolicy": {"minmax": bounds}}, own={"hypervisor": "kvm"})
    assert setting(of, "instance", "custom_beparams", "vcpus").policy == (1, 9)
    priority = setting(of, "instance", "custom_beparams", "recovery_priority")
    assert (priority.minimum, priority.maximum) == (0, 100)
    assert setting(of, "instance", "custom_hvparams", "boot_order").choices[0] == "disk"
    assert 9600 in setting(of, "instance", "custom_hvparams", "serial_speed").choices


POLICY = ("memory-size", "cpu-count", "disk-count", "disk-size", "nic-count", "spindle-use")


def test_interface_in_a_network_has_no_connection_of_its_own_to_change() -> None:
    network = Network(uuid=NetworkUuid("n0"), name="net1", network="192.0.2.0/24")
    nic = Nic(uuid="n1", mac="aa:00:00:11:22:33", network=network.uuid)
    of = changed(own={"nics": (nic,)}, networks=[network])
    paths = {one.path for one in settings_of(of, "instance", "web1").settings}
    assert ("nics", 0, "ip") in paths
    assert ("nics", 0, "link") not in paths


def test_private_os_parameters_are_never_shown() -> None:
    of = changed(own={"osparams": {"size": "<b>"}, "osparams_private": {"token": "hidden"}})
    found = wire.encode(settings_of(of, "instance", "web1"))
    assert b"<b>" in found
    assert b"hidden" not in found


def test_unknown_object_and_kind_are_refused() -> None:
    with pytest.raises(PrereqError, match="none"):
        settings_of(snapshot(), "instance", "none.example.com")
    with pytest.raises(InputError, match="must be cluster"):
        settings_of(snapshot(), "job", "1")


@pytest.mark.parametrize("kind", MODIFY)
def test_every_setting_has_a_location_in_the_request_that_changes_it(kind: str) -> None:
    """The request is read by the opcode's own reader: a field that is renamed there fails this test."""
    route = next(one.does for one in OPERATIONS if one.id == MODIFY[kind])
    assert isinstance(route, JobOf)
    found = settings_of(changed(own={"hypervisor": "kvm"}), kind, NAMES[kind])
    assert found.settings
    for one in found.settings:
        part, *rest = one.path
        name = route.route.renamed.get(str(part), str(part))
        value: Any = one.value
        if part == "nics":
            value = [["modify", rest[0], {str(rest[1]): one.value}]]
        else:
            for word in reversed(rest):
                value = {word: value}
        required = {
            "group": {"group_name": "g"},
            "instance": {"instance_name": "i"},
            "node": {"node_name": "n"},
        }
        fields = {"OP_ID": route.opcode.op_id(), **required.get(kind, {}), name: value}
        assert getattr(parse_opcode(fields, what="body"), name) is not None, one.path


def test_bounds_of_a_policy_are_sent_as_a_whole() -> None:
    found = settings_of(snapshot(), "group", "default")
    [base] = found.bases
    assert base.path == ("custom_ipolicy", "minmax")
    assert {"min", "max"} == set(base.value[0])
