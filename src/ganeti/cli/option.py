"""What an option of a command is."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Option(NamedTuple):
    """An option; `settings` are argparse's words (`action`, `metavar`, `type`, `default` …)."""

    flags: tuple[str, ...]
    help: str
    completion: str = ""
    """What its values name: `node`, `instance`, `os`, `file` or nothing known."""
    settings: Mapping[str, Any] = MappingProxyType({})
