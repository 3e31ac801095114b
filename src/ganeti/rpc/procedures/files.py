"""Procedures about files that all nodes have: ssconf and shared files."""

from ganeti.rpc.procedures.form import NORMAL_S, Message, Nothing, Procedure
from ganeti.rpc.procedures.host import HypervisorsArgs


class LineChange(Message, frozen=True, kw_only=True):
    """The difference between two texts with sorted lines, none of them twice."""

    removed: list[str] = []
    added: list[str] = []

    def applied(self, text: str) -> str:
        """Return the text with the change."""
        kept = set(text.split("\n")) - set(self.removed)
        return "\n".join(sorted(kept | set(self.added)))


class SsconfArgs(Message, frozen=True, kw_only=True):
    """A set of ssconf files and the position of the configuration that it shows.

    With `base`, only what differs from the set of that position, which the node must have.
    """

    position: int
    values: dict[str, str]
    base: int | None = None
    lines: dict[str, LineChange] = {}
    removed: list[str] = []
    """Files that are in the set of `base` only."""
    checksum: str = ""
    """Of the whole set, if there is a base (`ganeti.ssconf.checksum`)."""


class SsconfWritten(Message, frozen=True, kw_only=True):
    """The node has the set; a node daemon of an earlier version takes whole sets only."""

    takes_differences: bool = False


class NodeFile(Message, frozen=True, kw_only=True):
    """A shared file; `path` lacks the prefix of a virtual cluster."""

    path: str
    content: bytes
    mode: int
    candidates_only: bool = False


class SharedFilesArgs(HypervisorsArgs, frozen=True, kw_only=True):
    """The hypervisors whose files are needed; `named` are files that parameters name, if they exist."""

    named: list[str] = []


class SharedFiles(Message, frozen=True, kw_only=True):
    """The files to share from the master's node, and why some cannot be shared (a sentence each)."""

    files: list[NodeFile]
    problems: list[str]


WRITE_SSCONF = Procedure(
    "write_ssconf", SsconfArgs, SsconfWritten, NORMAL_S, changes=True, keeps_resources=True
)

SHARED_FILES = Procedure("shared_files", SharedFilesArgs, SharedFiles, NORMAL_S, changes=False)

WRITE_FILE = Procedure(
    "write_file", NodeFile, Nothing, NORMAL_S, changes=True, keeps_resources=True
)
