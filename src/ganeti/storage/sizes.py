"""Disks that are smaller than they should be: one message for all drivers."""

from ganeti.base.errors import StorageError


def check_size(what: str, found_mib: int, wanted_mib: int) -> None:
    """Raise StorageError if a disk lacks a part of its data."""
    if found_mib < wanted_mib:
        raise StorageError(
            f"{what} has {found_mib} MiB instead of {wanted_mib} MiB: data is missing. If it never had more,"
            " record its size: gnt-cluster repair-disk-sizes"
        )


def check_made(what: str, found_mib: int | None, wanted_mib: int) -> None:
    """Raise StorageError if a disk that the storage has just made or grown does not exist, or is too small."""
    if found_mib is None:
        raise StorageError(f"{what} does not exist, although the storage reported success")
    if found_mib < wanted_mib:
        raise StorageError(
            f"{what} has {found_mib} MiB instead of {wanted_mib} MiB, although the storage reported success."
            " If it becomes larger later, record its size: gnt-cluster repair-disk-sizes"
        )
