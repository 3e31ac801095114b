"""Every field of every opcode gets values that nobody should send, as a client sends them."""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from ganeti.base.errors import GanetiError, InputError
from ganeti.model import wire
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS, check_hypervisor_params
from ganeti.model.iallocator import AllocatorAnswer
from ganeti.model.opcode_table import OPCODES, parse_opcode
from ganeti.model.opcodes.base import NicRequest, OpCode
from ganeti.model.opcodes.network import OpNetworkAdd
from ganeti.model.opcodes.test import OpTestDelay
from ganeti.model.params import (
    BACKEND_DEFAULTS,
    IPOLICY_DEFAULTS,
    NIC_DEFAULTS,
    NODE_DEFAULTS,
)
from ganeti.protocols.paper_key import groups_of
from ganeti.units import allocation
from ganeti.units.test import queue
from tests.support.lone_run import LoneRun
from tests.support.units_cluster import Master
from tests.unit.units.opcodes import NAME, create

TEXTS = (
    "", " ", ".", "..", "../x", "/etc/x", "a/../b", "x" * 300, f"/srv/{'x' * 300}", "/" + "x/" * 3000,
    "name\n", "a\nb", "\x1b[2J", "-x", "--", "two words", "$(id)", "`id`", ";id", "a|b", "'\"", "%s%n",
    "{0}", "{", "[", "(", "*", "\\", "\u202eabc", "．．", "ä", "WEB1.example.com", "xn--e1afmkfd",
    "none", "default", "None", "null", "0", "-1", "99999999999999999999", "1e9", "nan", "0x10", "1.5.2",
    ":", ",", "=", "a=b", "/", "//", "/proc/self", "@", "#", "٣", "²", "1:2:3", "-0-", "0-", ".", "4095",
)  # fmt: skip
NUMBERS = (0, -1, 1, 2**31, 2**63 - 1, -(2**63), 0.5, -0.0, 1e308)
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": None},
    {"x": {}},
    [1, 2],
    [True],
)
NASTY: tuple[Any, ...] = (*TEXTS, *NUMBERS, *OTHERS)
FEW: tuple[Any, ...] = (
    *(
        "",
        "\n",
        "../x",
        "x" * 300,
        "/" + "x" * 300,
        "-1",
        "none",
        "default",
        "٣",
        "{",
        "ä",
        ":",
        ",",
        "-",
    ),
    *(0, -1, 2**63 - 1, 0.5, None, True, [], {}, [None], {"": {}}),
)
"""For places within places."""

KEYS: Mapping[str, tuple[str, ...]] = {
    "hvparams": (
        *("kernel_path", "acpi", "migration_port", "boot_order", "cpu_mask", "kvm_extra", ""),
        *("image_directories", "vnc_bind_address", "usb_devices", "vnc_password_file"),
    ),
    "beparams": (*BACKEND_DEFAULTS, "memory", ""),
    "nicparams": (*NIC_DEFAULTS, ""),
    "ndparams": (*NODE_DEFAULTS, ""),
    "ipolicy": (*IPOLICY_DEFAULTS, ""),
}
"""What dictionaries of parameters may have; of hypervisors' one of each form, for they have a test below."""
DEVICES = {
    "disks": ("size", "mode", "name", "preallocation", "spindles", "uuid", ""),
    "nics": ("mac", "ip", "mode", "link", "vlan", "name", "network", ""),
}

REQUIRED: Mapping[str, Any] = {
    "instance_name": NAME, "node_name": "node2.example.com", "group_name": "default", "kind": "instance",
    "name": NAME, "tags": ["a"], "pattern": "a", "new_name": "other.example.com", "mode": "all",
    "nodes": ["node2.example.com"], "disk": 0, "snapshot": "daily", "amount": 1, "duration": 0.0,
    "target_node": "node2.example.com", "instance": NAME, "network_name": "lan",
    "schedule_name": "nightly", "webhook_name": "chat", "network": "198.51.100.0/29", "network_mode": "bridged", "network_link": "br0", "what": "node",
    "x509_key_name": ["x509-a", "0" * 40, "salt"], "fields": ["name"], "output_fields": ["name"], "command": "health", "path": "/etc/motd",
    "node_names": ["node2.example.com"], "storage_type": "lvm-vg", "changes": {"allocatable": True},
    "secret": " ".join(groups_of(bytes(32))), "key_id": "0123456789abcdef",
    "image_name": "box", "source": "/srv/ganeti/images/box.raw",
}  # fmt: skip
"""A sound value of every field without a default, by its name."""
CREATE = {
    **msgspec.to_builtins(create("new.example.com")),
    "hypervisor": "kvm",
}


