"""The declaration of a request's field beside its type: its form for people, and the objects to which it refers.

Both are metadata: `target_node: Annotated[str, Field("…"), RefersTo.NODE]`. Options, completion and manual pages of
commands are made from `Field` (`ganeti.cli.opcode_options`). From `RefersTo` follows what a limited user may submit
(`ganeti.units.job_scope`) and which names the REST interface refuses (`ganeti.units.missing_objects`): every field that
can hold text declares one, if only `NOTHING`, and a test refuses others.
"""

from enum import Enum, auto
from typing import Annotated, Any, NamedTuple, get_args, get_origin


class Form(Enum):
    """The conversion of text to the value of a field."""

    PLAIN = auto()
    """By the type: a text, a whole number, or a flag that means true."""
    OFF = auto()
    """A flag that means false, for example `--no-start`."""
    ON_OFF = auto()
    """A flag that means true, and the same with `--no-`."""
    YES_NO = auto()
    SIZE = auto()
    """`10g`, in MiB."""
    WORDS = auto()
    """`a,b`"""
    REPEATED = auto()
    """One text for each use of the option."""
    KEY_VALUES = auto()
    """`k=v,no_k,-k`"""
    BACKEND = auto()
    """`k=v,…` of backend parameters: sizes and counts in their types."""
    OS_PARAMS = auto()
    """`k=v,…`, where all values are texts."""
    TEXTS = auto()
    """The same, but no value can be removed."""
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
    """The kind of objects to which a field refers, in the words of the users file, of completion and of messages."""

    NOTHING = ""
    """No object: a choice from a closed list, a description, a number."""
    ALLOCATOR = "iallocator"
    """An allocator that the administrator has installed; every user may choose it."""
    OS = "os"
    """An OS definition that the administrator has installed; every user may choose it."""

    INSTANCE = "instance"
    """An instance, by name or UUID; a removed one by its name."""
    NEW_INSTANCE = "new instance"
    """The name of an instance to create or rename."""
    DETACHED_DISK = "detached disk"
    """A disk without an instance, by name or UUID."""
    EXPORT = "export"
    """The export of an instance: its name or its directory."""
    JOB = "job"

    NODE = "node"
    NEW_NODE = "new node"
    GROUP = "group"
    NEW_GROUP = "new group"
    NETWORK = "network"
    NEW_NETWORK = "new network"
    IMAGE = "image"
    NEW_IMAGE = "new image"
    NEW_DISK = "new disk"
    """The name of a disk to create or rename; the instance of the request owns it."""
    LINK = "link"
    """A bridge, a switch, a routing table or a VLAN of the hosts."""
    DIRECTORY = "directory"
    """A directory below the cluster's own for disks in files."""
    STORAGE = "storage"
    """A volume group, a pool, a provider, or a value that only a provider interprets."""
    PATH = "path"
    """A file, a device, a volume or an address of a host."""

    TAG = "tag"
    """A tag that the request changes."""
    CLUSTER = "cluster"
    """The whole cluster, or anything in it."""

    DESTINATION = "export destination"
    """A node, or addresses that another cluster has signed."""
    ALLOCATORS = "allocators"
    """Lists of allocators by kind of request (`ganeti.model.iallocator.parse_defaults`)."""
    TAGGED = "tagged object"
    """An object of the kind that the request's field `kind` names."""
    DISK_PARAMS = "disk parameters"
    DISK_CHANGES = "disk changes"
    NIC_CHANGES = "interface changes"
    HYPERVISOR_PARAMS = "hypervisor parameters"
    OS_PARAMS = "OS parameters"
    DEPENDENCIES = "dependencies"


class Field(NamedTuple):
    """The form of a field for people."""

    help: str
    """Empty: the field has no option."""
    flags: str = ""
    """Alternative spellings of its option, for example `-C`; after a `!`, the only ones."""
    metavar: str | None = None
    form: Form = Form.PLAIN
    choices: tuple[str, ...] = ()


def fields_of(kind: type[Any]) -> dict[str, tuple[Field, Any]]:
    """Return fields with an option, by name, with their types; of a struct and its bases."""
    found: dict[str, tuple[Field, Any]] = {}
    for base in reversed(kind.__mro__):
        # Not by `inspect`, which commands would have to import.
        for name, note in vars(base).get("__annotations__", {}).items():
            if get_origin(note) is Annotated:
                of, *more = get_args(note)
                found.update((name, (one, of)) for one in more if isinstance(one, Field))
    return found


def declared_references(kind: type[Any]) -> dict[str, RefersTo]:
    """Return the reference of each field of a struct, including inherited ones."""
    found: dict[str, RefersTo] = {}
    for base in reversed(kind.__mro__):
        # Not by `inspect`, which commands would have to import.
        for name, note in vars(base).get("__annotations__", {}).items():
            if get_origin(note) is Annotated:
                found.update((name, one) for one in get_args(note) if isinstance(one, RefersTo))
    return found
