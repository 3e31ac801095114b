"""Answers calls about the user ids of a pool on this node."""

import asyncio

from ganeti import uidpool
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.uids import UID_POOL_USE, UidPoolArgs, UidPoolUse


def handlers() -> Handlers:
    """Return the handlers of all calls about user ids."""
    return {UID_POOL_USE.name: _uid_pool_use}


async def _uid_pool_use(args: UidPoolArgs, _call: Call) -> UidPoolUse:
    pool = uidpool.CheckUidPool(args.uid_pool)
    return await asyncio.to_thread(_look, pool)


def _look(pool: list[uidpool.UidRange]) -> UidPoolUse:
    busy = sorted(uidpool.host_uids_in_use())
    return UidPoolUse(
        conflicts=uidpool.host_conflicts(pool),
        in_use=[uid for uid in busy if any(low <= uid <= high for low, high in pool)],
    )
