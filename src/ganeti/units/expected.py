"""Changes that were decided on what is old by now: refused if the request names the serial number that it knows."""

from collections.abc import Callable, Mapping
from typing import Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.kinds import kind_of
from ganeti.config.resolve import resolve_group, resolve_instance, resolve_network, resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.group import OpGroupSetParams
from ganeti.model.opcodes.instance_changes import OpInstanceSetParams
from ganeti.model.opcodes.network import OpNetworkSetParams
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.opcodes.tags import OpTagsDel, OpTagsSet
from ganeti.model.stored import Stored
from ganeti.units.tags.taggable import tagged_object


def _tagged(view: Snapshot, op: Any) -> Stored:
    return tagged_object(view, op.kind, op.name)


EDITED: Mapping[type[OpCode], Callable[[Snapshot, Any], Stored]] = {
    OpClusterSetParams: lambda view, op: view.cluster,  # noqa: ARG005
    OpGroupSetParams: lambda view, op: resolve_group(view, op.group_name),
    OpInstanceSetParams: lambda view, op: resolve_instance(view, op.instance_name),
    OpNetworkSetParams: lambda view, op: resolve_network(view, op.network_name),
    OpNodeSetParams: lambda view, op: resolve_node(view, op.node_name),
    OpTagsDel: _tagged,
    OpTagsSet: _tagged,
}
"""Opcodes with `expected_serial`, and the object that each changes."""


def check_expected(view: Snapshot, op: OpCode) -> None:
    """Raise PrereqError if the object of an edit has another serial number than the request expects.

    It counts under the locks of the job; the check at the submission only says it earlier.
    """
    edited = EDITED.get(type(op))
    expected: int | None = getattr(op, "expected_serial", None)
    if edited is None or expected is None:
        return
    found = edited(view, op)
    if found.serial_no != expected:
        raise PrereqError(
            f"{kind_of(found)} {found.name} has changed since it was read: its serial_no is"
            f" {found.serial_no}, and the request expects {expected}. Nothing was changed; read the"
            " present values, and repeat the request with their serial_no",
            ErrorCode.WRONG_STATE,
        )
