"""Procedures about imported machine images, and exports in foreign formats."""

from ganeti.rpc.procedures.exports import ExportArgs, ExportContent
from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, Message, Nothing, Procedure


class ImageArgs(Message, frozen=True, kw_only=True):
    """A file below a directory that the node allows for images, or `upload:ID`, and its format (`auto`: by its header)."""

    path: str
    format: str


class ConvertArgs(Message, frozen=True, kw_only=True):
    """Write an image's disks into an unfinished export; `config` is its description."""

    export: str
    path: str
    format: str
    config: str

    @property
    def instance_name(self) -> str:
        return self.export


class StoreArgs(Message, frozen=True, kw_only=True):
    """Write an image's disks and its description into an unfinished directory of the image store.

    `source` is a path below an allowed directory, an https URL, or `upload:ID`. `digest` is the SHA-256 or SHA-512 of the source; ''
    for any.
    """

    export: str
    source: str
    format: str
    digest: str = ""

    @property
    def instance_name(self) -> str:
        return self.export


class ImageFileArgs(Message, frozen=True, kw_only=True):
    """Write an image of the store to a new file below an allowed directory; `format` is raw, qcow2 or ova."""

    export: str
    path: str
    format: str
    name: str
    """The name of the machine in an OVA."""

    @property
    def instance_name(self) -> str:
        return self.export


IMAGE_INFO = Procedure("image_info", ImageArgs, ExportContent, NORMAL_S, changes=False)

IMAGE_CONVERT = Procedure(
    "image_convert", ConvertArgs, Nothing, HOURS_S, changes=True, is_long=True
)

IMAGE_STORE = Procedure("image_store", StoreArgs, Nothing, HOURS_S, changes=True, is_long=True)

IMAGE_WRITE = Procedure("image_write", ImageFileArgs, Nothing, HOURS_S, changes=True, is_long=True)

EXPORT_PACK = Procedure("export_pack", ExportArgs, Nothing, HOURS_S, changes=True, is_long=True)
