"""gnt-cluster ha-status: automatic recovery."""

import argparse
from typing import Any

from ganeti.base.terminal import escaped, say
from ganeti.cli.command import EXIT_FAILURE, CommandTable
from ganeti.cli.options import TABLE_OPTIONS
from ganeti.cli.output import print_json, print_rows
from ganeti.clients.luxi import LuxiClient

NOTHING = (
    "No instance is protected. To let the cluster recover an instance automatically, run:"
    " gnt-instance modify -B recovery=failover INSTANCE"
)
_MINUTE, _HOUR = 60, 3600


def add_recovery_commands(table: CommandTable) -> None:
    """Add the command about automatic recovery to the table."""
    table.command("ha-status", *TABLE_OPTIONS)(ha_status)


def ha_status(args: argparse.Namespace) -> int:
    """Show automatic recovery: each node and protected instance, its state and the reason.

    An instance is protected if its backend parameter `recovery` is `restart` or `failover`. The table of nodes
    shows the fencing methods in the order in which the master tries them, whether the node's watchdog is armed,
    and the time since the node's last answer. The column `For` has the time in the present state.
    The master never fences its own node. A node is `healthy`, `suspect` (it does not answer), `fencing`,
    `fenced` (it certainly runs no protected instance), `stuck` (no method has fenced it), or `returning` (it
    answers again, and drops what moved away).

    An instance is `protected` while all is well, `queued`, `beginning` or `running` while it is being recovered, and
    `given up` after its last attempt failed.

    Below the tables, the command lists alarms with the commands to run, and the cases that need an administrator
    in this cluster. The exit code is 1 if there is an alarm.
    """
    with LuxiClient() as client:
        found = client.call("QueryHaStatus")
    code = EXIT_FAILURE if found["alarms"] else 0
    if args.is_json:
        print_json(found)
        return code
    if not found["nodes"] and not found["instances"]:
        say(NOTHING)
        return code
    print_rows(_NODE, [_node(one) for one in found["nodes"]], args)
    if found["instances"]:
        say("")
        print_rows(_INSTANCE, [_instance(one) for one in found["instances"]], args)
    _say_list("Watchdogs that are not armed", _unarmed(found["nodes"]))
    _say_list("Alarms", found["alarms"])
    _say_list("Needs an administrator", found["limits"])
    return code


def _say_list(title: str, lines: list[str]) -> None:
    if lines:
        say(f"\n{title}:")
        for line in lines:
            say(f"- {escaped(line)}")


_NODE = ("Node", "State", "For", "Silent", "Fencing", "Watchdog", "Why")
_INSTANCE = ("Instance", "Node", "Recovery", "Priority", "State", "For", "Attempts", "Why")


def _unarmed(nodes: list[dict[str, Any]]) -> list[str]:
    """Return each reason why a watchdog that is relied on is not armed, once, with the names of its nodes."""
    found: dict[str, list[str]] = {}
    for one in nodes:
        why = one["why_unarmed"]
        if why and "watchdog" in one["fence_methods"] and not one["watchdog_armed"]:
            found.setdefault(why, []).append(one["name"])
    return [f"{', '.join(names)}: {why}" for why, names in found.items()]


def _node(one: dict[str, Any]) -> list[str]:
    state = "maintenance" if one["maintenance"] else one["state"]
    return [
        one["name"],
        state,
        _duration(one["state_s"]),
        _duration(one["silent_s"]),
        "(master)" if one["master"] else ",".join(one["fence_methods"]) or "none",
        "armed" if one["watchdog_armed"] else "not armed",
        one["why"],
    ]


def _instance(one: dict[str, Any]) -> list[str]:
    return [
        one["name"],
        one["node"],
        one["recovery"],
        str(one["priority"]),
        one["state"],
        _duration(one["state_s"]),
        str(one["attempts"]),
        one["why"],
    ]


def _duration(seconds: float) -> str:
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f}s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f}m"
    return f"{seconds / _HOUR:.0f}h"
