"""The declaration of an opcode beside its fields, for programs that offer it to people and to other programs.

`ganeti.cli` reads what it destroys (`Loss`) and its command (`Command`); `ganeti.web` reads its REST routes (`Rest`).
This module imports nothing of the project, because commands import it when they start.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, NamedTuple

Question = Callable[[Sequence[Any]], str | None]
"""The question to ask before opcodes of one class are submitted; None if these opcodes destroy nothing."""


class Loss(NamedTuple):
    """The data that an opcode destroys, as the question that a command asks before it submits the opcode."""

    question: Question
    options: tuple[str, ...] = ("force",)
    """Options that answer the question in advance, by argparse's names: the first for one opcode, the last for several."""
    asks: bool = True
    """False: a command never asks, and requires the option."""
    terminal_only: bool = False
    """Upstream Ganeti does not ask: a command without a terminal continues."""


class Right(Enum):
    """The right that a user of the REST interface needs for an operation."""

    KNOWN = "known"
    """Every user who has logged in has it."""
    READ = "read"
    OPERATE = "operate"
    """Start, stop and move existing instances; wait for jobs."""
    WRITE = "write"


ROLES: Mapping[str, frozenset[Right]] = MappingProxyType({
    "read": frozenset((Right.KNOWN, Right.READ)),
    "operator": frozenset((Right.KNOWN, Right.READ, Right.OPERATE)),
    "write": frozenset(Right),
})  # fmt: skip
"""Roles of users of the REST interface."""


class Value(Enum):
    """The values of a query's parameter."""

    FLAG = auto()
    """0 or 1, Ganeti's form of no and yes."""
    INTEGER = auto()
    TIME = auto()
    """Whole seconds since the epoch."""
    TEXT = auto()
    WORDS = auto()
    """`a,b`; the parameter is mandatory."""
    TEXTS = auto()
    """A text that may be repeated."""


class Parameter(NamedTuple):
    """A parameter of a query (`?dry-run=1`)."""

    name: str
    value: Value
    help: str
    field: str = ""
    """The field of the opcode for its value; the body must then omit the field."""
    is_required: bool = False


DRY_RUN = Parameter("dry-run", Value.FLAG, "check only, and change nothing", "dry_run")
FORCE = Parameter("force", Value.FLAG, "override a check that may be overridden", field="force")

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Rest(NamedTuple):
    """One route of the REST interface that submits the opcode; the permission is named for the opcode."""

    method: str
    path: str
    """`/2/nodes/{node}`: a word in braces has the value of a field, for example `node_name` (`PATH_FIELDS`)."""
    query: tuple[Parameter, ...] = ()
    right: Right = Right.WRITE
    summary: str = ""
    """Default: the opcode's docstring up to its first comma, colon, semicolon or period."""
    name: str = ""
    """The name in a job's reason; default: the words of the path."""
    path_fields: Mapping[str, str] = _NOTHING
    """Fields of words in braces that differ from `PATH_FIELDS`."""
    constants: Mapping[str, Any] = _NOTHING
    """Values of fields that the body must not have."""
    renamed: Mapping[str, str] = _NOTHING
    """Names that clients use -> names of fields."""
    forbidden: tuple[str, ...] = ()
    """Fields that the REST interface never sets."""
    has_body: bool = True
    body_schema: Mapping[str, Any] | None = None
    """The JSON schema of a body that differs from the opcode's fields."""

    def field_of(self, word: str) -> str:
        """Return the field that has the value of a word in braces."""
        return self.path_fields.get(word) or PATH_FIELDS[word]

    @property
    def fields_in_path(self) -> tuple[str, ...]:
        """The fields that have the values of words in braces."""
        return tuple(map(self.field_of, words_of(self.path)))


def words_of(path: str) -> tuple[str, ...]:
    """Return the names in braces of a path; each is the kind of an object."""
    return tuple(part[1:-1] for part in path.split("/") if part.startswith("{"))


PATH_FIELDS = {
    "instance": "instance_name",
    "node": "node_name",
    "group": "group_name",
    "network": "network_name",
    "image": "image_name",
    "disk": "disk",
    "schedule": "schedule_name",
    "webhook": "webhook_name",
    "key": "key_id",
}
"""Words in braces -> fields of opcodes."""


class Argument(NamedTuple):
    """A positional argument of a command; `nargs` as in argparse (None: exactly one)."""

    name: str
    help: str
    nargs: str | None = None
    completion: str = ""
    """The kind of its objects: `node`, `instance`, `os`, `file` …"""


INSTANCE = Argument("instance_name", "name of the instance", completion="instance")
NODE = Argument("node_name", "name of the node", completion="node")
GROUP = Argument("group_name", "name of the node group", completion="group")
NETWORK = Argument("network_name", "name of the network", completion="network")
IMAGE = Argument("image_name", "name of the image", completion="image")
NEW_NAME = Argument("new_name", "the new name")


class Command(NamedTuple):
    """The command that runs the opcode, shows its result and waits for the jobs that it submitted.

    The options are those of the opcode's fields, and those of every job.
    """

    program: str
    name: str
    arguments: tuple[Argument, ...] = ()
    """Each supplies the field of its name."""
    doc: str = ""
    """A summary, then the rest of the manual page's description; default: the opcode's docstring."""
    aliases: tuple[str, ...] = ()
    on_many: bool = False
    """Run one job for each instance that the command line names or selects."""
    needs_option: bool = False
    """Refuse to run without an option of the opcode's fields."""
    confirming: tuple[str, ...] = ()
    """Further options: `force` (`-f`, `--force`), `yes` (`--yes`). Each answers the questions of the command."""
    question: Callable[[Any], str] | None = None
    """The question to ask before the opcode is submitted, whatever it destroys."""
    lines: Callable[[Any, Any], Iterable[str]] | None = None
    """Return the lines to print, from the opcode and its result; an empty result prints nothing."""
