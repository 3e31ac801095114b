"""What every opcode has."""

from decimal import Decimal
from typing import Annotated, ClassVar

import msgspec

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.operation import Command, Loss, Rest
from ganeti.model.params import Params

Reason = tuple[str, str, int]
"""Who asked, why, and when (nanoseconds since the epoch)."""

PRIORITY_LOWEST, PRIORITY_HIGHEST = 19, -20
SUBMITTABLE_PRIORITIES = (-10, 0, 10)
"""High, normal, low: what a job may be submitted with; later it may be given any."""


class OpCode(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="OP_ID"
):
    """A request as data; `run` by the logical unit that `ganeti.units.registry` names for it.

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
    """What the opcode destroys (G12)."""
    no_loss: ClassVar[str] = ""
    """Why an opcode that changes hosts or the configuration destroys nothing."""
    rest: ClassVar[tuple[Rest, ...]] = ()
    """Its routes of the REST interface."""
    cli: ClassVar[Command | None] = None
    """Its command, unless that does more than to run the opcode."""

    @classmethod
    def op_id(cls) -> str:
        """The opcode's name on the wire, as `OP_INSTANCE_CREATE`."""
        return str(cls.__struct_config__.tag)

    def summary(self) -> str:
        """The opcode in a job list, as `INSTANCE_CREATE(web1.example.com)`."""
        name = self.op_id().removeprefix("OP_")
        if self.summary_field is None:
            return name
        value = getattr(self, self.summary_field)
        if isinstance(value, float):
            return f"{name}({_short(value)})"
        return f"{name}({','.join(value) if isinstance(value, list | tuple) else value})"


_DECIMAL_FROM, _DECIMAL_TO = 0.1, 1e7


def _short(value: float) -> str:
    """A number as Ganeti's job lists have it: 0.5, but 1.0e-3."""
    if value == 0 or _DECIMAL_FROM <= abs(value) < _DECIMAL_TO:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}e{int(exponent) + len(digits) - 1}"


class DiskRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A disk that an instance is to have; `size` in MiB."""

    size: int
    """0 for one that is adopted."""
    mode: Annotated[str, RefersTo.NOTHING] = "rw"
    name: Annotated[str | None, RefersTo.NOTHING] = None
    adopt: Annotated[str | None, RefersTo.PATH] = None
    """What lies on the node already and becomes the disk, its data kept: a volume, a device."""
    params: Annotated[Params, RefersTo.DISK_PARAMS] = {}
    # Clients of Ganeti say these beside the others.
    vg: Annotated[str | None, RefersTo.STORAGE] = None
    metavg: Annotated[str | None, RefersTo.STORAGE] = None
    provider: Annotated[str | None, RefersTo.STORAGE] = None
    access: Annotated[str | None, RefersTo.NOTHING] = None
    spindles: int | None = None

    def __post_init__(self) -> None:
        _drop_none(self, "name")

    @property
    def all_params(self) -> Params:
        """The parameters of its template, wherever they were said."""
        beside = {
            "vg": self.vg,
            "metavg": self.metavg,
            "provider": self.provider,
            "access": self.access,
            "spindles": self.spindles,
        }
        return {**{name: one for name, one in beside.items() if one is not None}, **self.params}


class NicRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network interface that an instance is to have; what is left out comes from the cluster."""

    mac: Annotated[str, RefersTo.NOTHING] = "auto"
    ip: Annotated[str | None, RefersTo.NOTHING] = None
    mode: Annotated[str | None, RefersTo.NOTHING] = None
    link: Annotated[str | None, RefersTo.LINK] = None
    vlan: Annotated[str | None, RefersTo.LINK] = None
    name: Annotated[str | None, RefersTo.NOTHING] = None
    network: Annotated[str | None, RefersTo.NETWORK] = None
    """A network by name or UUID, in place of mode, link and VLAN; `ip` may be `pool` then."""

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


# Fields that several opcodes have alike.
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
    "the time that the guest has to shut down before it is killed, in seconds (120)", metavar="SECONDS"
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
    "allow an address of a network that the interface is not in", "! --no-conflicts-check",
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
