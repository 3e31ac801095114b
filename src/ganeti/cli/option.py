"""The class of options of commands."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Option(NamedTuple):
    """An option; `settings` are argparse's arguments (`action`, `metavar`, `type`, `default` …)."""

    flags: tuple[str, ...]
    help: str
    completion: str = ""
    """Kind of its values: `node`, `instance`, `os`, `file`, or '' if unknown."""
    settings: Mapping[str, Any] = MappingProxyType({})
