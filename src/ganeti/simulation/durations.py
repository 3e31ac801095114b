"""How long things take in a simulated cluster."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Durations:
    """Seconds, or MiB a second, of each kind of work; the defaults are those of plain hardware."""

    rpc_s: float = 0.002
    """A call to a node and its answer, without the work."""
    commit_s: float = 0.004
    """Until a transaction is on the disks of the sync set."""
    start_s: float = 2.0
    """Until a guest's process runs."""
    boot_s: float = 20.0
    """From then until the guest's system serves."""
    stop_s: float = 10.0
    """Until a guest has shut down."""
    migration_mib_s: float = 400.0
    migration_s: float = 3.0
    """Of each migration, besides the copy of its memory."""
    disk_create_s: float = 1.0
    wipe_mib_s: float = 300.0
    """New disks that must read as zeros."""
    install_s: float = 60.0
    """The create script of an OS definition."""
    resync_mib_s: float = 100.0
    """Synchronisation of a mirrored disk, to each node and from it."""
    write_mib_s: float = 1.0
    """What a guest writes to each mirrored disk; the other copy lacks it after the loss of its node."""
    power_cut_s: float = 4.0
    """Until a power device confirms that a node is off."""
    node_boot_s: float = 120.0
    """From power on until the node daemon answers."""
    connect_timeout_s: float = 5.0
    """Until a call to a node that is gone fails."""
    silence_s: float = 20.0
    """Until a connection to a node that has died is given up."""
    election_s: float = 8.0
    """From the death of the master's node until another candidate serves."""
    spread: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """How much some of these vary: quantiles at equal distances, from the least value to the greatest, as multiples of the
    usual one."""

    def drawn(self, name: str, dice: random.Random) -> float:
        """Return how long one piece of work takes."""
        usual = float(getattr(self, name))
        if not (ratios := self.spread.get(name)):
            return usual
        # The inverse of the distribution, linear between two quantiles.
        at = dice.random() * (len(ratios) - 1)
        low = int(at)
        high = min(low + 1, len(ratios) - 1)
        return usual * (ratios[low] + (at - low) * (ratios[high] - ratios[low]))
