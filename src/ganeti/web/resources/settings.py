"""The values of objects that a request can change, with their origins and bounds."""

from typing import Any

from ganeti.model.operation import Right
from ganeti.web.operations import Call, Handler, Operation, read
from ganeti.web.resources.instances import INSTANCE


def _settings(kind: str) -> Handler:
    async def found(call: Call) -> Any:
        name = call.items[0] if call.items else ""
        return await call.services.master.ask("QuerySettings", kind, name)

    return found


def _operation(kind: str, path: str, name: str) -> Operation:
    what = "the cluster" if kind == "cluster" else f"one {kind}"
    return read(f"{path}/settings", name, f"Return the settings of {what}: value, origin, bounds, effect",
                _settings(kind), right=Right.READ)  # fmt: skip


OPERATIONS: tuple[Operation, ...] = (
    _operation("cluster", "/2", "settings"),
    _operation("group", "/2/groups/{group}", "groups_name_settings"),
    _operation("instance", INSTANCE, "instances_name_settings"),
    _operation("network", "/2/networks/{network}", "networks_name_settings"),
    _operation("node", "/2/nodes/{node}", "nodes_name_settings"),
)
