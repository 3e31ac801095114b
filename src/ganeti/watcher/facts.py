"""What the watcher has found out, and what it remembers of earlier runs; all times are seconds since the epoch."""

import msgspec


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance: `status` in the words of `gnt-instance list`."""

    name: str
    status: str
    is_wanted: bool
    """Whether it is to run."""
    is_there: bool = False
    """Whether its node has something of its guest, be it paused."""
    group: str = ""
    """UUID of its primary node's group."""
    secondaries: tuple[str, ...] = ()


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node; `boot_id` is '' if it does not answer."""

    name: str
    boot_id: str = ""
    offline: bool = False


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment."""

    nodes: tuple[Node, ...] = ()
    instances: tuple[Instance, ...] = ()
    groups: dict[str, str] = {}
    """UUID -> name."""
    locked: frozenset[str] = frozenset()
    """Instances that a job holds, or waits for."""
    live_jobs: frozenset[int] = frozenset()
    """Jobs of earlier runs that have not ended."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one run leaves to the next."""

    boot_ids: dict[str, str] = {}
    """Node -> the boot after which its disks were looked at."""
    starts: dict[str, list[float]] = {}
    """Instance -> when it was tried to start it."""
    jobs: dict[str, int] = {}
    """What a job is about -> the job: `start web1`, `disks web1`, `verify UUID of a group`."""
    said: tuple[str, ...] = ()
    """Instances that were given up."""
