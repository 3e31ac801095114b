"""Procedures about virtual hardware: the fixed settings of a new instance, NVRAM, the screen."""

from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.form import NORMAL_S, Message, Nothing, Procedure
from ganeti.rpc.procedures.instances import HvParamsArgs, InstanceArgs


class Screenshot(Message, frozen=True, kw_only=True):
    """A guest's screen as a PNG picture of at most 8 MiB."""

    png: bytes


class Nvram(Message, frozen=True, kw_only=True):
    """A guest's NVRAM, which only one node has; None if it does not exist."""

    content: bytes | None = None


class WriteNvramArgs(Message, frozen=True, kw_only=True):
    instance: InstanceSpec
    content: bytes


class ForgetNvramArgs(Message, frozen=True, kw_only=True):
    """For an instance that has left this node; with `everywhere`, for a removed instance."""

    instance: InstanceSpec
    everywhere: bool = False


PINNED_HVPARAMS = Procedure("pinned_hvparams", HvParamsArgs, Params, NORMAL_S, changes=False)
"""Parameters fixed for a new instance, so that a newer hypervisor does not change its hardware."""

INSTANCE_SCREENSHOT = Procedure(
    "instance_screenshot", InstanceArgs, Screenshot, NORMAL_S, changes=False
)

NVRAM_READ = Procedure("nvram_read", InstanceArgs, Nvram, NORMAL_S, changes=False)

NVRAM_WRITE = Procedure("nvram_write", WriteNvramArgs, Nothing, NORMAL_S, changes=True)

NVRAM_FORGET = Procedure("nvram_forget", ForgetNvramArgs, Nothing, NORMAL_S, changes=True)
