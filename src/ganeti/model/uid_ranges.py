"""Ranges of user ids as text and as pairs. Pure; the names are those of Ganeti's module `uidpool`."""

import itertools
import re
from collections.abc import Iterable, Sequence

from ganeti.base.errors import InputError

UidRange = tuple[int, int]
"""The first and the last id; equal for a single one."""

UID_MIN, UID_MAX = 1, 2**32 - 2
NOBODY_UID = 65534
POOL_LIMIT = 65536
"""The limit of ids in a pool."""

_RANGE = r"([0-9]{1,10})(?:-([0-9]{1,10}))?"


def ParseUidPool(value: str, separator: str = ",") -> list[UidRange]:
    """Parse a definition such as `1000-1002,2000`; InputError names the fault."""
    ranges = []
    for word in value.split(separator):
        if not (text := word.strip()):
            if value.strip():
                raise InputError(f"{value!r:.80} has an empty part", "uid_pool")
            continue
        found = re.fullmatch(_RANGE, text)
        if found is None:
            raise InputError(
                f"{text!r:.60} is neither a user id nor two with a dash between them", "uid_pool"
            )
        ranges.append((int(found[1]), int(found[2] or found[1])))
    return CheckUidPool(ranges)


def FormatUidPool(uid_pool: Iterable[UidRange], separator: str = ",") -> str:
    """Return the definition that `ParseUidPool` reads."""
    return separator.join(str(low) if low == high else f"{low}-{high}" for low, high in uid_pool)


def CheckUidPool(uid_pool: Iterable[Sequence[int]]) -> list[UidRange]:
    """Return the ranges in order; InputError if a range is malformed, not for guests, or overlaps another."""
    ranges = sorted(_checked_range(one) for one in uid_pool)
    for before, after in itertools.pairwise(ranges):
        if after[0] <= before[1]:
            raise InputError(
                f"{FormatUidPool([before])} and {FormatUidPool([after])} overlap", "uid_pool"
            )
    if sum(high - low + 1 for low, high in ranges) > POOL_LIMIT:
        raise InputError(f"the pool has more than {POOL_LIMIT} user ids", "uid_pool")
    return ranges


def _checked_range(given: Sequence[int]) -> UidRange:
    if len(given) != 2 or any(type(uid) is not int for uid in given):  # noqa: PLR2004 - two ends
        raise InputError(f"{given!r:.60} is not a pair of user ids", "uid_pool")
    low, high = given
    if low > high:
        raise InputError(f"{low}-{high}: the first id is greater than the last", "uid_pool")
    if low < UID_MIN or high > UID_MAX:
        raise InputError(
            f"{low}-{high}: user ids of guests must be {UID_MIN} to {UID_MAX}", "uid_pool"
        )
    if low <= NOBODY_UID <= high:
        raise InputError(
            f'uid {NOBODY_UID} cannot be in the pool: it is the user "nobody", which other services share',
            "uid_pool",
        )
    return low, high


def ExpandUidPool(uid_pool: Iterable[UidRange]) -> list[int]:
    """Return every id of the pool."""
    return [uid for low, high in uid_pool for uid in range(low, high + 1)]


def AddToUidPool(uid_pool: Iterable[UidRange], add_uids: Iterable[UidRange]) -> list[UidRange]:
    """Return the pool with more ids; InputError if one is there already."""
    return CheckUidPool([*uid_pool, *CheckUidPool(add_uids)])


def RemoveFromUidPool(
    uid_pool: Iterable[UidRange], remove_uids: Iterable[UidRange]
) -> list[UidRange]:
    """Return the pool without some ids; InputError if one is missing."""
    left = CheckUidPool(uid_pool)
    for low, high in CheckUidPool(remove_uids):
        touched = [one for one in left if one[0] <= high and low <= one[1]]
        removed = sum(min(high, last) - max(low, first) + 1 for first, last in touched)
        if removed != high - low + 1:
            what = FormatUidPool([(low, high)])
            raise InputError(f"{what} is not in the pool ({FormatUidPool(left)})", "remove_uids")
        rest = [part for first, last in touched for part in ((first, low - 1), (high + 1, last))]
        left = [one for one in left if one not in touched]
        left += [(first, last) for first, last in rest if first <= last]
    return sorted(left)
