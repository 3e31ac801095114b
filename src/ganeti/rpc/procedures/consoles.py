"""The procedure that opens a guest's console for another host: for the web console, and for `gnt-instance console`."""

from typing import Literal

from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.form import NORMAL_S, Message, Procedure

ConsoleKind = Literal["serial", "vnc", "log"]
"""`log`: what the serial console has said, which ends there."""


class ConsoleArgs(Message, frozen=True, kw_only=True):
    instance: InstanceSpec
    kind: ConsoleKind
    address: str
    """The node's own address, at which the endpoint listens."""


class ConsoleEndpoint(Message, frozen=True, kw_only=True):
    """A port of the node for one connection by TLS, whose first bytes must be the secret; closed after 15 s."""

    port: int
    secret: str


CONSOLE_OPEN = Procedure("console_open", ConsoleArgs, ConsoleEndpoint, NORMAL_S, changes=False)
"""A second endpoint to the same serial console ends the first, because QEMU serves one client at a time."""
