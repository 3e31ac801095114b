"""Every opcode has a unit, and every procedure somebody who answers it."""

import pytest

from ganeti.base.clock import FrozenClock
from ganeti.model.opcodes import OPCODES
from ganeti.units.base import LogicalUnit
from ganeti.units.registry import UNITS
from ganeti.units.undo import UNDO_PROCEDURES


def test_every_opcode_has_a_unit_of_its_name() -> None:
    assert set(UNITS) == set(OPCODES.values())
    for opcode, unit in UNITS.items():
        assert unit.__name__ == opcode.__name__.replace("Op", "LU", 1)
        assert issubclass(unit, LogicalUnit)


@pytest.mark.parametrize("unit", UNITS.values(), ids=lambda unit: unit.__name__)
def test_every_unit_says_what_it_does(unit: type[LogicalUnit[object, object]]) -> None:  # type: ignore[type-var]  # any unit
    assert unit.__doc__
    assert unit.execute is not LogicalUnit.execute


def test_every_undo_procedure_is_named_for_what_it_does() -> None:
    assert set(UNDO_PROCEDURES) == {
        "remove_disk",
        "stop_instance",
        "forget_instance",
        "settle_migration",
    }
    assert FrozenClock().time() > 0
