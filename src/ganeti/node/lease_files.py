"""The lease of a real machine: its record on file, and the guests by the records of their drivers."""

from collections.abc import Collection

from ganeti.base.errors import HostError
from ganeti.base.paths import Paths
from ganeti.hypervisor.guest_processes import FoundGuest, living_guests
from ganeti.node.lease_record import LeaseRecord, boot_id, read_lease, write_lease


class LeaseFiles:
    """The `Machine` of `ganeti.node.recovery`."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.boot_id = boot_id(paths)

    def read(self) -> LeaseRecord | None:
        return read_lease(self._paths)

    def write(self, record: LeaseRecord) -> None:
        try:
            write_lease(self._paths, record)
        except OSError as err:
            raise HostError(f"cannot write {self._paths.lease}: {err.strerror}") from err

    def living_guests(self, uuids: Collection[str]) -> list[FoundGuest]:
        return living_guests(self._paths, uuids, self.boot_id)
