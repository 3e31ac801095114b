"""The history of the figures of instances and nodes."""

from typing import Any

from ganeti.model.figures import STEPS
from ganeti.model.operation import Parameter, Right, Value
from ganeti.web.operations import Call, Operation, read
from ganeti.web.refusals import bad_request
from ganeti.web.resources.instances import INSTANCE

_STEPS = ", ".join(map(str, STEPS))
_RANGE = (
    Parameter("start", Value.TIME, "beginning in seconds since the epoch; default: an hour before the end"),
    Parameter("end", Value.TIME, "end in seconds since the epoch; default: now"),
    Parameter("step", Value.INTEGER, f"resolution in seconds: {_STEPS}; default: the finest that is kept for so long"),
)  # fmt: skip


async def _history(call: Call, kind: str) -> dict[str, Any]:
    given = call.arguments
    start, end, step = (given.integer(one.name) if one.name in given else None for one in _RANGE)
    if step is not None and step not in STEPS:
        raise bad_request(f"step: {step} is not a resolution; use one of {_STEPS}")
    found: dict[str, Any] = await call.services.master.ask(
        "QueryHistory", kind, call.items[0], start, end, step
    )
    return found


async def _of_instance(call: Call) -> dict[str, Any]:
    return await _history(call, "instance")


async def _of_node(call: Call) -> dict[str, Any]:
    return await _history(call, "node")


OPERATIONS: tuple[Operation, ...] = (
    read(f"{INSTANCE}/history", "instances_name_history",
         "Return processor, memory, disk and network of an instance over time", _of_instance, *_RANGE,
         right=Right.READ, result="object"),
    read("/2/nodes/{node}/history", "nodes_name_history",
         "Return processor, memory, disk and network of a node over time", _of_node, *_RANGE,
         right=Right.READ, result="object"),
)  # fmt: skip
