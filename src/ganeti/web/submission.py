"""Conversion of a request to a job: path, query and body become one checked opcode."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.model import wire
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.opcode_table import parse_opcode
from ganeti.model.opcodes import OpCode
from ganeti.web.operations import Call, JobOf
from ganeti.web.refusals import Refusal, bad_request, forbidden

SUBMIT = "SubmitJobAs"
KEY_HEADER = "Idempotency-Key"
KEY_FORM = re.compile(r"[\x21-\x7e]{1,255}")
REASON_LIMIT = 1000
_OWN_FIELDS = ("OP_ID", "reason", "debug_level")
"""Fields of an opcode that a request cannot set."""


async def submit_job(call: Call, does: JobOf) -> int:
    """Submit the operation's opcode; return the number of the job."""
    return await submit_opcodes(call, [await opcode_of(call, does)])


async def submit_opcodes(call: Call, ops: Sequence[OpCode], key: str = "") -> int:
    """Submit opcodes as one job of the call's user; return its number, which is the same for the same key.

    The default is the key of the call.
    """
    plain = [wire.plain(op) for op in ops]
    for one in plain:
        await _check_hvparams(call, one)
    scope = call.user.rights.scope
    who = {
        "user": call.user.name,
        "address": call.address,
        "scope": wire.plain(scope) if scope.is_restricted else None,
    }
    try:
        answer = await call.services.master.submit(SUBMIT, who, plain, key or key_of(call))
    except PrereqError as err:
        if err.code is not ErrorCode.NOT_UNIQUE:
            raise
        why = f"this {KEY_HEADER} was used for another request"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, why) from err
    job_id = int(answer)
    call.job_ids.append(job_id)
    return job_id


async def opcode_of(call: Call, does: JobOf) -> OpCode:
    """Return the opcode of the request; Refusal names an invalid field."""
    if does.make_body is not None:
        body = does.make_body(call)
    else:
        body = dict(call.object_body()) if does.route.has_body else {}
    fields = renamed(body, does.route.renamed)
    if overwritten := (does.fixed | set(_OWN_FIELDS)) & fields.keys():
        raise bad_request(f"Can't overwrite static parameters {sorted(overwritten)}")
    for name in does.route.forbidden:
        if name in fields:
            raise forbidden(f"The parameter {name} cannot be set via RAPI")
    return parsed(call, {**fields, **_fixed(call, does), "OP_ID": does.opcode.op_id()})


def _fixed(call: Call, does: JobOf) -> dict[str, Any]:
    """Return the fields that path and query set."""
    fixed = dict(does.route.constants)
    for kind, word in zip(call.operation.kinds, call.items, strict=True):
        name = does.route.field_of(kind)
        fixed[name] = _FROM_PATH.get(name, str)(word)
    for one in does.route.query:
        if one.field and (value := call.arguments.value(one)) is not None:
            fixed[one.field] = value
    return fixed


_FROM_PATH: dict[str, Callable[[str], Any]] = {
    "disk": int,
    "instances": lambda word: [word],
    "nodes": lambda word: [word],
}
"""Converters of variable parts of a path, by the field; other fields are names."""


def renamed(body: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the body with the present names of fields; Refusal if the body also has an old name."""
    fields = dict(body)
    for old, new in names.items():
        if old in fields:
            if new in fields:
                raise bad_request(
                    f"Parameter {old!r} was renamed to {new!r}, but both are specified"
                )
            fields[new] = fields.pop(old)
    return fields


def parsed(call: Call, fields: dict[str, Any]) -> OpCode:
    """Return the opcode for plain fields, with the call's reason; Refusal."""
    try:
        return parse_opcode({**fields, "reason": reason_of(call)}, what="body")
    except InputError as err:
        raise bad_request(f"Invalid body parameters: {err.message}") from err


def reason_of(call: Call) -> list[list[Any]]:
    """Return the reason trail of a job: its user and reason."""
    now = int(call.services.clock.time() * 1e9)
    trail: list[list[Any]] = []
    given = call.arguments.text("reason")
    if given:
        if len(given) > REASON_LIMIT:
            raise bad_request(f"the reason is too long; its limit is {REASON_LIMIT} characters")
        trail.append(["gnt:user", given, now])
    trail.append([f"gnt:library:rlib2:{call.operation.name}", "", now])
    return trail


def key_of(call: Call) -> str:
    """Return the key of the job's submission: derived from the user's key and the request, or a new one.

    The master refuses the same key for another request.
    """
    given = call.headers.get(KEY_HEADER)
    if given is None:
        return f"rest-{secrets.token_hex(16)}"
    if not KEY_FORM.fullmatch(given):
        raise bad_request(f"{KEY_HEADER} must be 1 to 255 printable characters without spaces")
    asked = _digest(
        call.operation.method,
        call.operation.path,
        *call.items,
        wire.encode(call.arguments.canonical).decode(),
        wire.encode(call.body).decode(),
    )
    return f"rest-{_digest(call.user.name, given)[:48]}.{asked[:32]}"


def _digest(*words: str) -> str:
    return hmac.digest(b"rest", "\0".join(words).encode(), hashlib.sha256).hex()


_OF_HOST = frozenset(
    name
    for params in HYPERVISOR_PARAMS.values()
    for name, param in params.items()
    if param.touches_host
)


async def _check_hvparams(call: Call, op: dict[str, Any]) -> None:
    """Refuse parameters that reach the host early; the master would refuse the job (A44)."""
    named = set(_hvparam_names(op)) & _OF_HOST
    if not named:
        return
    info = await call.services.master.ask("QueryClusterInfo")
    if refused := sorted(named - set(info.get("remote_hvparams") or ())):
        raise forbidden(
            f"hypervisor parameters that reach the host cannot be set via RAPI: {', '.join(refused)};"
            " 'gnt-cluster modify --remote-hvparams=' allows them"
        )


def _hvparam_names(op: dict[str, Any]) -> list[str]:
    """Yield the names of all hypervisor parameters in an opcode."""
    found: list[str] = []
    given = op.get("hvparams") or {}
    if op["OP_ID"] == "OP_CLUSTER_SET_PARAMS":
        found += [name for params in given.values() for name in params or ()]
        for hypervisors in (op.get("os_hvp") or {}).values():
            found += [name for params in (hypervisors or {}).values() for name in params or ()]
    else:
        found += given
    for nested in op.get("instances") or ():
        if isinstance(nested, dict):
            found += nested.get("hvparams") or {}
    return found
