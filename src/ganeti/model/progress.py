"""How far a piece of work is, as nodes report it and jobs show it."""

import msgspec


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The position in what is worked on, in bytes: what is left out because it is zeros counts as well."""

    done: int
    total: int = 0
    """0 if that is not known."""
    part: str = ""
    """What is worked on, if one call works on several things in turn."""
