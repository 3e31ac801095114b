"""How an operation of the REST interface is declared: method, path, right, parameters, and what it does.

Opcodes declare the operations that submit them (`ganeti.model.operation.Rest`), the tables in `ganeti.web.resources`
all others. Routes, checks and the OpenAPI document are made from both.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ganeti.model.job import JOB_BYTES
from ganeti.model.opcodes import OpCode
from ganeti.model.operation import Parameter, Rest, Right, Value
from ganeti.web.refusals import bad_request
from ganeti.web.users import User

if TYPE_CHECKING:
    from ganeti.web.services import Services

ARGUMENTS_LIMIT = 1000
INTEGER_DIGITS = 19
BODY_LIMIT = 10 * 1024 * 1024
"""Bytes of a body; one that becomes a job may have no more than a job."""


BULK = Parameter("bulk", Value.FLAG, "whole objects in place of their names")
LOCK = Parameter(
    "lock", Value.FLAG, "accepted, without effect: queries read one state and wait for nobody"
)
REASON = Parameter("reason", Value.TEXT, "why; it is kept with the job, if there is one")
LIMIT = Parameter("limit", Value.INTEGER, "at most so many, in the order of their names")
AFTER = Parameter("after", Value.TEXT, "only those after this one, the last of the page before")
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
        known = {one.name: one.value for one in operation.accepted}
        for name in self._given:
            if name not in known:
                names = ", ".join(known)
                raise bad_request(f"unknown parameter {name!r:.60} of the query; known: {names}")
            if known[name] is Value.FLAG:
                self.flag(name)
            elif known[name] is Value.INTEGER:
                self.integer(name)
            if known[name] is not Value.TEXTS and len(self._given[name]) > 1:
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

    def value(self, one: Parameter) -> Any:
        """Return the value for a field of an opcode, None for a text that is not there; Refusal."""
        if one.value is Value.FLAG:
            return self.flag(one.name)
        if one.value is Value.TEXTS:
            return self.texts(one.name)
        if one.value is Value.WORDS:
            return self.needed(one.name).split(",")
        return self.needed(one.name) if one.is_required else self.text(one.name)


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
MakeBody = Callable[[Call], dict[str, Any]]
"""Makes the fields of an opcode from requests in another form, such as those of old clients."""


@dataclass(frozen=True)
class JobOf:
    """An operation that submits one opcode, by one of the opcode's routes."""

    opcode: type[OpCode]
    route: Rest
    make_body: MakeBody | None = None

    @property
    def fixed(self) -> frozenset[str]:
        """Fields that path and query decide: the body must not have them."""
        words = (self.route.field_of(word) for word in words_of(self.route.path))
        parameters = (one.field for one in self.route.query if one.field)
        return frozenset((*words, *parameters, *self.route.constants))


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
    arguments: tuple[Parameter, ...] = ()
    body_schema: Mapping[str, Any] | None = None
    """Of handlers that take a body; that of opcodes is made from their fields."""
    result: str = "value"
    """`job` for the number of a job, `list`, `object` or `value`."""
    permission: str = ""
    """What `+NAME` and `-NAME` of the users file name."""
    is_open: bool = False
    """Whether limited users may use it as a whole: it tells nothing of others, or is cut to what is theirs."""

    @property
    def accepted(self) -> tuple[Parameter, ...]:
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
        return words_of(self.path)


def read(
    path: str,
    name: str,
    summary: str,
    handler: Handler,
    *arguments: Parameter,
    right: Right = Right.KNOWN,
    result: str = "object",
    is_open: bool = False,
) -> Operation:
    """A GET that answers by itself."""
    return Operation(
        "GET", path, name, summary, right, handler, arguments, result=result, is_open=is_open
    )


def operations_of(
    opcodes: Iterable[type[OpCode]], bodies: Mapping[str, MakeBody]
) -> Iterator[Operation]:
    """The operations that opcodes declare; `bodies` are those in another form, by the id in the document."""
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


def words_of(path: str) -> tuple[str, ...]:
    """The words in braces of a path: each names the kind of an object."""
    return tuple(part[1:-1] for part in path.split("/") if part.startswith("{"))


def _name_of(path: str) -> str:
    """As clients of Ganeti know it: `groups_name_rename`."""
    words = ("name" if word.startswith("{") else word for word in path.split("/")[2:])
    return "_".join(words).replace("-", "_")


def _summary_of(opcode: type[OpCode]) -> str:
    """The first clause of the opcode's docstring."""
    return re.split(r"[.,:;]", opcode.__doc__ or "", maxsplit=1)[0]
