"""Opcodes about the devices that switch nodes off."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.base import OpCode
from ganeti.model.operation import NODE, Command, Loss, Rest


class OpNodeFencePassword(OpCode, frozen=True, kw_only=True, tag="OP_NODE_FENCE_PASSWORD"):
    """Store the password that the fence agent of a node uses; an empty one is removed."""

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None
    password: Annotated[str, RefersTo.CLUSTER] = ""

    summary_field: ClassVar[str | None] = "node_name"
    secret_fields: ClassVar[tuple[str, ...]] = ("password",)
    no_loss: ClassVar[str] = "changes an entry of the configuration"


def _ask_off(ops: Sequence[Any]) -> str | None:
    op = ops[0]
    return f"Switch {op.node_name} off? It stays off." if op.off else None


def _lines(_op: Any, said: Any) -> Iterator[str]:
    state = {True: "on", False: "off", None: "not known"}[said["is_on"]]
    yield f"Node: {said['node']}"
    if said["device"]:
        yield f"Device: {said['device']}"
        yield f"Power: {state} (answered in {said['seconds']:.1f} s)"
    yield f"Fencing methods: {' '.join(said['methods']) or 'none'}"
    for name, why in said["storage"].items():
        yield f"Storage of {name}: {why or 'can refuse the writes of the node'}"
    for note in said["notes"]:
        yield f"Note: {note}"
    yield said["plan"]


class OpNodeFenceTest(OpCode, frozen=True, kw_only=True, tag="OP_NODE_FENCE_TEST"):
    """Ask the device that switches a node off for the node's power status, or switch the node off.

    For a node that uses the method storage, the result also names the instances whose storage can refuse its writes.
    """

    node_name: Annotated[str, RefersTo.NODE]
    node_uuid: Annotated[str | None, RefersTo.NODE] = None
    off: Annotated[bool, Field("really switch the node off")] = False

    summary_field: ClassVar[str | None] = "node_name"
    loss: ClassVar[Loss | None] = Loss(_ask_off)
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", "/2/nodes/{node}/fence-test", summary="Test the device that switches a node off"),
    )  # fmt: skip
    cli: ClassVar[Command | None] = Command(
        "gnt-node", "fence-test", (NODE,), confirming=("force",), lines=_lines,
        doc="""Test the device that switches a node off when the node is lost.

        The device is the fence agent of the node (`fence_agent`, `fence_options`; the password is set by gnt-node
        fence-password), or its out-of-band program (`oob_program`). By default the command asks only for the power
        status, which is harmless, and shows what automatic recovery would do. For a node with `storage` among its
        fence_methods, it also shows which instances have storage that can refuse the node's writes; such a node needs no
        device.

        With --off it switches the node off, and waits until the device confirms that. The node must be marked
        offline, or be in maintenance and run no instance.
        """,
    )  # fmt: skip
