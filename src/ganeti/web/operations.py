"""How an operation of the REST interface is declared: method, path, right, arguments, and what it does.

The tables in `ganeti.web.resources` declare each operation once; routes, checks and the OpenAPI
document are made from them.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from ganeti.model.job import JOB_BYTES
from ganeti.web.refusals import bad_request
from ganeti.web.rights import Right
from ganeti.web.users import User

if TYPE_CHECKING:
    from ganeti.web.services import Services

ARGUMENTS_LIMIT = 1000
INTEGER_DIGITS = 19
BODY_LIMIT = 10 * 1024 * 1024
"""Bytes of a body; one that becomes a job may have no more than a job."""


class Kind(Enum):
    """What text an argument of a query is."""

    FLAG = "integer"
    """0 or 1, as clients of Ganeti say no and yes."""
    INTEGER = "number"
    TEXT = "string"
    TEXTS = "array"


@dataclass(frozen=True)
class Argument:
    """One argument of a query (`?bulk=1`)."""

    name: str
    kind: Kind
    help: str


BULK = Argument("bulk", Kind.FLAG, "whole objects in place of their names")
LOCK = Argument(
    "lock", Kind.FLAG, "accepted, without effect: queries read one state and wait for nobody"
)
DRY_RUN = Argument("dry-run", Kind.FLAG, "check only, and change nothing")
FORCE = Argument("force", Kind.FLAG, "do it even against a check that may be overruled")
REASON = Argument("reason", Kind.TEXT, "why; it is kept with the job, if there is one")
LIMIT = Argument("limit", Kind.INTEGER, "at most so many, in the order of their names")
AFTER = Argument("after", Kind.TEXT, "only those after this one, the last of the page before")
PAGES = (LIMIT, AFTER)


class Arguments:
    """The arguments of one query; what is not as declared is refused."""

    def __init__(self, given: Mapping[str, list[str]]) -> None:
        self._given = given

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def __bool__(self) -> bool:
        return bool(self._given)

    def integer(self, name: str, default: int = 0) -> int:
        """A whole number; Refusal for another text."""
        text = self.text(name)
        if text is None:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < INTEGER_DIGITS):
            raise bad_request(f"Invalid value for the {name!r:.60} parameter: give a whole number")
        return int(text)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Whether it is 1; Refusal for another text than 0 and 1."""
        text = self.text(name)
        if text not in (None, "0", "1"):
            raise bad_request(f"Invalid value for the {name!r:.60} parameter: give 0 or 1")
        return default if text is None else text == "1"

    def check(self, operation: "Operation") -> None:
        """Refusal for an argument that the operation does not have, and for a wrong value of one that it has."""
        known = {one.name: one.kind for one in operation.accepted}
        for name in self._given:
            if name not in known:
                names = ", ".join(known)
                raise bad_request(f"unknown parameter {name!r:.60} of the query; known: {names}")
            if known[name] is Kind.FLAG:
                self.flag(name)
            elif known[name] is Kind.INTEGER:
                self.integer(name)
            if known[name] is not Kind.TEXTS and len(self._given[name]) > 1:
                raise bad_request(f"the parameter {name!r:.60} is given twice")

    @property
    def canonical(self) -> list[tuple[str, list[str]]]:
        """All arguments with their values, in the order of their names."""
        return sorted(self._given.items())

    def text(self, name: str) -> str | None:
        """The first value, or None."""
        values = self._given.get(name)
        return values[0] if values else None

    def needed(self, name: str) -> str:
        """The first value; Refusal if there is none, or an empty one."""
        text = self.text(name)
        if not text:
            raise bad_request(f"Missing the required {name!r} parameter")
        return text

    def texts(self, name: str) -> list[str]:
        """All values."""
        return list(self._given.get(name, ()))


