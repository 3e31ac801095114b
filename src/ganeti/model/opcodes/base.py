"""Base class of opcodes, and fields that several opcodes share."""

from decimal import Decimal
from typing import Annotated, ClassVar

import msgspec

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.operation import Command, Loss, Rest
from ganeti.model.params import Params

Reason = tuple[str, str, int]
"""Source, text and time (nanoseconds since the epoch) of each reason."""

PRIORITY_LOWEST, PRIORITY_HIGHEST = 19, -20
SUBMITTABLE_PRIORITIES = (-10, 0, 10)
"""High, normal and low: the priorities for a new job; any priority can be set later."""


class OpCode(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="OP_ID"
):
    """A request as data; the logical unit in `ganeti.units.registry` runs it.

    `depends` holds `(job id, final states)` pairs; a negative id counts back in the same submission.
    """

    dry_run: bool | None = False
    debug_level: int = 0
    priority: int = 0
    depends: Annotated[list[tuple[int, list[str]]] | None, RefersTo.DEPENDENCIES] = None
    comment: Annotated[str | None, RefersTo.NOTHING] = None
    reason: Annotated[list[Reason], RefersTo.NOTHING] = []

    summary_field: ClassVar[str | None] = None
    """The field that a job list shows in brackets behind the opcode's name."""
    null_is_default: ClassVar[tuple[str, ...]] = ("debug_level", "reason")
    """Fields that clients of Ganeti set to null to leave them out."""
    secret_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that are never stored, logged or shown (G23)."""
    nested_field: ClassVar[str | None] = None
    """The field that holds a list of opcodes, with secrets of their own."""
    host_changing: ClassVar[bool] = True
    """False if the opcode only reads; then its start need not be durable before it acts (T2)."""
    loss: ClassVar[Loss | None] = None
    """Data that the opcode destroys (G12)."""
    no_loss: ClassVar[str] = ""
    """Reason why an opcode that changes hosts or the configuration destroys no data."""
    rest: ClassVar[tuple[Rest, ...]] = ()
    """Routes of the REST interface that submit this opcode."""
    cli: ClassVar[Command | None] = None
    """Command that runs this opcode and does nothing else."""

    @classmethod
    def op_id(cls) -> str:
        """Return the opcode's name on the wire, for example `OP_INSTANCE_CREATE`."""
        return str(cls.__struct_config__.tag)

    def summary(self) -> str:
        """Return the opcode's text in a job list, for example `INSTANCE_CREATE(web1.example.com)`."""
        name = self.op_id().removeprefix("OP_")
        if self.summary_field is None:
            return name
        value = getattr(self, self.summary_field)
        if isinstance(value, float):
            return f"{name}({_short(value)})"
        return f"{name}({','.join(value) if isinstance(value, list | tuple) else value})"


_DECIMAL_FROM, _DECIMAL_TO = 0.1, 1e7


def _short(value: float) -> str:
    """Return a number in the form of upstream's job lists: 0.5, but 1.0e-3."""
    if value == 0 or _DECIMAL_FROM <= abs(value) < _DECIMAL_TO:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}e{int(exponent) + len(digits) - 1}"


ExpectedSerial = Annotated[
    int | None,
    msgspec.Meta(description="refuse the change unless the object still has this serial_no"),
]
"""For editors, so that they overwrite no change that they have not seen; commands read and change at once."""


class DiskRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A requested disk of an instance; `size` in MiB."""

    size: int
    """0 for an adopted disk."""
    mode: Annotated[str, RefersTo.NOTHING] = "rw"
    name: Annotated[str | None, RefersTo.NEW_DISK] = None
    adopt: Annotated[str | None, RefersTo.PATH] = None
    """Existing volume or device on the node that becomes the disk and keeps its data."""
    params: Annotated[Params, RefersTo.DISK_PARAMS] = {}
    # Clients of upstream Ganeti pass these parameters beside the others.
    vg: Annotated[str | None, RefersTo.STORAGE] = None
    metavg: Annotated[str | None, RefersTo.STORAGE] = None
    provider: Annotated[str | None, RefersTo.STORAGE] = None
    access: Annotated[str | None, RefersTo.NOTHING] = None
    spindles: int | None = None

    def __post_init__(self) -> None:
        _drop_none(self, "name")

    @property
    def all_params(self) -> Params:
        """Return the parameters of the disk's template from both forms."""
        beside = {
            "vg": self.vg,
            "metavg": self.metavg,
            "provider": self.provider,
            "access": self.access,
            "spindles": self.spindles,
        }
        return {**{name: one for name, one in beside.items() if one is not None}, **self.params}


class NicRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A requested network interface; the cluster's parameters replace missing ones."""

    mac: Annotated[str, RefersTo.NOTHING] = "auto"
    ip: Annotated[str | None, RefersTo.NOTHING] = None
    mode: Annotated[str | None, RefersTo.NOTHING] = None
    link: Annotated[str | None, RefersTo.LINK] = None
    vlan: Annotated[str | None, RefersTo.LINK] = None
    name: Annotated[str | None, RefersTo.NOTHING] = None
    network: Annotated[str | None, RefersTo.NETWORK] = None
    """Name or UUID of a network, which replaces mode, link and VLAN; it allows the `ip` value `pool`."""

    def __post_init__(self) -> None:
        _drop_none(self, "ip", "name", "network")


def is_none(text: str) -> bool:
    """Return whether a client of Ganeti spells "no value" this way: `none` in any case."""
    return text.lower() == "none"


def _drop_none(request: msgspec.Struct, *fields: str) -> None:
    """Set the fields that spell "no value" to None; Debian's move-instance sends `None` as a name."""
    for name in fields:
        value = getattr(request, name)
        if value is not None and is_none(value):
            msgspec.structs.force_setattr(request, name, None)


# Fields that several opcodes share.
Iallocator = Annotated[str | None, Field(
    "let this allocator choose the nodes; '.' is the cluster's default", "-I", "NAME"
), RefersTo.ALLOCATOR]  # fmt: skip
TargetNode = Annotated[str | None, Field("target node", "-n", "NODE"), RefersTo.NODE]
TargetGroups = Annotated[list[str] | None, Field(
    "group to move to; may be repeated; default: any other group", "! --to", "GROUP", Form.REPEATED
), RefersTo.GROUP]  # fmt: skip
IgnoreIpolicy = Annotated[bool, Field("ignore violations of the instance policy")]
IgnoreConsistency = Annotated[bool, Field("use a copy of mirrored disks that may be outdated")]
EarlyRelease = Annotated[
    bool, Field("remove old copies of disks before the new ones are filled", "-e")
]
ForceVariant = Annotated[bool, Field("accept a variant that the OS definition does not list")]
ShutdownTimeout = Annotated[int, Field(
    "time for the guest to shut down before it is killed, in seconds (120)", metavar="SECONDS"
)]  # fmt: skip
MigrationMode = Annotated[str | None, Field(
    "live or non-live migration", "! --migration-mode", choices=("live", "non-live")
), RefersTo.NOTHING]  # fmt: skip
NonLive = Annotated[bool | None, Field(
    "pause the guest during the migration", "! --non-live", form=Form.OFF
)]  # fmt: skip
NoRuntimeChanges = Annotated[bool, Field(
    "do not shrink the guest's memory to make it fit", "! --no-runtime-changes", form=Form.OFF
)]  # fmt: skip
NoWaitForSync = Annotated[bool, Field(
    "do not wait for the synchronisation of mirrored disks", "! --no-wait-for-sync",
    form=Form.OFF
)]  # fmt: skip
NoConflictsCheck = Annotated[bool, Field(
    "allow an address that belongs to a network of the cluster which the interface is not in", "! --no-conflicts-check",
    form=Form.OFF
)]  # fmt: skip
OpportunisticLocking = Annotated[bool, Field("ignored; kept for compatibility with Ganeti 3")]
PrivateOsParams = Field(
    "private OS parameters, which are never shown again",
    "! --os-parameters-private",
    "k=v,...",
    Form.TEXTS,
)
SecretOsParams = Field(
    "secret OS parameters, which are never stored",
    "! --os-parameters-secret",
    "k=v,...",
    Form.TEXTS,
)
