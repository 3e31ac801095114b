"""Opcodes about the installed system and the name of an instance."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.opcodes.base import ForceVariant, PrivateOsParams, SecretOsParams
from ganeti.model.opcodes.instance import OnInstance, instance_names
from ganeti.model.operation import INSTANCE, NEW_NAME, Command, Loss, Rest


def _ask_reinstall(ops: Sequence[Any]) -> str:
    what = f"OS {ops[0].os_type}" if ops[0].os_type else "the present OS of each"
    return f"Install {what} on {instance_names(ops)}? All data on the disks is lost."


class OpInstanceReinstall(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_REINSTALL"):
    """Run the OS create script again on an instance that is down; all data on its disks is lost.

    The OS parameters apply only to this installation; `os_type` is stored.
    """

    os_type: Annotated[str | None, Field(
        "install this OS; default: the OS of the instance", "-o", "OS[+VARIANT]"
    ), RefersTo.OS] = None  # fmt: skip
    force_variant: ForceVariant = False
    osparams: Annotated[dict[str, str] | None, Field(
        "parameters of the OS definition, for this installation only", "! -O --os-parameters",
        "k=v,...", Form.TEXTS
    ), RefersTo.OS_PARAMS] = None  # fmt: skip
    osparams_private: Annotated[dict[str, str] | None, PrivateOsParams, RefersTo.OS_PARAMS] = None
    osparams_secret: Annotated[dict[str, str] | None, SecretOsParams, RefersTo.OS_PARAMS] = None

    secret_fields: ClassVar[tuple[str, ...]] = ("osparams_secret",)
    loss: ClassVar[Loss | None] = Loss(_ask_reinstall, ("force", "force_multi"))


class OpInstanceRename(OnInstance, frozen=True, kw_only=True, tag="OP_INSTANCE_RENAME"):
    """Rename an instance that is down, and run the rename script of its OS.

    With `name_check` the new name must resolve. With `ip_check` no host may answer at its address.
    """

    new_name: Annotated[str, RefersTo.NEW_INSTANCE]
    name_check: Annotated[
        bool, Field("refuse if the new name does not resolve", form=Form.ON_OFF)
    ] = False
    ip_check: Annotated[bool, Field(
        "refuse if the address of the new name already answers; needs --name-check", form=Form.ON_OFF
    )] = False  # fmt: skip

    summary_field: ClassVar[str | None] = None
    no_loss: ClassVar[str] = "keeps the disks and renames their files"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/instances/{instance}/rename", summary="Rename an instance"),
    )
    cli: ClassVar[Command | None] = Command(
        "gnt-instance", "rename", (INSTANCE, NEW_NAME), confirming=("force",),
        lines=lambda op, name: [f"Renamed instance {op.instance_name} to {name}"],
        doc="""Rename an instance. It must be down.

        The rename script of the OS changes the name in the installed system. If the script fails, the job logs a
        warning and renames the instance nevertheless. The paths of disk files do not change.
        """,
    )  # fmt: skip