@dataclass
class Call:
    """One request, checked: who asks for what."""

    operation: "Operation"
    items: tuple[str, ...]
    """The words of the path that stand for something, in their order."""
    arguments: Arguments
    body: Any
    user: User
    address: str
    """Where the request comes from."""
    services: "Services"
    headers: Mapping[str, str] = field(default_factory=dict)
    job_ids: list[int] = field(default_factory=list)
    """Jobs that the request has made, for the audit log."""

    def object_body(self) -> dict[str, Any]:
        """The body as a dictionary, an empty one without a body; Refusal."""
        if self.body is None:
            return {}
        if not isinstance(self.body, dict):
            kind = type(self.body).__name__
            raise bad_request(f"Body contents: Type is {kind!r}, but 'dict' is expected")
        return self.body


Handler = Callable[[Call], Awaitable[Any]]
Fixed = Callable[[Call], Any]
"""The value of an opcode's field that path and query decide; None leaves it out."""
MakeBody = Callable[[Call], dict[str, Any]]


@dataclass(frozen=True)
class JobOf:
    """An operation that submits one opcode."""

    opcode: str
    fixed: Mapping[str, Fixed] = field(default_factory=dict)
    """Fields that the body must not have."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names that clients use, and those of the fields."""
    nested_names: Mapping[str, str] = field(default_factory=dict)
    """The same of the opcodes in it."""
    forbidden: tuple[str, ...] = ()
    """Fields that nobody sets by REST."""
    has_body: bool = True
    make_body: MakeBody | None = None
    """The body of requests that say it in another way."""


@dataclass(frozen=True)
class Operation:
    """One method of one resource."""

    method: str
    path: str
    """`/2/nodes/{node}`: what is in braces is an item, and says of what kind."""
    name: str
    """As it stands in a job's reason, and in the OpenAPI document with the method before it."""
    summary: str
    right: Right
    does: Handler | JobOf
    arguments: tuple[Argument, ...] = ()
    body_schema: Mapping[str, Any] | None = None
    """Of handlers that take a body; that of opcodes is made from their fields."""
    result: str = "value"
    """`job` for the number of a job, `list`, `object` or `value`."""
    is_streaming: bool = False
    permission: str = ""
    """What `+NAME` and `-NAME` of the users file name."""
    is_open: bool = False
    """Whether limited users may use it as a whole: it tells nothing of others, or is cut to what is theirs."""

    @property
    def accepted(self) -> tuple[Argument, ...]:
        """The arguments of its query; a reason is accepted everywhere, as clients of Ganeti send one."""
        return self.arguments if REASON in self.arguments else (*self.arguments, REASON)

    @property
    def body_limit(self) -> int:
        """Bytes of its body at most."""
        return JOB_BYTES if self.result == "job" else BODY_LIMIT

    @property
    def submits(self) -> bool:
        """Whether it submits one opcode, of which the master decides."""
        return isinstance(self.does, JobOf)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of what kind the items of the path are."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))


def read(
    path: str,
    name: str,
    summary: str,
    handler: Handler,
    *arguments: Argument,
    right: Right = Right.KNOWN,
    result: str = "object",
    is_open: bool = False,
) -> Operation:
    """A GET that answers by itself."""
    return Operation(
        "GET", path, name, summary, right, handler, arguments, result=result, is_open=is_open
    )


def job(
    method: str,
    path: str,
    name: str,
    summary: str,
    does: JobOf,
    *arguments: Argument,
    right: Right = Right.WRITE,
) -> Operation:
    """An operation that submits one opcode and answers with the job's number."""
    return Operation(
        method,
        path,
        name,
        summary,
        right,
        does,
        (*arguments, REASON),
        result="job",
        permission=does.opcode.removeprefix("OP_").lower(),
    )


def item(index: int = 0) -> Fixed:
    """A word of the path."""
    return lambda call: call.items[index]


def item_list(index: int = 0) -> Fixed:
    """A word of the path, as the only one of a list."""
    return lambda call: [call.items[index]]


def flag(name: str) -> Fixed:
    """A flag of the query."""
    return lambda call: call.arguments.flag(name)


def text(name: str) -> Fixed:
    """A text of the query, if there is one."""
    return lambda call: call.arguments.text(name)


def constant(value: Any) -> Fixed:
    """Always the same."""
    return lambda _call: value
