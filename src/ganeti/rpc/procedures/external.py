"""Procedures about providers of external storage."""

from ganeti.rpc.procedures.form import NORMAL_S, Message, Nothing, Procedure


class ProviderInfo(Message, frozen=True, kw_only=True):
    """A provider on a node; `problem` is the reason why it cannot be used."""

    name: str
    path: str
    problem: str = ""
    scripts: list[str] = []
    parameters: list[tuple[str, str]] = []
    """Names and descriptions."""


EXT_PROVIDERS = Procedure("ext_providers", Nothing, list[ProviderInfo], NORMAL_S, changes=False)
