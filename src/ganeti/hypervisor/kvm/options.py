"""One option of QEMU's command line, made so that no value becomes part of another (A44).

Commas are doubled, the only character that ends a value; control characters are refused.
"""

from ganeti.base.errors import HypervisorError

_FIRST_PRINTABLE, _DELETE = 32, 127


def option(*words: str, **pairs: str | int | bool) -> str:
    """Return one option's value: leading words, then `name=value`; in a name `_` stands for `-` and `__` for `_`."""
    parts = [_escaped(word) for word in words]
    parts += [f"{_name(name)}={_escaped(_text(value))}" for name, value in pairs.items()]
    return ",".join(parts)


def _name(word: str) -> str:
    return "_".join(part.replace("_", "-") for part in word.split("__"))


def _escaped(value: str) -> str:
    if any(ord(c) < _FIRST_PRINTABLE or ord(c) == _DELETE for c in value):
        raise HypervisorError(
            f"{value!r:.80} contains a control character, which QEMU does not accept"
        )
    return value.replace(",", ",,")


def _text(value: str | int | bool) -> str:  # noqa: FBT001 - a value of QEMU, not a flag of this function
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
