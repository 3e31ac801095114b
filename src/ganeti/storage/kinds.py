"""The kinds of storage units that a node knows."""

from collections.abc import Iterable

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import StorageUnit
from ganeti.storage.directories import Directories
from ganeti.storage.kind import StorageKind
from ganeti.storage.lvm.groups import VolumeGroups
from ganeti.storage.lvm.physical import PhysicalVolumes

KINDS: dict[str, StorageKind] = {
    "file": Directories(shared=False),
    "sharedfile": Directories(shared=True),
    "lvm-vg": VolumeGroups(),
    "lvm-pv": PhysicalVolumes(),
}
"""By the kind in a template's `StorageFacts`, and the word that commands use."""


def kind_of_storage(name: str) -> StorageKind:
    """A kind by its name; StorageError if this node knows it not."""
    found = KINDS.get(name)
    if found is None:
        raise StorageError(
            f"this node knows no storage of kind {name!r:.40}; known: {', '.join(KINDS)}"
        )
    return found


def storage_kind(unit: StorageUnit) -> StorageKind:
    """The kind of a unit; StorageError if this node knows it not."""
    return kind_of_storage(unit.kind)


async def sharing_problems(paths: Paths, wanted: Iterable[StorageUnit]) -> list[str]:
    """How disks of a node with exclusive storage share devices all the same, a sentence each."""
    problems = []
    for unit in wanted:
        try:
            problems += await storage_kind(unit).sharing(paths, unit)
        except StorageError as err:
            problems.append(f"{unit.kind} storage: {err.message}")
    return problems


async def storage_problems(paths: Paths, wanted: Iterable[StorageUnit]) -> list[str]:
    """What keeps these units from being used, a sentence each."""
    problems: dict[str, None] = {}
    for kind in KINDS.values():
        try:
            problems |= dict.fromkeys(await kind.problems(paths))
        except StorageError as err:
            problems[err.message] = None
    for unit in wanted:
        try:
            await storage_kind(unit).space(paths, unit)
        except StorageError as err:
            problems[f"{unit.kind} storage: {err.message}"] = None
    return list(problems)
