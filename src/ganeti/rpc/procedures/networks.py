"""Procedures about the networks of a node."""

from ganeti.model.instance_spec import NicSpec
from ganeti.rpc.procedures.form import NORMAL_S, Message, Procedure


class NicsArgs(Message, frozen=True, kw_only=True):
    """Network interfaces that an instance of `hypervisor` has, or will have, on the node."""

    hypervisor: str
    nics: list[NicSpec]


NICS_CHECK = Procedure("nics_check", NicsArgs, list[str], NORMAL_S, changes=False)
