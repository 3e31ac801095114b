"""Opcodes about what is installed on an instance, and under which name."""

from typing import ClassVar

from ganeti.model.opcodes.instance import OnInstance


class OpInstanceReinstall(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_REINSTALL"):
    """Run the OS create script again on an instance that is down; what is on its disks is lost.

    All parameters of the OS count for this installation only; `os_type` is kept.
    """

    os_type: str | None = None
    force_variant: bool = False
    osparams: dict[str, str] | None = None
    osparams_private: dict[str, str] | None = None
    osparams_secret: dict[str, str] | None = None

    secret_fields: ClassVar[tuple[str, ...]] = ("osparams_secret",)


class OpInstanceRename(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_RENAME"):
    """Give an instance that is down another name, and tell its OS by the definition's script.

    With `name_check` the new name must resolve; with `ip_check` nobody may answer at its address.
    """

    new_name: str
    name_check: bool = False
    ip_check: bool = False
