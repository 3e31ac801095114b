"""The check of a change of the user-id pool by the nodes."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from ganeti import uidpool
from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.fill import filled_hvparams
from ganeti.config.snapshot import Snapshot
from ganeti.rpc.procedures.uids import UID_POOL_USE, UidPoolArgs, UidPoolUse
from ganeti.units.context import UnitContext

POOL_MODEL = "pool"


async def check_uid_pool(
    ctx: UnitContext, fields: Mapping[str, Any], *, force: bool
) -> tuple[str, ...]:
    """Return warnings about the changed pool; PrereqError if new ids have an owner on a node.

    With `force` such conflicts, and nodes that do not answer, are warnings too.
    """
    warnings = _missing_pool(ctx.snapshot, fields)
    if "uid_pool" not in fields:
        return tuple(warnings)
    old = set(uidpool.ExpandUidPool(ctx.snapshot.cluster.uid_pool))
    new = set(uidpool.ExpandUidPool(fields["uid_pool"]))
    asked = UidPoolArgs(uid_pool=_ranges(old ^ new))
    nodes = [node for node in ctx.snapshot.online_nodes() if node.vm_capable]
    answers = await ctx.call_all(nodes, UID_POOL_USE, asked)
    for node in nodes:
        answer = answers[node.uuid]
        if isinstance(answer, RpcError):
            _object(f"cannot ask for the owners of the user ids: {answer}", warnings, force=force)
            continue
        for problem in answer.conflicts if new - old else ():
            _object(f"on node {node.name} {problem}", warnings, force=force)
        warnings += _uses(node.name, answer, old, new)
    return tuple(warnings)


def _object(text: str, warnings: list[str], *, force: bool) -> None:
    if not force:
        raise PrereqError(f"{text}; choose others, or use --force", ErrorCode.ENVIRONMENT)
    warnings.append(text)


def _uses(node: str, answer: UidPoolUse, old: set[int], new: set[int]) -> Iterable[str]:
    if gone := [uid for uid in answer.in_use if uid in old - new]:
        yield (
            f"{uidpool.FormatUidPool(_ranges(gone))} is still used on node {node}: the guest with"
            " this id keeps it until it ends"
        )
    if taken := [uid for uid in answer.in_use if uid in new - old]:
        yield (
            f"processes run with {uidpool.FormatUidPool(_ranges(taken))} on node {node}: no guest"
            " there gets it until they end"
        )


def _missing_pool(snapshot: Snapshot, fields: Mapping[str, Any]) -> list[str]:
    """Return warnings about instances that cannot be started without a pool."""
    cluster = replace(snapshot.cluster, **fields)
    if cluster.uid_pool or not fields.keys() & {"uid_pool", "hvparams", "os_hvp"}:
        return []
    users = sorted(
        instance.name
        for instance in snapshot.instances.values()
        if filled_hvparams(cluster, instance).get("security_model") == POOL_MODEL
    )
    if not users:
        return []
    count = f"{len(users)} instances have security_model=pool, the first is {users[0]}"
    return [f"{count}; without a pool they cannot be started"]


def _ranges(uids: Iterable[int]) -> list[uidpool.UidRange]:
    """Return the ids as few ranges."""
    ranges: list[uidpool.UidRange] = []
    for uid in sorted(uids):
        if ranges and ranges[-1][1] == uid - 1:
            ranges[-1] = (ranges[-1][0], uid)
        else:
            ranges.append((uid, uid))
    return ranges
