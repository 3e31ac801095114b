"""Fields that every object of the configuration has."""

from collections.abc import Callable
from typing import Any, TypeVar

from ganeti.model.backup_key import BackupKey
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.model.objects import Cluster, Image, Instance, Network, Node, NodeGroup
from ganeti.model.webhook import Webhook
from ganeti.query.fields.field import Field, ValueKind

R = TypeVar("R")

_STORED = (
    ("uuid", "UUID", ValueKind.TEXT, "UUID, which never changes"),
    ("serial_no", "SerialNo", ValueKind.NUMBER, "How often the {} was changed"),
    ("ctime", "CTime", ValueKind.TIMESTAMP, "When the {} was made"),
    ("mtime", "MTime", ValueKind.TIMESTAMP, "When the {} was changed last"),
    ("tags", "Tags", ValueKind.OTHER, "Tags of the {}"),
)

TaggedObject = (
    Cluster | Node | NodeGroup | Instance | Network | Image | BackupSchedule | BackupKey | Webhook
)


def stored_fields(what: str, object_of: Callable[[R], TaggedObject]) -> list[Field[R]]:
    """Return `uuid`, `serial_no`, `ctime`, `mtime` and `tags` of the object of a row."""

    def getter(name: str) -> Callable[[R], Any]:
        return lambda row: getattr(object_of(row), name)

    return [
        Field(name, title, kind, doc.format(what), getter(name))
        for name, title, kind, doc in _STORED
    ]
