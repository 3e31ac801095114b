"""Declarations of operations of the REST interface: method, path, right, parameters and handler.

Opcodes declare the operations that submit them (`ganeti.model.operation.Rest`). The tables in
`ganeti.web.resources` declare all others. Routes, checks and the OpenAPI document are generated from both.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ganeti.model.job import JOB_BYTES
from ganeti.model.opcodes import OpCode
from ganeti.model.operation import Parameter, Rest, Right, Value, words_of
from ganeti.model.rest_users import User
from ganeti.web.refusals import bad_request

if TYPE_CHECKING:
    from ganeti.web.services import Services
    from ganeti.web.sessions import Session

ARGUMENTS_LIMIT = 1000
INTEGER_DIGITS = 19
BODY_LIMIT = 10 * 1024 * 1024
"""Bytes of a body; a body for a job has the limit of a job."""
PUBLIC_BODY_LIMIT = 8 * 1024


BULK = Parameter("bulk", Value.FLAG, "return whole objects instead of their names")
LOCK = Parameter("lock", Value.FLAG, "ignored; queries read one consistent state without locks")
REASON = Parameter("reason", Value.TEXT, "reason, stored with the job")
LIMIT = Parameter("limit", Value.INTEGER, "maximum number of objects, in the order of their names")
AFTER = Parameter(
    "after", Value.TEXT, "return only objects after this name, the last name of the previous page"
)
PAGES = (LIMIT, AFTER)


class Arguments:
    """The arguments of one query; undeclared arguments are refused."""

    def __init__(self, given: Mapping[str, list[str]]) -> None:
        self._given = given

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def __bool__(self) -> bool:
        return bool(self._given)

    def integer(self, name: str, default: int = 0) -> int:
        """Return a whole number; Refusal for another text."""
        text = self.text(name)
        if text is None:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < INTEGER_DIGITS):
            raise bad_request(f"Invalid value for the {name!r:.60} parameter: give a whole number")
        return int(text)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return True for 1 and False for 0; Refusal for another text."""
        text = self.text(name)
        if text not in (None, "0", "1"):
            raise bad_request(f"Invalid value for the {name!r:.60} parameter: give 0 or 1")
        return default if text is None else text == "1"

    def check(self, operation: "Operation") -> None:
        """Raise Refusal for an argument that the operation does not have, and for an invalid value."""
        known = {one.name: one.value for one in operation.accepted}
        for name in self._given:
            if name not in known:
                names = ", ".join(known)
                raise bad_request(
                    f"unknown query parameter {name!r:.60}; the parameters are {names}"
                )
            if known[name] in (Value.FLAG, Value.INTEGER) and "" in self._given[name]:
                raise bad_request(f"the parameter {name!r:.60} needs a value, as in {name}=1")
            if known[name] is Value.FLAG:
                self.flag(name)
            elif known[name] in (Value.INTEGER, Value.TIME):
                self.integer(name)
            if known[name] is not Value.TEXTS and len(self._given[name]) > 1:
                raise bad_request(f"the parameter {name!r:.60} occurs twice")

    @property
    def canonical(self) -> list[tuple[str, list[str]]]:
        """Return all arguments with their values, sorted by name."""
        return sorted(self._given.items())

    def text(self, name: str) -> str | None:
        """Return the first value; None without one, and for an empty one."""
        values = self._given.get(name)
        return values[0] or None if values else None

    def needed(self, name: str) -> str:
        """Return the first value; Refusal if it is missing or empty."""
        text = self.text(name)
        if not text:
            raise bad_request(f"Missing the required {name!r} parameter")
        return text

    def texts(self, name: str) -> list[str]:
        """Return all values."""
        return list(self._given.get(name, ()))

    def value(self, one: Parameter) -> Any:
        """Return the value for a field of an opcode, None for a missing text or number; Refusal."""
        if one.value is Value.FLAG:
            return self.flag(one.name)
        if one.value is Value.INTEGER and one.name in self:
            return self.integer(one.name)
        if one.value is Value.TEXTS:
            return self.texts(one.name)
        if one.value is Value.WORDS:
            return self.needed(one.name).split(",")
        return self.needed(one.name) if one.is_required else self.text(one.name)


@dataclass
class Call:
    """One checked request: its user, operation and arguments."""

    operation: "Operation"
    items: tuple[str, ...]
    """The variable parts of the path, in order."""
    arguments: Arguments
    body: Any
    user: User
    address: str
    """Address of the client."""
    services: "Services"
    headers: Mapping[str, str] = field(default_factory=dict)
    session: "Session | None" = None
    """The session, if the user logged in by a cookie."""
    session_secret: str = field(default="", repr=False)
    job_ids: list[int] = field(default_factory=list)
    """Jobs that the request submitted, for the audit log."""

    def object_body(self) -> dict[str, Any]:
        """Return the body as a dictionary, which is empty for an empty body; Refusal."""
        if self.body is None:
            return {}
        if not isinstance(self.body, dict):
            kind = type(self.body).__name__
            raise bad_request(f"Body contents: Type is {kind!r}, but 'dict' is expected")
        return self.body


