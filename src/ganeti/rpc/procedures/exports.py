"""Procedures about exports: directories with a description and the dumps of an instance's disks."""

from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, SLOW_S, Message, Nothing, Procedure

CONFIG_LIMIT = 1024 * 1024
"""Maximum number of bytes of a description."""


class ExportArgs(Message, frozen=True, kw_only=True):
    """An export by its name, which is the instance's name; or the unfinished export."""

    export: str
    unfinished: bool = False
    stored: bool = False
    """In the image store of the node, where the name is that of an image's directory."""

    @property
    def instance_name(self) -> str:
        return self.export


class FinishExportArgs(Message, frozen=True, kw_only=True):
    """Put the description beside the dumps, and replace an earlier export with the whole."""

    export: str
    config: str
    stored: bool = False

    @property
    def instance_name(self) -> str:
        return self.export


class ExportListing(Message, frozen=True, kw_only=True):
    """The exports of a node by name, and the free space in MiB."""

    names: list[str]
    free: int


class ExportContent(Message, frozen=True, kw_only=True):
    """The description, and the size of each dump in bytes."""

    config: str
    files: dict[str, int]
    allocated: int = 0
    """MiB that the dumps take on the node; holes take nothing."""


class DumpCheck(Message, frozen=True, kw_only=True):
    """A disk of an export, its dump, and what is wrong with it; '' if it has exactly the exported data."""

    disk: int
    file: str
    problem: str = ""


class StoredFile(Message, frozen=True, kw_only=True):
    """A dump in an image store: its length in bytes, and whether it is as it was when it was completed."""

    length: int
    unchanged: bool


class StoredImages(Message, frozen=True, kw_only=True):
    """The complete images of a node: directory -> dumps by name; and the free space in MiB."""

    images: dict[str, dict[str, StoredFile]]
    free: int


EXPORT_LIST = Procedure("export_list", Nothing, ExportListing, NORMAL_S, changes=False)

IMAGE_STORE_LIST = Procedure("image_store_list", Nothing, StoredImages, NORMAL_S, changes=False)

EXPORT_INFO = Procedure("export_info", ExportArgs, ExportContent, NORMAL_S, changes=False)

EXPORT_BEGIN = Procedure("export_begin", ExportArgs, Nothing, SLOW_S, changes=True)

EXPORT_FINISH = Procedure("export_finish", FinishExportArgs, Nothing, SLOW_S, changes=True)

EXPORT_REMOVE = Procedure("export_remove", ExportArgs, Nothing, SLOW_S, changes=True)

EXPORT_VERIFY = Procedure(
    "export_verify", ExportArgs, list[DumpCheck], HOURS_S, changes=True, is_long=True
)
"""Read all dumps and compare them with their digests. It changes nothing, but takes long and can be followed."""
