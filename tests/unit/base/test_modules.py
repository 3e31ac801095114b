"""Modules are found by their package, and classes by the module that defines them."""

import ganeti.units.base
from ganeti.base.modules import declared_in, modules_below
from ganeti.units.base import LogicalUnit


def test_modules_come_in_the_order_of_their_names() -> None:
    names = [module.__name__ for module in modules_below("ganeti.model.opcodes")]
    assert names == sorted(names)
    assert "ganeti.model.opcodes.tags" in names


def test_packages_alone_leave_the_modules_beside_them_out() -> None:
    names = [module.__name__ for module in modules_below("ganeti.units", packages_only=True)]
    assert "ganeti.units.node" in names
    assert ganeti.units.base.__name__ not in names


def test_a_class_belongs_to_the_module_that_defines_it() -> None:
    found = list(declared_in("ganeti.units.node", LogicalUnit))  # type: ignore[type-abstract]  # only looked at
    assert "LUNodeAdd" in {unit.__name__ for unit in found}
    assert LogicalUnit not in found
    assert len(found) == len(set(found))
