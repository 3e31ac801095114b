"""Facts about disk templates, for both sides of the node RPC."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DiskTemplate:
    """What a caller may want to know about a way of keeping disks, so that nobody asks for its name."""

    name: str
    has_disks: bool = True
    shared: bool = False
    """Every node sees the same data."""
    mirrored: bool = False
    """A second node holds a copy."""
    in_files: bool = False
    """Disks are files below a directory that the administrator allowed."""

    @property
    def nodes_needed(self) -> int:
        """How many nodes an allocator must choose."""
        return 2 if self.mirrored else 1

    @property
    def can_migrate(self) -> bool:
        """Whether another node can run the guest on the same data."""
        return self.shared or self.mirrored

    @property
    def is_local(self) -> bool:
        """Whether the primary node has the only copy, so that a move must take the data along."""
        return self.has_disks and not self.can_migrate

    @property
    def can_fail_over(self) -> bool:
        """Whether another node can start the guest though its own node is dead."""
        return not self.is_local


DISKLESS = DiskTemplate("diskless", has_disks=False)
FILE = DiskTemplate("file", in_files=True)
SHARED_FILE = DiskTemplate("sharedfile", shared=True, in_files=True)

DISK_TEMPLATES = {template.name: template for template in (DISKLESS, FILE, SHARED_FILE)}
