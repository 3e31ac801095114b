"""The points at which an administrator's programs run: names, phases and the form of their variables.

A point `instance-start` has the directories `instance-start-pre.d` and `instance-start-post.d`
below `/etc/ganeti/hooks`, on every node.
"""

import enum
import re

HOOKS_VERSION = 2
PREFIX = "GANETI_"
POST_PREFIX = "GANETI_POST_"


class Phase(enum.StrEnum):
    """The time of hooks: before an operation, which they can refuse, or after it."""

    PRE = "pre"
    POST = "post"


class ObjectType(enum.StrEnum):
    """The kind of object of an operation."""

    CLUSTER = "CLUSTER"
    NODE = "NODE"
    GROUP = "GROUP"
    NETWORK = "NETWORK"
    INSTANCE = "INSTANCE"


_NAMES: dict[ObjectType, tuple[str, ...]] = {
    ObjectType.NODE: tuple(f"node-{verb}" for verb in ("add", "remove", "modify", "migrate")),
    ObjectType.GROUP: tuple(
        f"group-{verb}" for verb in ("add", "modify", "remove", "rename", "evacuate")
    ),
    ObjectType.NETWORK: tuple(
        f"network-{verb}" for verb in ("add", "remove", "rename", "connect", "disconnect", "modify")
    ),
    ObjectType.INSTANCE: (
        *(
            f"instance-{verb}"
            for verb in (
                *("add", "reinstall", "export", "start", "stop", "reboot", "modify", "failover"),
                *("migrate", "remove", "rename", "move", "recreate-disks", "change-group"),
                *("snapshot", "backup"),
            )
        ),
        "disk-grow",
        "mirrors-replace",
    ),
    ObjectType.CLUSTER: (
        *(f"cluster-{verb}" for verb in ("init", "destroy", "verify", "rename", "modify")),
        *("master-ip-turnup", "master-ip-turndown", "config-update"),
    ),
}

HOOKS: dict[str, ObjectType] = {name: kind for kind, names in _NAMES.items() for name in names}
"""Every point, and the kind of its object."""

CONFIG_UPDATE = "config-update"
"""Runs on the master after every operation that has changed the configuration."""


VARIABLE = re.compile(rf"{PREFIX}[A-Za-z0-9_.-]{{1,200}}", re.ASCII)
"""The allowed variables of hooks: some contain names of nodes."""


def directory(hook: str, phase: Phase) -> str:
    """Return the name of the directory of programs."""
    return f"{hook}-{phase}.d"
