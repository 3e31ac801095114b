"""Modules that need much memory or time to import, for programs that seldom use them."""

import importlib
from types import ModuleType
from typing import Any


class Deferred(ModuleType):
    """A stand-in for the module of this name; imports it when one of its attributes is first used.

    The importing module names the real module under `TYPE_CHECKING`, so types are checked as usual.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)
