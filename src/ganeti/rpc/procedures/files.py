"""Procedures about files that all nodes have: ssconf and shared files."""

from ganeti.rpc.procedures.form import NORMAL_S, Message, Nothing, Procedure
from ganeti.rpc.procedures.host import HypervisorsArgs


class SsconfArgs(Message, frozen=True, kw_only=True):
    """A whole set of ssconf files and the position of the configuration that it shows."""

    position: int
    values: dict[str, str]


class NodeFile(Message, frozen=True, kw_only=True):
    """A file that other nodes must have as well; `path` without the prefix of a virtual cluster."""

    path: str
    content: bytes
    mode: int
    candidates_only: bool = False


class SharedFilesArgs(HypervisorsArgs, frozen=True, kw_only=True):
    """Whose files are wanted; `named` are those that parameters name, as far as they exist."""

    named: list[str] = []


class SharedFiles(Message, frozen=True, kw_only=True):
    """What the master's node has to share, and why some of it cannot be (a sentence each)."""

    files: list[NodeFile]
    problems: list[str]


WRITE_SSCONF = Procedure("write_ssconf", SsconfArgs, Nothing, NORMAL_S, changes=True)

SHARED_FILES = Procedure("shared_files", SharedFilesArgs, SharedFiles, NORMAL_S, changes=False)

WRITE_FILE = Procedure("write_file", NodeFile, Nothing, NORMAL_S, changes=True)
