"""Every opcode has a unit, and every step that units record can be undone."""

import inspect
import re
from typing import Any

import msgspec
import pytest

from ganeti.model.opcode_table import OPCODES
from ganeti.units.base import LogicalUnit
from ganeti.units.registry import UNITS
from ganeti.units.undo.run import STEPS
from ganeti.units.undo.step import Step


def test_every_opcode_has_a_unit_of_its_name() -> None:
    assert set(UNITS) == set(OPCODES.values())
    for opcode, unit in UNITS.items():
        assert unit.__name__ == opcode.__name__.replace("Op", "LU", 1)


@pytest.mark.parametrize("unit", UNITS.values(), ids=lambda unit: unit.__name__)
def test_every_unit_has_a_docstring_and_lies_with_its_subject(
    unit: type[LogicalUnit[Any, Any]],
) -> None:
    assert unit.__doc__
    assert unit.__doc__ != LogicalUnit.__doc__
    subject = re.match(r"LU([A-Z][a-z]+)", unit.__name__)
    assert subject is not None
    # Checks and repairs of mirrored disks are one subject, whatever an opcode names; so are
    # the moves of instances and their disks to other nodes.
    packages = (subject[1].lower(), "mirrors", "relocation")
    assert unit.__module__.startswith(tuple(f"ganeti.units.{one}." for one in packages))


def test_every_kind_of_undo_step_can_be_read_back_from_a_record() -> None:
    kinds = Step.__subclasses__()
    for kind in kinds:
        kinds += kind.__subclasses__()
    named = {kind.kind: kind for kind in kinds if "kind" in vars(kind) and kind.kind != "unknown"}
    assert named == STEPS


def test_undo_step_without_its_methods_cannot_be_created() -> None:
    assert Step.__abstractmethods__ == {"run", "concerns"}
    assert not any(inspect.isabstract(kind) for kind in STEPS.values())


# Stored jobs have these names and fields: what is here may be added to, and is never changed.
STORED = {
    "remove_disk": {"node", "instance", "disk"},
    "forget_instance": {"instance"},
    "stop_instance": {"node", "instance"},
    "forget_nvram": {"node", "instance"},
    "settle_migration": {"instance", "source", "target"},
    "end_source": {"node", "instance"},
    "change_disk_of_guest": {"node", "change"},
    "change_nic_of_guest": {"node", "change"},
    "set_memory_of_guest": {"node", "change"},
    "remove_transfer_key": {"node", "instance", "key_name"},
    "end_stream": {"node", "instance", "token", "receives"},
    "confirm_stream": {"node", "instance", "token"},
    "remove_export": {"node", "instance", "unfinished"},
    "drop_snapshot": {"node", "instance", "disk", "name"},
}


def test_what_stored_jobs_have_to_undo_can_be_read_for_ever() -> None:
    assert STORED.keys() <= STEPS.keys()
    for kind, names in STORED.items():
        fields = msgspec.structs.fields(STEPS[kind])
        assert names <= {field.name for field in fields}
        assert {field.name for field in fields if field.required} <= names
