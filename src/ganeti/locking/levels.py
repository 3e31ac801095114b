"""The levels of locks, in the order in which a job acquires them, and the two modes."""

import enum
from collections.abc import Hashable
from typing import TypeAlias

Owner: TypeAlias = Hashable  # a job id; locks belong to jobs, not to tasks

HIGHEST_PRIORITY = -20  # most urgent, as for opcodes

CLUSTER_LOCK = "BGL"  # the one name of level CLUSTER: Ganeti's "big lock"


class Level(enum.IntEnum):
    """The kind of objects that a lock protects; acquired from the smallest number to the greatest."""

    CLUSTER = 0
    INSTANCE = 1  # by name: an instance is locked before it has a UUID
    NODE_GROUP = 2  # this and all later levels by UUID
    NODE = 3
    NODE_RES = 4
    NETWORK = 5
    IMAGE = 6

    @property
    def label(self) -> str:
        """Return the level's name in Ganeti's lock listings, such as `node-res`."""
        return _LABELS[self]


class Mode(enum.Enum):
    """The mode of a lock: shared by many owners, or exclusive to one."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


_LABELS = {
    Level.CLUSTER: "cluster",
    Level.INSTANCE: "instance",
    Level.NODE_GROUP: "nodegroup",
    Level.NODE: "node",
    Level.NODE_RES: "node-res",
    Level.NETWORK: "network",
    Level.IMAGE: "image",
}
