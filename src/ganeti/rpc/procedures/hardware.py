"""Procedures about virtual hardware: what a new instance keeps, NVRAM, the screen."""

from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.form import NORMAL_S, Message, Nothing, Procedure
from ganeti.rpc.procedures.instances import HvParamsArgs, InstanceArgs


class Screenshot(Message, frozen=True, kw_only=True):
    """What a guest's screen shows, as a PNG picture of at most 8 MiB."""

    png: bytes


class Nvram(Message, frozen=True, kw_only=True):
    """A guest's NVRAM, which only one node has; None if there is none."""

    content: bytes | None = None


class WriteNvramArgs(Message, frozen=True, kw_only=True):
    instance: InstanceSpec
    content: bytes


class ForgetNvramArgs(Message, frozen=True, kw_only=True):
    """Of an instance that has left this node; with `everywhere` of one that is removed."""

    instance: InstanceSpec
    everywhere: bool = False


PINNED_HVPARAMS = Procedure("pinned_hvparams", HvParamsArgs, Params, NORMAL_S, changes=False)
"""Parameters that a new instance keeps, so that a newer hypervisor does not change its hardware."""

INSTANCE_SCREENSHOT = Procedure(
    "instance_screenshot", InstanceArgs, Screenshot, NORMAL_S, changes=False
)

NVRAM_READ = Procedure("nvram_read", InstanceArgs, Nvram, NORMAL_S, changes=False)

NVRAM_WRITE = Procedure("nvram_write", WriteNvramArgs, Nothing, NORMAL_S, changes=True)

NVRAM_FORGET = Procedure("nvram_forget", ForgetNvramArgs, Nothing, NORMAL_S, changes=True)