Handler = Callable[[Call], Awaitable[Any]]
MakeBody = Callable[[Call], dict[str, Any]]
"""Converts requests in another form, such as those of old clients, to the fields of an opcode."""


@dataclass(frozen=True)
class JobOf:
    """An operation that submits one opcode, by one of the opcode's routes."""

    opcode: type[OpCode]
    route: Rest
    make_body: MakeBody | None = None

    @property
    def fixed(self) -> frozenset[str]:
        """Fields that path and query set: the body must not contain them."""
        parameters = (one.field for one in self.route.query if one.field)
        return frozenset((*self.route.fields_in_path, *parameters, *self.route.constants))


@dataclass(frozen=True)
class Operation:
    """One method of one resource."""

    method: str
    path: str
    """For example `/2/nodes/{node}`: a part in braces is an item and names its kind."""
    name: str
    """Name in a job's reason, and in the OpenAPI document after the method."""
    summary: str
    right: Right
    does: Handler | JobOf
    arguments: tuple[Parameter, ...] = ()
    body_schema: Mapping[str, Any] | None = None
    """Schema of the body of handlers; the schema of opcodes is generated from their fields."""
    result: str = "value"
    """Form of the answer (`ganeti.web.openapi` has all): `job` for the number of a job, `list`, `object`, `value` …"""
    shows: str = ""
    """Kind of the objects in the answer (`ganeti.clients.fields.BY_KIND`); empty for answers in other forms."""
    permission: str = ""
    """Name of the permission for `+NAME` and `-NAME` in the users file."""
    is_open: bool = False
    """True if limited users may use the operation: its answer has no objects of others, or leaves them out."""
    is_public: bool = False
    """True if a request needs no login. Its path has no variable part."""
    is_stream: bool = False
    """True if the handler reads the body, which may be long, in parts (`bodies.Incoming`)."""

    @property
    def accepted(self) -> tuple[Parameter, ...]:
        """Arguments of the query; a reason is always accepted, because clients of upstream Ganeti send one."""
        return self.arguments if REASON in self.arguments else (*self.arguments, REASON)

    @property
    def body_limit(self) -> int:
        """Maximum size of the body in bytes."""
        if self.is_public:
            return PUBLIC_BODY_LIMIT
        return JOB_BYTES if self.result == "job" else BODY_LIMIT

    @property
    def id(self) -> str:
        """Return the name in the OpenAPI document."""
        return f"{self.method.lower()}_{self.name or 'root'}"

    @property
    def submits(self) -> bool:
        """Return True if the operation submits one opcode, which the master checks."""
        return isinstance(self.does, JobOf)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of the items of the path."""
        return words_of(self.path)


def read(
    path: str,
    name: str,
    summary: str,
    handler: Handler,
    *arguments: Parameter,
    right: Right = Right.KNOWN,
    result: str = "object",
    shows: str = "",
    is_open: bool = False,
) -> Operation:
    """Return a GET operation with a handler."""
    return Operation(
        "GET",
        path,
        name,
        summary,
        right,
        handler,
        arguments,
        result=result,
        shows=shows,
        is_open=is_open,
    )


def operations_of(
    opcodes: Iterable[type[OpCode]], bodies: Mapping[str, MakeBody]
) -> Iterator[Operation]:
    """Return the operations that opcodes declare; `bodies` are converters by the operation's id in the document."""
    for opcode in opcodes:
        for route in opcode.rest:
            name = route.name or _name_of(route.path)
            make_body = bodies.get(f"{route.method.lower()}_{name}")
            yield Operation(
                route.method,
                route.path,
                name,
                route.summary or _summary_of(opcode),
                route.right,
                JobOf(opcode, route, make_body),
                (*route.query, REASON),
                route.body_schema,
                "job",
                permission=opcode.op_id().removeprefix("OP_").lower(),
            )


def _name_of(path: str) -> str:
    """Return the name that clients of upstream Ganeti use, for example `groups_name_rename`."""
    words = ("name" if word.startswith("{") else word for word in path.split("/")[2:])
    return "_".join(words).replace("-", "_")


def _summary_of(opcode: type[OpCode]) -> str:
    """Return the first clause of the opcode's docstring."""
    return re.split(r"[.,:;]", opcode.__doc__ or "", maxsplit=1)[0]
