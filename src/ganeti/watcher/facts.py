"""The watcher's findings, and its memory of earlier runs; all times are seconds since the epoch."""

import msgspec


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance: `status` in the words of `gnt-instance list`."""

    name: str
    status: str
    is_wanted: bool
    """True if it should run."""
    is_there: bool = False
    """True if its node has a part of its guest, even paused."""
    group: str = ""
    """UUID of its primary node's group."""
    secondaries: tuple[str, ...] = ()
    returns: bool = False
    """True if it migrates back to a lost node that is in service again."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node; `boot_id` is '' if it does not answer."""

    name: str
    boot_id: str = ""
    offline: bool = False
    in_maintenance: bool = False
    away: tuple[str, ...] = ()
    """Instances that left it and may return."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment."""

    nodes: tuple[Node, ...] = ()
    instances: tuple[Instance, ...] = ()
    groups: dict[str, str] = {}
    """UUID -> name."""
    locked: frozenset[str] = frozenset()
    """Instances whose locks a job holds or awaits."""
    live_jobs: frozenset[int] = frozenset()
    """Jobs of earlier runs that have not ended."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The data that one run passes to the next."""

    boot_ids: dict[str, str] = {}
    """Node -> the boot after which its disks were checked."""
    starts: dict[str, list[float]] = {}
    """Instance -> the times of its start attempts."""
    jobs: dict[str, int] = {}
    """Subject of a job -> the job: `start web1`, `disks web1`, `verify UUID of a group`."""
    in_service: dict[str, tuple[str, float]] = {}
    """Node -> its boot, and when it was first seen in service in that boot; 0 once its instances were sent back."""
    said: tuple[str, ...] = ()
    """Instances that are no longer restarted."""
