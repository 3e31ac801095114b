"""What the configuration says about nodes and instances that recovery watches."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ganeti.model.objects import NodeUuid
from ganeti.model.recovery import FenceMethod, Recovery


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node that is not marked offline by an administrator."""

    name: str
    methods: tuple[FenceMethod, ...] = (FenceMethod.POWER, FenceMethod.WATCHDOG)
    """In the order in which they are tried."""
    in_maintenance: bool = False
    stays_offline: bool = False
    """An administrator has marked it offline: it does not come back by itself."""
    awaits_return: bool = False
    """Recovery has marked it offline, and has not brought it back."""
    can_relay: bool = True
    """Other nodes accept its calls."""
    has_secondary: bool = False
    """It has a secondary address that differs from the primary one."""


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """One instance with a recovery policy."""

    name: str
    node: NodeUuid
    recovery: Recovery = Recovery.FAILOVER
    priority: int = 50
    """0 to 100; greater ones are recovered first."""
    attempts: int = 3
    window_s: float = 3600.0
    """At most `attempts` within this time."""
    is_wanted: bool = True
    """It is to run."""
    is_under_lease: bool = True
    """As `Instance.under_lease`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """In what the instances differ from others."""

    former: Mapping[str, InstanceFacts]
    changed: Collection[str]
    """The UUIDs of those that are new, other or gone."""


@dataclass(frozen=True, slots=True)
class Watched:
    """All that recovery looks after, as the configuration says now."""

    nodes: Mapping[NodeUuid, NodeFacts] = field(default_factory=dict)
    instances: Mapping[str, InstanceFacts] = field(default_factory=dict)
    """By UUID."""
    master: NodeUuid | None = None
    """The node of this master, which does not cut its own power."""
    most_jobs: int = 4
    """How many instances are recovered at the same time."""
    difference: Difference | None = field(default=None, compare=False)
    """Spares those who know the former instances a look at thousands."""
