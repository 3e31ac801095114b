"""What fields declare to refer to, and that each one which could name something declares it."""

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest

from ganeti.model.fields import RefersTo, declared_references
from ganeti.model.opcode_table import OPCODES
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.opcodes.instance_changes import OpInstanceSetParams
from ganeti.model.opcodes.placing import OpInstanceMultiAlloc
from ganeti.model.reach import references


def can_name(kind: Any) -> bool:
    """Whether a value of this type may hold a name, a UUID or a path; nested structs declare for themselves."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return False
    if kind is Any or (isinstance(kind, type) and issubclass(kind, str | dict | list)):
        return True
    return any(can_name(one) for one in get_args(kind))


def nested(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for one in get_args(kind):
        yield from nested(one)


def undeclared(kind: type[Any]) -> set[str]:
    """Fields of a struct, and of those in it, that could name something and do not say what."""
    found, declared = set(), declared_references(kind)
    for base in kind.__mro__:
        for name, note in vars(base).get("__annotations__", {}).items():
            if name not in kind.__struct_fields__:
                continue
            type_ = get_args(note)[0] if get_origin(note) is Annotated else note
            if can_name(type_) and name not in declared:
                found.add(f"{kind.__name__}.{name}")
            for one in nested(type_):
                found |= undeclared(one)
    return found


@pytest.mark.requirement("G21")
@pytest.mark.parametrize("kind", OPCODES.values(), ids=lambda kind: kind.__name__)
def test_every_field_that_can_name_something_declares_what(kind: type[OpCode]) -> None:
    assert undeclared(kind) == set()


def test_a_new_field_without_a_declaration_is_noticed() -> None:
    class Inner(msgspec.Struct):
        volume: str

    class New(OpCode, frozen=True, kw_only=True, tag="OP_NEW"):
        node_name: str
        inner: tuple[Inner, ...] = ()
        other: Annotated[str | None, RefersTo.NODE] = None

    assert undeclared(New) == {"New.node_name", "Inner.volume"}


def test_references_are_read_from_everything_that_a_request_holds() -> None:
    op = OpInstanceMultiAlloc(
        instances=[
            OpInstanceCreate(
                instance_name="web1",
                disks=[DiskRequest(size=1, vg="fast", params={"stripes": 2, "lun": "7"})],
                hvparams={"kernel_path": "/boot/x", "vnc_tls": True, "acpi": False},
                osparams={"image": "/srv/x", "dns": "192.0.2.1"},
                depends=[(-1, []), (5, ["success"])],
            )
        ]
    )
    found = {(one.field, one.kind, one.value) for one in references(op)}
    assert found == {
        ("instances[0].instance_name", RefersTo.NEW_INSTANCE, "web1"),
        ("instances[0].disks[0].vg", RefersTo.STORAGE, "fast"),
        ("instances[0].disks[0].params.lun", RefersTo.STORAGE, "7"),
        ("instances[0].hvparams.kernel_path", RefersTo.PATH, "/boot/x"),
        ("instances[0].osparams.image", RefersTo.PATH, "/srv/x"),
        ("instances[0].depends[1]", RefersTo.JOB, 5),
    }


def test_changes_of_devices_are_read_in_every_form() -> None:
    op = OpInstanceSetParams(
        instance_name="web1",
        disks=[
            ["attach", {"name": "data"}],
            ["attach", 0, {"uuid": "u"}],
            ["add", {"size": 1, "adopt": "vol", "mode": "rw"}],
            [0, {"provider": "p"}],
        ],
        nics=[["add", -1, {"network": "net1", "ip": "pool"}], ["modify", 0, {"link": "default"}],
              [0, {"vlan": ":5"}]],
    )  # fmt: skip
    found = [(one.kind, one.value) for one in references(op)]
    assert found == [
        (RefersTo.INSTANCE, "web1"),
        (RefersTo.NETWORK, "net1"),
        (RefersTo.LINK, ":5"),
        (RefersTo.DETACHED_DISK, "data"),
        (RefersTo.DETACHED_DISK, "u"),
        (RefersTo.PATH, "vol"),
        (RefersTo.STORAGE, "p"),
    ]
