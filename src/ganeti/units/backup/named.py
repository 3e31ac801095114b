"""Units on exports and backups, which are kept by the name of an instance that need not exist any more."""

from typing import TypeVar

from ganeti.base.errors import InputError
from ganeti.base.identifiers import host_name
from ganeti.config.resolve import kept_name
from ganeti.config.snapshot import Snapshot
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.opcodes.instance import OnInstance
from ganeti.units.base import LogicalUnit

OpT = TypeVar("OpT", bound=OnInstance)
PlanT = TypeVar("PlanT")


class OnName(LogicalUnit[OpT, PlanT]):
    """A unit on what the nodes keep of one name; `name` is the full name."""

    name: str

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        self.name = kept_name(snapshot, self.op.instance_name)
        return [lock(Level.INSTANCE, self.name), lock(Level.NODE, ALL, Mode.SHARED)]

    def check_arguments(self) -> None:
        if host_name(self.op.instance_name, "instance_name") != self.op.instance_name:
            raise InputError("must be in lower case", "instance_name")

    def check_uuid(self, snapshot: Snapshot) -> None:
        """Raise InputError if the request has a UUID, and the named instance has another one."""
        if (uuid := self.op.instance_uuid) is not None:
            named = snapshot.instance_by_name(self.name)
            if named is None or named.uuid != uuid:
                raise InputError("is not the UUID of the named instance", "instance_uuid")
