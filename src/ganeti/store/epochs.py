"""The bounds of epochs: how far they may be from the epoch of a majority of the registers (R2). Pure.

An epoch is a proposal number. A register grants only an epoch greater than its promise, so a
candidate that ignores a register loses that register's promise and nothing else
(docs/design/mastership.md).
"""

from collections.abc import Collection, Mapping

from ganeti.model.objects import NodeUuid
from ganeti.store.interface import MAX_EPOCH

BOUND = 100_000
"""Maximum distance of a promise from that of a majority; force jumps by 2,000 at most."""
LEAP = 1 << 24
"""Maximum increase of a register's promise by one request."""
CEILING_BOUND = 1_000_000_000
"""Maximum distance of a job id ceiling from that of a majority; force jumps by 100,000,000 at most."""

EXHAUSTED = (
    "no epochs are left: the register of this node has promised one of the last epochs (of "
    f"{MAX_EPOCH}); run 'gnt-cluster master-failover' on another master candidate, then "
    "'gnt-node add --readd' for this node"
)


def usual_epoch(promised: Collection[int]) -> int:
    """Return the greatest epoch that more than half of these registers have reached; 0 without any."""
    ordered = sorted(promised, reverse=True)
    return ordered[len(ordered) // 2] if ordered else 0


def reference_epoch(
    promised: Mapping[NodeUuid, int], voters: Collection[NodeUuid], known: int
) -> int:
    """Return the reference for promises: the epoch of a majority of the voters, or `known`.

    `known` is an epoch that certainly was taken, such as that of the state. Where no majority of
    the voters answers, `known` alone counts: a register must not vouch for itself.
    """
    counted = [epoch for node, epoch in promised.items() if node in voters]
    return max(usual_epoch(counted) if 2 * len(counted) > len(voters) else 0, known)


def outliers(
    promised: Mapping[NodeUuid, int], reference: int, *, bound: int = BOUND
) -> dict[NodeUuid, int]:
    """Return the registers whose promise is beyond the bound, with their epochs."""
    return {node: epoch for node, epoch in promised.items() if epoch > reference + bound}


def is_leap(promised: int, epoch: int) -> bool:
    """Return whether a register with this promise must refuse an epoch because it is too far ahead."""
    return epoch > promised + LEAP


def ends_leader_term(
    own: int, promised: int, *, is_candidate: bool, is_own_register: bool = False
) -> bool:
    """Return whether the promise of one register ends a master of epoch `own` (R9).

    Only a candidate campaigns, and it promises itself the epoch that it requests from others. So a
    greater epoch that no candidate has promised has no master, and is ignored while a majority
    confirms the present master. A candidate that has promised the same epoch to a loser of the vote
    would not follow a master of this epoch; only a new epoch ends that. A master whose own register
    refuses it can register nothing more.
    """
    return is_own_register or (is_candidate and promised <= own + BOUND)
