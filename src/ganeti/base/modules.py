"""Finds the modules of a package, so that their declarations need no second list."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def modules_below(package: str, *, packages_only: bool = False) -> Iterator[ModuleType]:
    """Import the modules directly in `package`, in the order of their names.

    `packages_only` skips plain modules.
    """
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if found.ispkg or not packages_only:
            yield importlib.import_module(found.name)


def declared_in(package: str, kind: type[T]) -> Iterator[type[T]]:
    """Return the classes of `kind` that the modules directly in `package` define themselves."""
    for module in modules_below(package):
        for value in vars(module).values():
            # `issubclass` of an abstract class would ask all its subclasses, and cache each answer:
            # 4 MiB of a master.
            if (
                isinstance(value, type)
                and value.__module__ == module.__name__
                and kind in value.__mro__
            ):
                yield value


def implementations(package: str, kind: type[T]) -> Iterator[type[T]]:
    """Return the concrete classes of `kind` that modules of `package`, and of packages below, define."""
    yield from (found for found in declared_in(package, kind) if not inspect.isabstract(found))
    for inner in modules_below(package, packages_only=True):
        yield from implementations(inner.__name__, kind)
