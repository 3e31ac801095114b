"""The times of leases and fencing, and the proof that a fenced node writes nothing more (D7).

All times are seconds of a monotonic clock; those of two nodes are never compared.
"""

BEAT_S = 1.0
"""How often the master sends a heartbeat to each node.

A lease has at least LEASE_S - 2 * BEAT_S left when the master dies. A new master must be elected within that time, or
the nodes kill their protected guests.
"""
LEASE_S = 10.0
"""How long a node may run protected guests after it sent the answer whose token the master returned."""
MAJORITY_S = 5.0
"""How old the master's last confirmed majority may be when it returns a token."""
RESET_S = 15.0
"""How long after the end of the lease a node whose guests did not die is reset by its watchdog."""
MARGIN_S = 5.0
"""For clocks that run at different rates: one sixth of the other times together."""
SUSPECT_S = 6.0
"""A node that has not answered for so long is suspected."""
LOST_S = 10.0
"""A suspected node that has not answered for so long is lost: no peer reaches it either."""


def reset_by(token_at: float, elected_at: float) -> float:
    """Return when a silent node with an armed watchdog certainly runs no protected guest any more.

    `token_at`: when this master received the last token of the node; `elected_at`: when it was elected.

    Proof. The lease of a node ends LEASE_S after it sent the newest token that any master has returned to it.

    - A token that this master has returned was received by it, at `token_at` at the latest, and sent before that.
      So this master's leases end by `token_at + LEASE_S`, however late its heartbeat arrives.
    - An older master returns a token only within MAJORITY_S of a confirmed majority. That majority has elected this
      master since, so the older master returned its last token before `elected_at + MAJORITY_S`, and received it
      before that. Its leases end by `elected_at + MAJORITY_S + LEASE_S`.

    When the lease is over, the node kills its protected guests. If one does not die, or the node cannot tell, the
    watchdog resets the machine within RESET_S. MARGIN_S covers the difference in rate of the two clocks.
    """
    return max(token_at, elected_at + MAJORITY_S) + LEASE_S + RESET_S + MARGIN_S
