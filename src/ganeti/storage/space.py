"""How much room a node has for disks, and what lies there."""

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.disk_templates import DiskTemplate
from ganeti.rpc.procedures.disks import DiskFile
from ganeti.rpc.procedures.host import StorageSpace
from ganeti.storage.confinement import AllowedDirectories, DirectoryMissing

_MIB = 1024 * 1024


def directory_space(paths: Paths, template: DiskTemplate, directory: str) -> StorageSpace:
    """The space of a directory of disks, in MiB; blocks. StorageError if it is missing or not allowed."""
    try:
        found = AllowedDirectories.read(paths, shared=template.shared).free_space(directory)
    except OSError as err:
        raise StorageError(f"cannot look at {directory}: {err.strerror}") from err
    return StorageSpace(
        kind=template.name,
        name=directory,
        total=found.f_blocks * found.f_frsize // _MIB,
        free=found.f_bavail * found.f_frsize // _MIB,
    )


def storage_problems(paths: Paths, wanted: list[tuple[DiskTemplate, str]]) -> list[str]:
    """What keeps these directories of disks from being used, a sentence each; blocks."""
    try:
        problems = list(AllowedDirectories.read(paths, shared=False).problems)
    except StorageError as err:
        return [err.message]
    for template, directory in wanted:
        try:
            directory_space(paths, template, directory)
        except StorageError as err:
            problems.append(f"template {template.name}: {err.message}")
    return problems


def disk_files(paths: Paths, template: DiskTemplate, directory: str) -> list[DiskFile]:
    """What lies in a directory of disks, nothing if it is missing; blocks. StorageError if it is not allowed."""
    try:
        found = AllowedDirectories.read(paths, shared=template.shared).files(directory)
    except DirectoryMissing:
        return []
    except OSError as err:
        raise StorageError(f"cannot look at {directory}: {err.strerror}") from err
    return [
        DiskFile(template=template.name, path=path, size=size // _MIB)
        for path, size in sorted(found)
    ]
