"""The allocator protocol, version 2 (seed 004): the message to an allocator, and the form of its answer.

Sizes are MiB. Pure: the caller brings the configuration and the reports of nodes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.model import wire
from ganeti.model.iallocator import PROTOCOL_VERSION, AllocatorAnswer
from ganeti.protocols.iallocator_results import succeeded

Message = dict[str, Any]


def message(
    cluster: Mapping[str, Any],
    groups: Mapping[str, Message],
    nodes: Mapping[str, object],
    instances: Mapping[str, object],
    request: Message,
) -> Message:
    """Return the whole message (S164).

    `cluster` has name, tags, hypervisors and policy under the message's own keys.
    """
    return {
        "version": PROTOCOL_VERSION,
        **cluster,
        "nodegroups": dict(groups),
        "nodes": dict(nodes),
        "instances": dict(instances),
        "request": request,
    }


def parse_answer(allocator: str, output: str) -> AllocatorAnswer:
    """Parse the answer that a program printed; `nodes` is read if `result` is missing (X11, S176, S180)."""
    problem = f"Can't parse the answer of iallocator '{allocator}'"
    try:
        answer = wire.parse_foreign(output.encode(errors="surrogatepass"), what="answer")
    except InputError as err:
        raise PrereqError(f"{problem}: {err}", ErrorCode.ENVIRONMENT) from err
    if not isinstance(answer, dict):
        raise PrereqError(f"{problem}: it is not an object", ErrorCode.ENVIRONMENT)
    if "result" not in answer and "nodes" in answer:
        answer["result"] = answer["nodes"]
    missing = [key for key in ("success", "info", "result") if key not in answer]
    if missing:
        raise PrereqError(f"{problem}: it has no {', '.join(missing)}", ErrorCode.ENVIRONMENT)
    given = {key: answer[key] for key in ("success", "info", "result")}
    try:
        parsed: AllocatorAnswer = wire.convert(given, AllocatorAnswer, what="answer")
    except InputError as err:
        raise PrereqError(f"{problem}: {err}", ErrorCode.ENVIRONMENT) from err
    return parsed


def chosen_names(allocator: str, answer: AllocatorAnswer, required: int) -> Sequence[str]:
    """Return the node names of an `allocate` or `relocate` answer; their number must be right (S177, S182, S237)."""
    result = succeeded(allocator, answer)
    if (
        not isinstance(result, list)
        or not all(isinstance(name, str) for name in result)
        or len(result) != required
    ):
        raise PrereqError(
            f"iallocator '{allocator}' returned an invalid number of nodes ({len(result)}), required {required}"
            if isinstance(result, list)
            else f"iallocator '{allocator}' did not return a list of nodes",
            ErrorCode.ENVIRONMENT,
        )
    return result
