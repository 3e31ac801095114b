"""Which physical volumes a disk gets for itself alone, where no two disks may share one (exclusive storage): pure."""

from collections.abc import Collection, Sequence

from ganeti.base.errors import StorageError
from ganeti.storage.lvm.reports import Physical


def devices_alone(
    devices: Sequence[Physical], group: str, size: int, own: Collection[str] = ()
) -> list[str]:
    """The physical volumes for `size` bytes: its `own`, then the least that nobody uses.

    One that is large enough by itself is taken before several; StorageError if there are too few.
    """
    usable = [one for one in devices if one.group == group and not one.is_missing]
    kept = [one for one in usable if one.name in own]
    empty = [one for one in usable if one.name not in own and one.is_allocatable and not one.used]
    missing = size - sum(one.size for one in kept)
    if missing <= 0:
        return [one.name for one in kept]
    enough = [one for one in empty if one.size >= missing]
    if enough:
        smallest = min(enough, key=lambda one: (one.size, one.name))
        return [*(one.name for one in kept), smallest.name]
    chosen = list(kept)
    for one in sorted(empty, key=lambda one: (-one.size, one.name)):
        chosen.append(one)
        if sum(other.size for other in chosen) >= size:
            return [other.name for other in chosen]
    raise StorageError(
        f"volume group {group} has too few physical volumes that nobody uses: a disk of this node has its own"
        " (exclusive_storage); add some, or choose another node"
    )
