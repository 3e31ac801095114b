"""Options of a command from the fields of its opcode, and the opcode from the values of the options."""

import argparse
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple, get_args

from ganeti.base.sizes import parse_mib
from ganeti.cli.command import option
from ganeti.cli.key_values import (
    backend_params,
    disk_requests,
    intervals_us,
    merged_key_values,
    named_key_values,
    nic_requests,
    os_params,
    switches,
    texts,
    words,
)
from ganeti.cli.option import Option
from ganeti.cli.policy_options import POLICY_OPTIONS, policy_of
from ganeti.model.fields import Field, Form, RefersTo, declared_references, fields_of
from ganeti.model.operation import Argument
from ganeti.model.uid_ranges import ParseUidPool

Read = Callable[[Any, str], Any]
"""Return the value of a field from argparse's value, which is not None; raise InputError."""

_REPEATED: dict[str, Any] = {"action": "append"}
YES_NO = ("yes", "no")
_FORMS: dict[Form, tuple[dict[str, Any], Read]] = {
    Form.PLAIN: ({}, lambda value, _name: value),
    Form.WORDS: ({}, lambda text, _name: words(text)),
    Form.REPEATED: (_REPEATED, lambda texts, _name: texts),
    Form.KEY_VALUES: (_REPEATED, merged_key_values),
    Form.BACKEND: (_REPEATED, backend_params),
    Form.OS_PARAMS: (_REPEATED, os_params),
    Form.TEXTS: (_REPEATED, texts),
    Form.DISKS: (_REPEATED, lambda given, _name: disk_requests(given)),
    Form.NICS: (_REPEATED, lambda given, _name: nic_requests(given)),
    Form.NAMED: (_REPEATED, named_key_values),
    Form.SWITCHES: (_REPEATED, switches),
    Form.INTERVALS: (_REPEATED, intervals_us),
    Form.UIDS: ({}, lambda text, _name: ParseUidPool(text)),
    Form.SIZE: ({}, parse_mib),
    Form.OFF: ({"action": "store_false", "default": None}, lambda value, _name: value),
    Form.ON_OFF: ({"action": "store_true", "default": None}, lambda value, _name: value),
    Form.YES_NO: ({"choices": YES_NO}, lambda text, _name: text == YES_NO[0]),
}


class OpOptions(NamedTuple):
    """Options for the fields of an opcode, which is imported only on use because opcodes are slow to import."""

    path: str
    """Module and class in `ganeti.model.opcodes`, for example `cluster.OpClusterSetParams`."""
    without: tuple[str, ...] = ()
    """Fields for which the command has its own options or no options."""

    @property
    def kind(self) -> Any:
        """Return the opcode's class."""
        module, _, name = self.path.partition(".")
        return getattr(import_module(f"ganeti.model.opcodes.{module}"), name)

    def parts(self) -> Iterator[Option | Argument]:
        """Yield the option of each visible field; a policy has several."""
        from ganeti.base.structs import msgspec

        required = {one.name for one in msgspec.structs.fields(self.kind) if one.required}
        refers = declared_references(self.kind)
        for name, (field, type_) in fields_of(self.kind).items():
            if name in self.without or not field.help:
                continue
            if field.form is Form.POLICY:
                yield from POLICY_OPTIONS
            else:
                more: dict[str, Any] = {"completion": refers.get(name, RefersTo.NOTHING).value}
                if name in required:
                    more["required"] = True
                yield from _options(name, field, type_, more)

    def given(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the fields that the command line sets."""
        found: dict[str, Any] = {}
        for name, (field, _type) in fields_of(self.kind).items():
            if name in self.without or not field.help:
                continue
            if field.form is Form.POLICY:
                found |= {name: policy} if (policy := policy_of(args)) else {}
            elif (value := getattr(args, name)) is not None:
                found[name] = _FORMS[field.form][1](value, name)
        return found

    def opcode(self, args: argparse.Namespace, **more: Any) -> Any:
        """Return the opcode with the fields of the command line's options and arguments, and of `more`."""
        from ganeti.model.opcodes.base import OpCode

        known = {*fields_of(self.kind), *OpCode.__struct_fields__, *self.without}
        plain = {
            name: value
            for name in self.kind.__struct_fields__
            if name not in known and (value := getattr(args, name, None)) is not None
        }
        return self.kind(**{**plain, **self.given(args), **more})


def _options(name: str, field: Field, type_: Any, more: dict[str, Any]) -> Iterator[Option]:
    settings = {"dest": name, **_FORMS[field.form][0], **more}
    if field.form is Form.PLAIN and bool in (type_, *get_args(type_)):
        settings |= {"action": "store_true", "default": None}
    elif field.form is Form.PLAIN and int in (type_, *get_args(type_)):
        settings["type"] = int
    elif field.form is Form.PLAIN and float in (type_, *get_args(type_)):
        settings["type"] = float
    if field.metavar:
        settings["metavar"] = field.metavar
    if field.choices:
        settings["choices"] = tuple(str(one) for one in field.choices)
    long = "--" + name.replace("_", "-")
    is_whole, *others = field.flags.split() or [""]
    flags = others if is_whole == "!" else [*field.flags.split(), long]
    yield option(*flags, help=field.help, **settings)
    if field.form is Form.ON_OFF:
        no = long.replace("--", "--no-")
        yield option(no, help="the default", **{**settings, "action": "store_false"})
