"""Every opcode has a unit, and every step that units record can be undone."""

import re
from pathlib import Path
from typing import Any

import pytest

import ganeti.units
from ganeti.model.opcodes import OPCODES
from ganeti.units.base import LogicalUnit
from ganeti.units.registry import UNITS
from ganeti.units.undo import UNDO_PROCEDURES


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
    assert unit.__module__.startswith(f"ganeti.units.{subject[1].lower()}.")


def test_every_recorded_step_has_its_undo_procedure() -> None:
    pushed = set()
    for path in Path(ganeti.units.__path__[0]).rglob("*.py"):
        text = path.read_text()
        pushed |= set(re.findall(r"(?:undo\.push|UndoStep)\(\s*\"(\w+)\"", text))
    assert pushed == set(UNDO_PROCEDURES)
