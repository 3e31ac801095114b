"""Opcodes about images: content for the disks of new instances, kept on nodes."""

from typing import Annotated, ClassVar

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.hypervisors.kvm import FIRMWARES
from ganeti.model.image_source import EXPORT_FORMATS, SOURCE_FORMATS
from ganeti.model.opcodes.base import OpCode
from ganeti.model.operation import DRY_RUN, IMAGE, NEW_NAME, Argument, Command, Loss, Rest

NONE = "none"


class OnImage(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode about one image."""

    image_name: Annotated[str, RefersTo.IMAGE]

    summary_field: ClassVar[str | None] = "image_name"


class ImageParams(OnImage, frozen=True, kw_only=True):
    """What an image says about itself; None keeps the present value."""

    description: Annotated[
        str | None, Field("a line about the image", metavar="TEXT"), RefersTo.NOTHING
    ] = None
    disk_size: Annotated[int | None, Field(
        "size of the first disk of new instances; 0: the size of the image's disk", metavar="SIZE", form=Form.SIZE
    )] = None  # fmt: skip
    firmware: Annotated[str | None, Field(
        "firmware that the system needs", choices=(*FIRMWARES, NONE)
    ), RefersTo.NOTHING] = None  # fmt: skip
    cloud_init: Annotated[bool | None, Field(
        "give new instances a disk with settings for cloud-init", "! --cloud-init", form=Form.YES_NO
    )] = None  # fmt: skip


class OpImageImport(ImageParams, frozen=True, kw_only=True, tag="OP_IMAGE_IMPORT"):
    """Store an image of one or several disks on a node: from a file there, from a URL, or from an upload.

    The result is the SHA-256 of each disk.
    """

    image_name: Annotated[str, RefersTo.NEW_IMAGE]
    source: Annotated[str, RefersTo.PATH]
    """An absolute path on the node, an https URL, or `upload:ID`."""
    source_format: Annotated[str, Field(
        "format of the source; default: detected from its header", "! --format",
        choices=SOURCE_FORMATS
    ), RefersTo.NOTHING] = "auto"  # fmt: skip
    digest: Annotated[str | None, Field(
        "digest that the source must have: 64 (SHA-256) or 128 (SHA-512) hexadecimal digits; required for a URL",
        "! --digest", "HEX"
    ), RefersTo.NOTHING] = None  # fmt: skip
    node: Annotated[str | None, Field(
        "node that reads the source and gets the first copy; default: the master", "-n", "NODE"
    ), RefersTo.NODE] = None  # fmt: skip

    no_loss: ClassVar[str] = "adds an image under a name that no image has"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/images", (DRY_RUN,), summary="Store an image from a file of a node or a URL",
             renamed={"name": "image_name"}),
    )  # fmt: skip


class OpImageRemove(OnImage, frozen=True, kw_only=True, tag="OP_IMAGE_REMOVE"):
    """Remove an image, and all its copies. Instances that were created from it keep their disks."""

    loss: ClassVar[Loss | None] = Loss(
        lambda ops: f"Remove image {', '.join(op.image_name for op in ops)} and all its copies?"
    )
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("DELETE", "/2/images/{image}", (DRY_RUN,), summary="Remove an image and all its copies"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-image", "remove", (IMAGE,), confirming=("force",),
        doc="""Remove an image and all its copies.

        Instances that were created from the image keep their disks, but cannot be reinstalled from it. The job waits
        for jobs that use the image. A copy on a node that does not answer is removed once the node is back.
        """,
    )  # fmt: skip


class OpImageSetParams(ImageParams, frozen=True, kw_only=True, tag="OP_IMAGE_SET_PARAMS"):
    """Change the description of an image, or its hints for new instances; the content never changes."""

    no_loss: ClassVar[str] = "changes an entry of the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/images/{image}/modify", (DRY_RUN,)),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-image", "modify", (IMAGE,), needs_option=True,
        doc="""Change the description of an image, or its hints for new instances.

        The content of an image never changes; import another image instead.
        """,
    )  # fmt: skip


class OpImageRename(OnImage, frozen=True, kw_only=True, tag="OP_IMAGE_RENAME"):
    """Rename an image."""

    new_name: Annotated[str, RefersTo.NEW_IMAGE]

    no_loss: ClassVar[str] = "changes an entry of the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (Rest("PUT", "/2/images/{image}/rename", (DRY_RUN,)),)
    cli: ClassVar[Command | None] = Command("gnt-image", "rename", (IMAGE, NEW_NAME))


class OpImageCopy(OnImage, frozen=True, kw_only=True, tag="OP_IMAGE_COPY"):
    """Give nodes a correct copy of an image: a missing or damaged copy is replaced from another node.

    The result is a list of the nodes that got a new copy.
    """

    nodes: Annotated[list[str], RefersTo.NODE]

    no_loss: ClassVar[str] = "replaces only copies whose digest is wrong"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/images/{image}/copy", (DRY_RUN,), summary="Copy an image to nodes, or repair its copies"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-image", "copy",
        (IMAGE, Argument("nodes", "nodes that get a copy of the image", nargs="+", completion="node")),
        doc="""Give nodes a correct copy of an image.

        A copy that exists is read completely and compared with the digests of the image. A missing or damaged copy
        is replaced from another node, and verified before it counts.
        """,
    )  # fmt: skip


class OpImageExport(OnImage, frozen=True, kw_only=True, tag="OP_IMAGE_EXPORT"):
    """Write an image to a new file on a node that has it."""

    path: Annotated[str, RefersTo.PATH]
    target_format: Annotated[str, Field(
        "format of the file", "! --format", choices=EXPORT_FORMATS
    ), RefersTo.NOTHING] = "qcow2"  # fmt: skip
    node: Annotated[str | None, Field(
        "node that writes the file and has the image; default: the master, or the first node that has the image",
        "-n", "NODE"
    ), RefersTo.NODE] = None  # fmt: skip

    no_loss: ClassVar[str] = "refuses a file that exists"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/images/{image}/export", (DRY_RUN,), summary="Write an image to a file on a node"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-image", "export",
        (IMAGE, Argument("path", "new file on the node, below a directory for images", completion="file")),
        doc="""Write an image to a new file on a node: qcow2, raw, or an OVA for other hypervisors.

        The file must be below a directory for images on the node, as for 'gnt-image import'. It appears completely,
        or not at all. An image with several disks can only become an OVA.
        """,
    )  # fmt: skip
