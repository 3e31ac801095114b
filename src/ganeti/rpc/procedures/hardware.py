"""Procedures about virtual hardware: what a new instance keeps, firmware variables, the screen."""

from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.form import NORMAL_S, Message, Nothing, Procedure
from ganeti.rpc.procedures.instances import HvParamsArgs, InstanceArgs


class Screenshot(Message, frozen=True, kw_only=True):
    """What a guest's screen shows, as a PNG picture of at most 8 MiB."""

    png: bytes


class FirmwareVariables(Message, frozen=True, kw_only=True):
    """Variables of a guest's firmware; None if the node has none."""

    content: bytes | None = None


class FirmwareArgs(Message, frozen=True, kw_only=True):
    instance: InstanceSpec
    content: bytes


PINNED_HVPARAMS = Procedure("pinned_hvparams", HvParamsArgs, Params, NORMAL_S, changes=False)
"""Parameters that a new instance keeps, so that a newer hypervisor does not change its hardware."""

INSTANCE_SCREENSHOT = Procedure(
    "instance_screenshot", InstanceArgs, Screenshot, NORMAL_S, changes=False
)

FIRMWARE_READ = Procedure("firmware_read", InstanceArgs, FirmwareVariables, NORMAL_S, changes=False)

FIRMWARE_WRITE = Procedure("firmware_write", FirmwareArgs, Nothing, NORMAL_S, changes=True)

FIRMWARE_FORGET = Procedure("firmware_forget", InstanceArgs, Nothing, NORMAL_S, changes=True)
