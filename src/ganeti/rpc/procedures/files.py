"""Procedures about files that all nodes have: ssconf and shared files."""

from ganeti.rpc.procedures.form import NORMAL_S, Message, Nothing, Procedure
from ganeti.rpc.procedures.host import HypervisorsArgs


class SsconfArgs(Message, frozen=True, kw_only=True):
    """A whole set of ssconf files and the position of the configuration that it shows."""

    position: int
    values: dict[str, str]


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


WRITE_SSCONF = Procedure("write_ssconf", SsconfArgs, Nothing, NORMAL_S, changes=True)

SHARED_FILES = Procedure("shared_files", SharedFilesArgs, SharedFiles, NORMAL_S, changes=False)

WRITE_FILE = Procedure("write_file", NodeFile, Nothing, NORMAL_S, changes=True)
