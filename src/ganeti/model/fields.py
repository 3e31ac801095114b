"""How people meet a field of a request: its help, and how a command line writes it.

A declaration has it as metadata: `size: Annotated[int, Field("…")]`. Options, completion and manual
pages of commands are made from it (`ganeti.cli.opcode_options`).
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


class Field(NamedTuple):
    """What people see of a field."""

    help: str
    """Without one there is no option."""
    flags: str = ""
    """Other spellings of its option besides its name, as `-C`; with a `!` before them, the only ones."""
    metavar: str | None = None
    form: Form = Form.PLAIN
    names: str = ""
    """What its values name: `node`, `instance`, `os`, `file`; for completion."""
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
