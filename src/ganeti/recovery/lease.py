"""A node's own lease, and what its watchdog process does about it (D7)."""

from dataclasses import dataclass
from enum import Enum, auto

from ganeti.model.recovery import Token
from ganeti.recovery.times import LEASE_S, RESET_S

DEVICE_S = 10.0
"""After so long without a write the watchdog device resets the machine."""
KILL_AGAIN_S = 1.0
"""A guest that is alive still is killed again so often."""


@dataclass
class NodeLease:
    """Until when this node may run protected guests; a token of another boot renews nothing."""

    boot_id: str
    ends_at: float = 0.0

    def issue(self, now: float) -> Token:
        """Return the token of an answer that is sent now."""
        return Token(self.boot_id, now)

    def renew(self, token: Token | None) -> bool:
        """Take in the token that the master has returned; return whether the lease ends later than before.

        It is counted from when this node sent the token, not from when the token came back.
        """
        if token is None or token.boot_id != self.boot_id:
            return False
        ends_at = token.sent_at + LEASE_S
        if ends_at <= self.ends_at:
            return False
        self.ends_at = ends_at
        return True

    def is_valid(self, now: float) -> bool:
        """Return whether protected guests may run and be started."""
        return now < self.ends_at


class GuardAction(Enum):
    """What the watchdog process does."""

    PET = auto()
    """Write to the device, so that it does not reset the machine."""
    KILL = auto()
    """Kill every protected guest with SIGKILL."""
    RESET = auto()
    """Reset the machine now; the device does it a little later where that fails."""


@dataclass
class Guard:
    """Decides for the process that holds the watchdog device; it does not depend on the node daemon."""

    ends_at: float
    """The end of the lease, as the node daemon has reported it last."""
    _killed_at: float = float("-inf")

    def tick(self, now: float, *, has_guests: bool) -> list[GuardAction]:
        """Return what to do now. `has_guests`: whether a protected guest is alive, or that is not known.

        The device is written for the last time when it still resets the machine within RESET_S of the lease's end.
        """
        if now < self.ends_at or not has_guests:
            return [GuardAction.PET]
        actions = []
        if now >= self._killed_at + KILL_AGAIN_S:
            self._killed_at = now
            actions.append(GuardAction.KILL)
        over_s = now - self.ends_at
        if over_s + DEVICE_S < RESET_S:
            actions.append(GuardAction.PET)
        elif over_s + KILL_AGAIN_S >= RESET_S:
            actions.append(GuardAction.RESET)
        return actions
