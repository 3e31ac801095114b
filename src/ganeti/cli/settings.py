"""gnt-cluster settings: the values of an object that a command can change, with their origins."""

import argparse
from typing import Any

from ganeti.cli.command import CommandTable
from ganeti.cli.options import TABLE_OPTIONS
from ganeti.cli.output import print_json, print_rows
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

_KIND = Argument("kind", "group, instance, network or node; default: the cluster itself", "?")
_NAME = Argument("name", "name of the object", "?")
_HEADS = ("Section", "Name", "Value", "From", "Inherited", "Bounds", "Applies", "Description")
_APPLIES = {
    "now": "at once",
    "hotplug": "at once, or at the next start",
    "start": "at the next start",
}


def add_settings_command(table: CommandTable) -> None:
    """Add the command about the cluster and its objects."""
    table.command("settings", _KIND, _NAME, *TABLE_OPTIONS)(settings)


def settings(args: argparse.Namespace) -> int:
    """Show the values of the cluster or of an object that can be changed.

    Each line has the value, the layer that it comes from (`own`, `group`, `os`, `cluster` or `default`), the value
    without the object's own, the bounds, and when a running guest gets a change. Changes of a CD's medium and of network
    interfaces apply at once if the guest is changed while it runs (--hotplug-if-possible).
    """
    with LuxiClient() as client:
        found = client.call("QuerySettings", args.kind or "cluster", args.name or "")
    if args.is_json:
        print_json(found)
        return 0
    print_rows(_HEADS, [_row(one) for one in found["settings"]], args)
    return 0


def _row(one: dict[str, Any]) -> list[str]:
    inherited = _text(one["inherited"]) if one.get("inherited_from") else "-"
    return [
        one["title"], one["name"], _text(one["value"]), one.get("source", "own"), inherited, _bounds(one),
        _APPLIES[one.get("applies", "now")], one.get("doc", ""),
    ]  # fmt: skip


def _text(value: Any) -> str:
    return "-" if value in ("", None) else str(value)


def _bounds(one: dict[str, Any]) -> str:
    if one.get("choices"):
        return "|".join(_text(choice) for choice in one["choices"])
    low, high = one.get("policy") or (one.get("minimum"), one.get("maximum"))
    if low is None and high is None:
        return "-"
    return f"{'' if low is None else low}..{'' if high is None else high}"
