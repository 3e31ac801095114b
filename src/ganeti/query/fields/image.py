"""Fields of images."""

from dataclasses import dataclass

from ganeti.model.objects import Image
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import Field, ValueKind
from ganeti.query.fields.field import field_table as table
from ganeti.query.fields.stored import stored_fields

_TEXT, _OTHER, _NUMBER = ValueKind.TEXT, ValueKind.OTHER, ValueKind.NUMBER


@dataclass
class ImageRow:
    """One image in its context."""

    context: QueryContext
    image: Image

    @property
    def nodes(self) -> list[str]:
        known = self.context.snapshot.nodes
        return sorted(known[uuid].name for uuid in self.image.nodes if uuid in known)


_FIELDS: tuple[Field[ImageRow], ...] = (
    Field("name", "Image", _TEXT, "Name of the image", lambda r: r.image.name),
    Field(
        "description", "Description", _TEXT, "Line about the image", lambda r: r.image.description
    ),
    Field("size", "Size", ValueKind.UNIT, "Size of its disks together", lambda r: r.image.size),
    Field(
        "stored",
        "Stored",
        ValueKind.UNIT,
        "Space that its content took on the node that imported it",
        lambda r: r.image.stored,
    ),
    Field(
        "disk.sizes",
        "DiskSizes",
        _OTHER,
        "Least size of each disk of an instance, in MiB",
        lambda r: [disk.size for disk in r.image.disks],
    ),
    Field(
        "disk.sha256",
        "DiskDigests",
        _OTHER,
        "SHA-256 of the content of each disk",
        lambda r: [disk.sha256 for disk in r.image.disks],
    ),
    Field(
        "disk_size",
        "DiskSize",
        ValueKind.UNIT,
        "Size of the first disk of a new instance",
        lambda r: r.image.disk_size or r.image.disks[0].size,
    ),
    Field(
        "firmware",
        "Firmware",
        _TEXT,
        "Firmware that it needs, or empty",
        lambda r: r.image.firmware,
    ),
    Field(
        "cloud_init",
        "CloudInit",
        ValueKind.BOOL,
        "Whether new instances get a disk with settings for cloud-init",
        lambda r: r.image.cloud_init,
    ),
    Field(
        "beparams",
        "BackendParameters",
        _OTHER,
        "Backend parameters that new instances get unless their request has others",
        lambda r: dict(r.image.beparams),
    ),
    Field(
        "nic_count",
        "Interfaces",
        _NUMBER,
        "How many network interfaces new instances get unless their request names some",
        lambda r: r.image.nics,
    ),
    Field("node_list", "Nodes", _OTHER, "Nodes that have a copy", lambda r: r.nodes),
    Field("node_cnt", "Copies", _NUMBER, "How many nodes have a copy", lambda r: len(r.nodes)),
)

IMAGE_FIELDS = table(_FIELDS, stored_fields("image", lambda row: row.image))
