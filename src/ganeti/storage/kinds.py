"""The kinds of storage units of a node."""

from collections.abc import Iterable, Iterator

from ganeti.base.errors import StorageError
from ganeti.base.modules import implementations
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import StorageUnit
from ganeti.storage.kind import StorageKind


def find_kinds() -> Iterator[tuple[str, StorageKind]]:
    """Return each kind that this package declares, with its name."""
    for kind in implementations("ganeti.storage", StorageKind):  # type: ignore[type-abstract]  # only looked for
        yield kind.name, kind()


KINDS: dict[str, StorageKind] = dict(find_kinds())


def kind_of_storage(name: str) -> StorageKind:
    """Return a kind by its name; StorageError if it is unknown."""
    found = KINDS.get(name)
    if found is None:
        raise StorageError(
            f"no storage of kind {name!r:.40} exists; known kinds: {', '.join(KINDS)}"
        )
    return found


def storage_kind(unit: StorageUnit) -> StorageKind:
    """Return the kind of a unit; StorageError if it is unknown."""
    return kind_of_storage(unit.kind)


async def sharing_problems(paths: Paths, wanted: Iterable[StorageUnit]) -> list[str]:
    """Return the disks of a node with exclusive storage that share devices, a sentence each."""
    problems = []
    for unit in wanted:
        try:
            problems += await storage_kind(unit).sharing(paths, unit)
        except StorageError as err:
            problems.append(f"{unit.kind} storage: {err.message}")
    return problems


async def storage_problems(paths: Paths, wanted: Iterable[StorageUnit]) -> list[str]:
    """Return why these units cannot be used, a sentence each."""
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
