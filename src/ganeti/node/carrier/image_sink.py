"""The sink of a stream that fills a disk in an image."""

import os

from ganeti.base.errors import HostError
from ganeti.node.carrier.frames import Piece
from ganeti.node.carrier.pieces import Collector
from ganeti.protocols.qcow2 import CLUSTER, ENTRIES, Table, closing, entry, new_table
from ganeti.storage.image_data import lock_image
from ganeti.storage.image_files import image_size, write_empty_image


class DiskImageSink:
    """Replaces all data of a disk in an image, in order; what does not come reads as zeros.

    The image is an empty one until `finish`, which replaces its header after everything else is synced.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        """StorageError if the file is not a safe image, or is in use; `path` is for messages."""
        lock_image(descriptor, path, writes=True)
        self._descriptor, self._size = descriptor, image_size(descriptor)
        write_empty_image(descriptor, self._size)
        os.fsync(descriptor)
        self._begin = os.fstat(descriptor).st_size
        self._data = Collector(descriptor, self._begin)
        self._tables: dict[int, Table] = {}
        self._offset = self._zeros = 0
        """The position in the disk, and the zeros that were taken after it."""

    def take(self, zeros: int, data: Piece) -> None:
        self._zeros += zeros
        view = memoryview(data)
        while view:
            self._pass_zeros()
            part = view[: CLUSTER - self._offset % CLUSTER]
            self._add(part)
            view = view[len(part) :]

    def _pass_zeros(self) -> None:
        """Move over the zeros that were taken; they are written only in clusters that also have data."""
        zeros, self._zeros = self._zeros, 0
        in_cluster = min(-self._offset % CLUSTER, zeros)
        self._add(bytes(in_cluster))
        zeros -= in_cluster
        self._offset += zeros - zeros % CLUSTER
        self._add(bytes(zeros % CLUSTER))

    def _add(self, data: Piece) -> None:
        """Write data that lies within one cluster; the first data of a cluster is at its begin."""
        if not data:
            return
        if self._offset + len(data) > self._size:
            raise HostError(f"the data is longer than the disk, which has {self._size} bytes")
        if self._offset % CLUSTER == 0:
            region, number = divmod(self._offset // CLUSTER, ENTRIES)
            if region not in self._tables:
                self._tables[region] = new_table()
            self._tables[region][number] = entry(self._data.offset)
        self._data.add(data)
        self._offset += len(data)

    def finish(self) -> None:
        self._add(bytes(-self._offset % CLUSTER))
        unused = self._begin // CLUSTER - 1
        parts, header = closing(self._data.offset, self._size, self._tables, unused=unused)
        for part in parts:
            self._data.add(part)
        self._data.finish()
        os.pwrite(self._descriptor, header, 0)
        os.fsync(self._descriptor)

    def close(self) -> None:
        """End the threads."""
        self._data.close()
