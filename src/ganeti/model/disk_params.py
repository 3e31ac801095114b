"""Checks of the parameters of disk templates, which the rows of `disk_templates` declare (S74, S77).

No name has two meanings: if two templates share one, it means the same for both (S78).
"""

import re
from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.identifiers import volume_name
from ganeti.base.suggestions import did_you_mean
from ganeti.model.disk_templates import DISK_FORMATS, TEMPLATES
from ganeti.model.param import typed_value
from ganeti.model.params import Params

MOST_STRIPES = 128
_CHOICES = {
    "access": ("kernelspace", "userspace"),
    "disk-barriers": ("n", "b", "d", "f", "bd", "bf", "df", "bdf"),
    "format": DISK_FORMATS,
    "protocol": ("A", "B", "C"),
}
_RANGES = {
    "data-stripes": (1, MOST_STRIPES),
    "meta-stripes": (1, MOST_STRIPES),
    "stripes": (1, MOST_STRIPES),
    "stripe_size": (4, 1 << 20),
    "spindles": (1, MOST_STRIPES),
    "thin_overcommit": (1, 10_000),
    "port": (1, 65535),
    "meta_size": (2, 1 << 20),
}
ALIASES = {"plain": {"stripe": "stripes"}}
"""Template -> alternative names of parameters, those of the design (S77) -> their stored names."""
_WORD = re.compile(r"[A-Za-z0-9_.:+-]*", re.ASCII)
_OPTIONS = re.compile(r"[A-Za-z0-9_.:+=, /-]*", re.ASCII)
"""The characters of options for DRBD's own tools; each option becomes words of a list, never a command line."""
_OPEN_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
OPEN_VALUE_LIMIT = 4096
_GROUPS = ("vg", "metavg", "thin_pool")
"""Names of volume groups, and of pools in them."""
_FREE_TEXTS = ("disk-custom", "net-custom")


def check_disk_params(
    template: str, given: Mapping[str, Any], field: str, *, of_disk: bool = False
) -> Params:
    """Return parameters of one template with values in their types, None among them; unknown ones are refused.

    With `of_disk` the parameters of single disks are allowed.
    """
    row = TEMPLATES.get(template)
    if row is None:
        names = ", ".join(sorted(TEMPLATES))
        raise InputError(f"{template!r:.40} is not a disk template; known: {names}", field)
    known: Mapping[str, Any] = {**row.params, **row.own_params} if of_disk else row.params
    checked = Params()
    aliases = ALIASES.get(template, {})
    for word, value in given.items():
        where, name = f"{field}.{word}", aliases.get(word, word)
        if name not in known and row.open_params and _OPEN_NAME.fullmatch(name):
            checked[name] = None if value is None else _open_value(value, where)
            continue
        if name not in known:
            names = ", ".join(known) or "none"
            raise InputError(
                f"disk template {template} has no such parameter{did_you_mean(name, known)}; it has {names}",
                where,
            )
        if name in checked:
            raise InputError(f"is given twice, also as {name}", where)
        checked[name] = None if value is None else _checked(name, value, known[name], where)
    return checked


def _open_value(value: Any, where: str) -> str:
    """Check a value that only a provider interprets; it becomes a variable of its scripts."""
    text = str(value)
    if not text.isprintable() or len(text) > OPEN_VALUE_LIMIT:
        raise InputError("must be printable text", where)
    return text


def _checked(name: str, value: Any, default: Any, where: str) -> Any:
    typed = typed_value(value, default, where)
    if name in _CHOICES and typed not in _CHOICES[name]:
        raise InputError(f"must be one of {', '.join(_CHOICES[name])}", where)
    if name in _GROUPS:
        if typed:
            volume_name(typed, where)
    elif isinstance(default, str):
        form = _OPTIONS if name in _FREE_TEXTS else _WORD
        if not form.fullmatch(typed) or (typed.startswith("-") and form is _WORD):
            raise InputError(f"{typed!r:.60} has a character that is not allowed", where)
    elif not isinstance(default, bool):
        least, most = _RANGES.get(name, (0, 1 << 31))
        if not least <= typed <= most:
            raise InputError(f"must be from {least} to {most}", where)
        if name == "stripe_size" and typed & (typed - 1):
            raise InputError("must be a power of two, in KiB", where)
    return typed


def is_plain_disk_param(name: str) -> bool:
    """Return whether a parameter is a number, a flag or a choice in every template, and so refers to no object.

    Options for the tools of DRBD, and parameters that only a provider interprets, are not.
    """
    rows = [{**row.params, **row.own_params} for row in TEMPLATES.values()]
    aliases = {new: old for names in ALIASES.values() for new, old in names.items()}
    stored = aliases.get(name, name)
    found = [row[stored] for row in rows if stored in row]
    return bool(found) and (
        stored in _CHOICES or not any(isinstance(default, str) for default in found)
    )
