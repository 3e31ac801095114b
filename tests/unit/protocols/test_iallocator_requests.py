"""The requests to allocators: keys and values of each type."""

from typing import Any

import pytest

from ganeti.base.errors import InputError
from ganeti.model.iallocator import RequestType, default_allocators, parse_defaults
from ganeti.model.params import IPOLICY_DEFAULTS
from ganeti.placement.answers import answer
from ganeti.protocols import iallocator
from ganeti.protocols import iallocator_requests as requests

SPEC: dict[str, Any] = {
    "memory": 512,
    "vcpus": 1,
    "spindle_use": 1,
    "disks": [],
    "disk_space_total": 0,
    "disk_template": "sharedfile",
    "nics": [],
    "hypervisor": "kvm",
    "os": "tiny",
    "tags": [],
}
GROUP = "00000000-0000-4000-9000-00000000000a"
OTHER = "00000000-0000-4000-9000-00000000000b"


def _node(group: str) -> dict[str, Any]:
    return {
        "group": group,
        "offline": False,
        "drained": False,
        "vm_capable": True,
        "total_memory": 8192,
        "reserved_memory": 128,
        "free_memory": 4096,
        "total_disk": 100000,
        "free_disk": 100000,
        "total_cpus": 8,
        "reserved_cpus": 1,
        "tags": [],
        "ndparams": {"spindle_count": 10, "exclusive_storage": False, "oob_program": ""},
    }


def _message(request: dict[str, Any]) -> dict[str, Any]:
    policy = {**IPOLICY_DEFAULTS, "disk-templates": ["sharedfile"], "vcpu-ratio": 4}
    groups = {
        uuid: {"name": name, "alloc_policy": "preferred", "networks": [], "tags": [], "ipolicy": policy}
        for uuid, name in ((GROUP, "one"), (OTHER, "two"))
    }  # fmt: skip
    nodes = {name: _node(GROUP) for name in ("n1", "n2")} | {"n3": _node(OTHER), "n4": _node(OTHER)}
    here = {**SPEC, "admin_state": "up", "nodes": ["n1"]}
    cluster = {"cluster_name": "c", "cluster_tags": [], "enabled_hypervisors": ["kvm"], "ipolicy": policy}  # fmt: skip
    return iallocator.message(cluster, groups, nodes, {"web1": here}, request)


@pytest.mark.sampled(9)
@pytest.mark.requirement("S169", "S170", "S172", "S173", "S174", "S175", "S186", "S187")
@pytest.mark.parametrize(
    "request_",
    [
        requests.allocate("new", 1, SPEC),
        requests.allocate("new", 1, SPEC, "two"),
        requests.relocate("web1", 1, 0, ["n1"]),
        requests.node_evacuate(["web1"], requests.PRIMARY_ONLY),
        requests.change_group(["web1"], [OTHER]),
        requests.multi_allocate([requests.allocate("new", 1, SPEC)]),
        requests.multi_evacuate(["n1"]),
        requests.balance(3),
        requests.capacity(1, SPEC, 5),
    ],
    ids=lambda request: request["type"],
)
def test_the_built_in_allocator_answers_each_type(request_: dict[str, Any]) -> None:
    found = answer(_message(request_))
    assert found["success"], found["info"]
    result = found["result"]
    match request_["type"]:
        case "allocate":
            [node] = result
            assert node in (("n3", "n4") if "group_name" in request_ else ("n1", "n2", "n3", "n4"))
        case "relocate":
            assert result == ["n2"]
        case "node-evacuate":
            moved, failed, jobs = result
            assert (moved, failed) == ([["web1", "one", ["n2"]]], [])
            assert "OP_INSTANCE_" in str(jobs)
        case "change-group":
            [[name, group, [node]]], failed, jobs = result
            assert (name, group, failed) == ("web1", "two", [])
            assert node in ("n3", "n4")
            assert "OP_INSTANCE_" in str(jobs)
        case "multi-allocate":
            assert [name for name, _nodes in result[0]] == ["new"]
            assert result[1] == []
        case "multi-evacuate":
            assert list(result) == []
        case "balance":
            assert result is not None
        case "capacity":
            assert result


def test_every_type_has_its_request() -> None:
    made = {"allocate", "relocate", "node-evacuate", "change-group", "multi-allocate"}
    assert set(RequestType) == made | {"multi-evacuate", "balance", "capacity"}


@pytest.mark.requirement("S173")
def test_an_unknown_kind_of_evacuation_is_refused() -> None:
    with pytest.raises(InputError, match="primary-only, secondary-only, all"):
        requests.node_evacuate([], "some")


@pytest.mark.requirement("S172", "S234")
def test_a_relocation_names_what_it_leaves() -> None:
    found = answer(_message(requests.relocate("web1", 1, 0, ["n1"])))
    assert found["result"] == ["n2"]


@pytest.mark.requirement("S184")
def test_lists_of_allocators_by_kind_of_request() -> None:
    text = "mine,hail/relocate=other/balance=hail"
    assert default_allocators(text, RequestType.ALLOCATE) == ("mine", "hail")
    assert default_allocators(text, RequestType.RELOCATE) == ("other",)
    assert default_allocators("", RequestType.ALLOCATE) == ()
    assert default_allocators("relocate=other", RequestType.ALLOCATE) == ()


@pytest.mark.requirement("S184", "F36")
@pytest.mark.parametrize("text", ["../x", "a,,b", "nothing=a", "a/b", "relocate=a/relocate=b", "a b"])  # fmt: skip
def test_wrong_lists_of_allocators_are_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_defaults(text)
    assert caught.value.field == "default_iallocator"
