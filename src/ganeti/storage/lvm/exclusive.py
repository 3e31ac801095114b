"""Choice of physical volumes for one disk alone, if no two disks may share one (exclusive storage): pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from ganeti.base.errors import StorageError
from ganeti.storage.lvm.reports import Part, Physical, Volume

MIB = 1024 * 1024
MOST_DIFFERENCE = 0.02
"""The tolerated difference between sizes of physical volumes; beyond it spindles are not comparable."""


def unused(devices: Iterable[Physical]) -> list[Physical]:
    """The physical volumes that a new disk could have for itself."""
    return [one for one in devices if one.is_allocatable and not one.used and not one.is_missing]


def devices_alone(
    devices: Sequence[Physical], group: str, size: int, own: Collection[str] = (), spindles: int = 0
) -> list[str]:
    """Choose the physical volumes for `size` bytes: its `own`, or unused ones.

    As many as `spindles`, the same amount of data on each; the default is as few as possible, and one that is large
    enough before several. StorageError if there are too few.
    """
    usable = [one for one in devices if one.group == group and not one.is_missing]
    kept = [one for one in usable if one.name in own]
    empty = unused(one for one in usable if one.name not in own)
    if spindles:
        return _as_many(kept, empty, group, size, spindles)
    missing = size - sum(one.size for one in kept)
    if missing <= 0:
        return [one.name for one in kept]
    enough = [one for one in empty if one.size >= missing]
    if enough:
        return [*(one.name for one in kept), min(enough, key=_by_size).name]
    chosen = list(kept)
    for one in sorted(empty, key=lambda one: (-one.size, one.name)):
        chosen.append(one)
        if sum(other.size for other in chosen) >= size:
            return [other.name for other in chosen]
    raise StorageError(
        f"volume group {group} has too few unused physical volumes: a disk of this node needs its own"
        " (exclusive_storage); add some, or choose another node"
    )


def _as_many(
    kept: Sequence[Physical], empty: Sequence[Physical], group: str, size: int, spindles: int
) -> list[str]:
    each = -(-size // spindles)
    if kept:
        if min(one.size for one in kept) * len(kept) < size:
            raise StorageError(
                f"its {len(kept)} physical volumes are too small for {size // MIB} MiB, and a disk never gets further"
                " ones (exclusive_storage); move the data to a new disk with more spindles"
            )
        return [one.name for one in kept]
    fitting = sorted((one for one in empty if one.size >= each), key=_by_size)
    if len(fitting) < spindles:
        raise StorageError(
            f"volume group {group} has {len(fitting)} unused physical volumes of at least {-(-each // MIB)} MiB but"
            f" needs {spindles} (exclusive_storage); request other spindles, or choose another node"
        )
    return [one.name for one in fitting[:spindles]]


def _by_size(one: Physical) -> tuple[int, str]:
    return one.size, one.name


def check_alone(parts: Sequence[Part], source: str, spindles: int) -> None:
    """Raise StorageError unless a volume uses `spindles` physical volumes, and no other volume uses any of them."""
    own = next((one.devices for one in parts if one.name == source), ())
    others = sorted(one.name for one in parts if one.name != source and {*one.devices} & {*own})
    why = ""
    if others:
        why = f"it shares physical volumes with {', '.join(others)}, and a disk of this node needs its own"
    elif len(own) != spindles:
        why = f"it uses {len(own)} physical volumes: pass spindles={len(own)}"
    if why:
        raise StorageError(f"volume {source} cannot be adopted: {why} (exclusive_storage)")


def sharing(
    devices: Sequence[Physical], parts: Sequence[Part], volumes: Sequence[Volume]
) -> list[str]:
    """Return the disks of one group that share physical volumes, and differences in size, a sentence each."""
    disks = {one.name: one.disk or one.snapshot_of or one.name for one in volumes}
    users: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for part in parts:
        for device in part.devices:
            users[device].setdefault(disks.get(part.name, part.name), part.name)
    wrong = [
        f"physical volume {device} is shared by {', '.join(sorted(names.values()))}, but each disk should have its own"
        " (exclusive_storage)"
        for device, names in sorted(users.items())
        if len(names) > 1
    ]
    sizes = sorted(one.size for one in devices)
    if sizes and sizes[-1] - sizes[0] > MOST_DIFFERENCE * sizes[-1]:
        wrong.append(
            f"physical volumes of {devices[0].group} have from {sizes[0] // MIB} to {sizes[-1] // MIB} MiB: with"
            " exclusive_storage all should have the same"
        )
    return wrong
