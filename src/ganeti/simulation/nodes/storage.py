"""The storage of a node as plain data: disks by their paths, with sizes and owners."""

from dataclasses import dataclass, field

from ganeti.model.instance_spec import DiskSpec


class _Sizes(dict[str, int]):
    """Sizes by path, with their sum: each node of a large cluster is asked for it."""

    total = 0

    def __setitem__(self, path: str, size: int) -> None:
        self.total += size - self.get(path, 0)
        super().__setitem__(path, size)

    def __delitem__(self, path: str) -> None:
        self.total -= self[path]
        super().__delitem__(path)


@dataclass
class SharedDirectory:
    """A directory that every node sees."""

    total: int = 100_000
    disks: _Sizes = field(default_factory=_Sizes)
    owners: dict[str, str] = field(default_factory=dict)
    """UUID of the disk that a file says to be; one that says nothing is believed."""
    contents: dict[str, str] = field(default_factory=dict)
    """What was written to a disk, where a test has written anything."""

    @property
    def free(self) -> int:
        return self.total - self.disks.total

    def size_of(self, disk: DiskSpec) -> int | None:
        """What there is of a disk, in MiB; a file of another disk is none of it."""
        path = path_of(disk)
        return self.disks.get(path) if self.owners.get(path) in (None, disk.uuid) else None


def path_of(disk: DiskSpec) -> str:
    """Return the path or name that distinguishes a disk from others in its storage."""
    stored = disk.children[0] if disk.children else disk
    return str(stored.own_id[1])
