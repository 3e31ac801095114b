"""Disks that are files in a directory that all nodes share: template `sharedfile`."""

from typing import ClassVar

from ganeti.model.disk_templates import SHARED_FILE, DiskTemplate
from ganeti.storage.file import FileDisk


class SharedFileDisk(FileDisk):
    """A file at the same path on every node, also on the nodes of a virtual cluster."""

    template: ClassVar[DiskTemplate] = SHARED_FILE