def _base(kind: type[OpCode]) -> dict[str, Any]:
    """A sound message of this opcode."""
    if kind.op_id() == "OP_INSTANCE_CREATE":
        return dict(CREATE)
    fields = msgspec.structs.fields(kind)
    found = {one.encode_name: REQUIRED[one.name] for one in fields if one.required}
    return {"OP_ID": kind.op_id(), **found}


def _values(field: str, everywhere: tuple[Any, ...]) -> Iterator[Any]:
    """What the field is given: everything in its place, and in the places within it."""
    yield from everywhere
    for one in FEW:
        yield [one]
        yield [one, one]
        yield {"x": one}
        yield {str(one): {str(one): one}}
    for key, one in itertools.product(KEYS.get(field, ()), FEW):
        yield {key: one}
        yield {"kvm": {key: one}}
        yield {"tiny": {"kvm": {key: one}}}
    for key, one in itertools.product(DEVICES.get(field, ()), FEW):
        yield [{"size": 512, key: one}]
        yield [{key: one}]
        yield [["add", -1, {"size": 512, key: one}]]
        yield [["add", -1, {key: one}]]
        yield [["modify", 0, {key: one}]]
        yield [[0, {key: one}]]
    for one in FEW:
        yield [["remove", one, {}]]
        yield [[one, one]]
        yield [["add", one]]


async def _problem(master: Master, message: dict[str, Any]) -> str | None:
    """What is wrong with how a message is refused; None if it is taken, or refused as it should be."""
    try:
        op = parse_opcode(wire.parse_foreign(json.dumps(message).encode()))
        await master.processor.run(LoneRun(op))
    except InputError as err:
        return None if err.field else f"no field is named: {err.message}"
    except GanetiError as err:
        return err.message if "internal error" in err.message else None
    finally:
        master.config.reservations.release(LoneRun.job_id)
    return None


@pytest.mark.sampled(6)
@pytest.mark.requirement("A40")
@pytest.mark.parametrize("kind", OPCODES.values(), ids=OPCODES)
@pytest.mark.parametrize(
    "everywhere", [FEW, pytest.param(NASTY, marks=pytest.mark.soak)], ids=["few", "all"]
)
async def test_no_value_of_any_field_is_an_internal_error(
    master: Master,
    kind: type[OpCode],
    everywhere: tuple[Any, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_args: object) -> AllocatorAnswer:
        return AllocatorAnswer(success=False, info="no room", result=[])

    monkeypatch.setattr(allocation, "ask_one", refuse)
    monkeypatch.setattr(queue, "CONNECT_S", 0.01)  # no program connects
    view = await master.run(create(hypervisor="fake", nics=[NicRequest(ip="192.0.2.9")]))
    assert view.status == "success", view
    lan = OpNetworkAdd(network_name="lan", network="203.0.113.0/29")
    assert (await master.run(lan)).status == "success"
    wrong: dict[str, str] = {}
    common = () if kind is OpTestDelay else OpCode.__struct_fields__
    base = {**_base(kind), "dry_run": True}
    for field in msgspec.structs.fields(kind):
        for value in _values(field.name, everywhere) if field.name not in common else ():
            if problem := await _problem(master, {**base, field.encode_name: value}):
                wrong.setdefault(f"{field.name}: {problem[:200]}", f"{value!r:.200}")
    assert not wrong, "\n".join(f"{problem} <- {value}" for problem, value in wrong.items())


@pytest.mark.sampled(20)
@pytest.mark.requirement("A40")
@pytest.mark.parametrize("name", HYPERVISOR_PARAMS["kvm"])
def test_no_value_of_a_hypervisor_parameter_is_an_internal_error(name: str) -> None:
    known = HYPERVISOR_PARAMS["kvm"][name]
    for value in NASTY:
        try:
            found = check_hypervisor_params("kvm", {name: value}, of_instance=False, field="hv")
        except InputError as err:
            field = err.field
        else:
            field = f"hv.{name}"
            assert type(found[name]) is type(known.default)
        assert field == f"hv.{name}"
