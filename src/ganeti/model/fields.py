"""What a field of a request declares beside its type: how people meet it, and to what its values refer.

Both are metadata: `target_node: Annotated[str, Field("…"), RefersTo.NODE]`. Options, completion and manual pages of
commands are made from `Field` (`ganeti.cli.opcode_options`). From `RefersTo` follows what a limited user may submit
(`ganeti.model.reach`): every field that can hold text declares one, if only `NOTHING`, and a test refuses others.
"""

from enum import Enum, auto
from typing import Annotated, Any, NamedTuple, get_args, get_origin


class Form(Enum):
    """How text becomes the value of a field."""

    PLAIN = auto()
    """As the type says: a text, a whole number, or a flag that means true."""
    OFF = auto()
    """A flag that means false, as `--no-start`."""
    ON_OFF = auto()
    """A flag that means true, and the same with `--no-`."""
    YES_NO = auto()
    SIZE = auto()
    """`10g`, in MiB."""
    WORDS = auto()
    """`a,b`"""
    REPEATED = auto()
    """One text for each time that the option is given."""
    KEY_VALUES = auto()
    """`k=v,no_k,-k`"""
    BACKEND = auto()
    """`k=v,…` of backend parameters: sizes and counts in their types."""
    OS_PARAMS = auto()
    """`k=v,…`, where all values are texts."""
    TEXTS = auto()
    """The same, where none can be taken away."""
    NAMED = auto()
    """`NAME:k=v,…`"""
    SWITCHES = auto()
    """`k=true,k=false`"""
    INTERVALS = auto()
    """`k=SECONDS`; microseconds in the request."""
    UIDS = auto()
    """`UID,LOW-HIGH`"""
    DISKS = auto()
    """`N:size=SIZE,k=v,…`"""
    NICS = auto()
    """`N:k=v,…`"""
    POLICY = auto()
    """The options of an instance policy, which are several."""


class RefersTo(Enum):
    """What the values of a field refer to, by the words of the users file, of completion and of messages."""

    NOTHING = ""
    """No object: a choice from a closed list, a description, a number."""
    ALLOCATOR = "iallocator"
    """An allocator that the administrator has installed; every user may choose one."""
    OS = "os"
    """An OS definition that the administrator has installed; every user may choose one."""

    INSTANCE = "instance"
    """An instance, by name or UUID; one that is gone, by its name."""
    NEW_INSTANCE = "new instance"
    """The name that an instance is to get."""
    DETACHED_DISK = "detached disk"
    """A disk without an instance, by name or UUID."""
    EXPORT = "export"
    """The export of an instance: its name or its directory."""
    JOB = "job"

    NODE = "node"
    GROUP = "group"
    NETWORK = "network"
    LINK = "link"
    """A bridge, a switch, a routing table or a VLAN of the hosts."""
    DIRECTORY = "directory"
    """A directory below the cluster's own for disks in files."""
    STORAGE = "storage"
    """A volume group, a pool, a provider, or what only a provider understands."""
    PATH = "path"
    """A file, a device, a volume or an address of a host."""

    TAG = "tag"
    """A tag that the request changes."""
    CLUSTER = "cluster"
    """The whole cluster, or anything in it."""

    DESTINATION = "export destination"
    """A node, or addresses that another cluster has signed."""
    TAGGED = "tagged object"
    """An object of the kind that the request's field `kind` names."""
    DISK_PARAMS = "disk parameters"
    DISK_CHANGES = "disk changes"
    NIC_CHANGES = "interface changes"
    HYPERVISOR_PARAMS = "hypervisor parameters"
    OS_PARAMS = "OS parameters"
    DEPENDENCIES = "dependencies"


class Field(NamedTuple):
    """What people see of a field."""

    help: str
    """Empty: the field has no option."""
    flags: str = ""
    """Other spellings of its option besides its name, as `-C`; with a `!` before them, the only ones."""
    metavar: str | None = None
    form: Form = Form.PLAIN
    choices: tuple[str, ...] = ()


def fields_of(kind: type[Any]) -> dict[str, tuple[Field, Any]]:
    """Fields that people meet, by name, with their types; of a struct and what it inherits."""
    found: dict[str, tuple[Field, Any]] = {}
    for base in reversed(kind.__mro__):
        # Not by `inspect`, which commands would have to import.
        for name, note in vars(base).get("__annotations__", {}).items():
            if get_origin(note) is Annotated:
                of, *more = get_args(note)
                found.update((name, (one, of)) for one in more if isinstance(one, Field))
    return found


def declared_references(kind: type[Any]) -> dict[str, RefersTo]:
    """Return what each field of a struct refers to, its inherited ones included."""
    found: dict[str, RefersTo] = {}
    for base in reversed(kind.__mro__):
        # Not by `inspect`, which commands would have to import.
        for name, note in vars(base).get("__annotations__", {}).items():
            if get_origin(note) is Annotated:
                found.update((name, one) for one in get_args(note) if isinstance(one, RefersTo))
    return found
