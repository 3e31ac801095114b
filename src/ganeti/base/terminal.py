"""The only way for text to reach a terminal: control characters are escaped.

Printed text may have any origin: a refused name, a guest's OS script, another node. An escape
sequence in it would control the administrator's terminal, and a line feed in a cell would forge a
row (A56).
"""

import argparse
import enum
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

from ganeti.base.suggestions import did_you_mean

LAYOUT = "\n\t"
"""Control characters allowed in text of several lines, but not in a single value."""
DECLARED_WIDTH = 1000
"""A width for checks while options are declared, when nothing is printed."""


class Style(enum.Enum):
    """The appearance of a line on a terminal."""

    HEADING = "1"
    WRONG = "31"


def is_coloured(stream: TextIO) -> bool:
    """Return whether lines may have a style: on a terminal that is not dumb, unless NO_COLOR is set."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    return stream.isatty() and not is_dumb and not os.environ.get("NO_COLOR")


def escaped(text: str, limit: int | None = None, *, keep: str = "") -> str:
    r"""Return `text` with unprintable characters (controls, directional marks, half surrogates) as `\x1b`.

    Cut after `limit` characters, with the number of dropped ones; the characters of `keep` stay.
    """
    if limit is None and text.isprintable():
        return text
    dropped = 0 if limit is None else len(text) - limit
    kept = text if limit is None else text[:limit]
    if not kept.isprintable():
        kept = "".join(c if c.isprintable() or c in keep else _escape(c) for c in kept)
    return f"{kept} [{dropped} more characters]" if dropped > 0 else kept


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def say(
    *words: object,
    sep: str = " ",
    end: str = "\n",
    file: TextIO | None = None,
    flush: bool = False,
    keep: str = LAYOUT,
    style: Style | None = None,
) -> None:
    """Print text of any origin: terminal control is escaped, except `keep`.

    Characters that the terminal's character set lacks are escaped too, without an error. `style` is
    for terminals only.
    """
    stream = sys.stdout if file is None else file
    text = sep.join(escaped(str(word), keep=keep) for word in words)
    if not text.isascii():
        charset = getattr(stream, "encoding", None) or "utf-8"
        text = text.encode(charset, "backslashreplace").decode(charset)
    if style is not None and is_coloured(stream):
        text = f"\x1b[{style.value}m{text}\x1b[0m"
    stream.write(f"{text}{end}")
    if flush:
        stream.flush()


def redraw(lines: Sequence[tuple[str, Style | None]]) -> None:
    """Replace the content of the terminal by lines."""
    sys.stdout.write("\x1b[H\x1b[2J")
    for line, style in lines:
        say(line, keep="", style=style)
    sys.stdout.flush()


class Parser(argparse.ArgumentParser):
    """argparse, whose errors quote the command line like `say`.

    It asks for the terminal's width when it prints, not for each declared option. It formats the usage when it prints,
    not before each command line whose options may stand between arguments.
    """

    _is_printing = False

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        # A negative size, as in `grow-disk web1 0 -10m`, is an argument: the command reports its
        # error.
        self._negative_number_matcher = re.compile(r"-[0-9]")

    def error(self, message: str) -> NoReturn:
        """Print the error, and end: 1 for a wrong number of arguments, 2 for options, as scripts expect."""
        _, counted, words = message.partition(" arguments are required: ")
        if not counted:
            _, counted, words = message.partition("unrecognized arguments: ")
        is_number = counted and not any(word.startswith("-") for word in words.split())
        self.print_usage(sys.stderr)
        close = self._close_option(words) if counted and not is_number else ""
        self.exit(1 if is_number else 2, escaped(f"{self.prog}: error: {message}{close}") + "\n")

    def _close_option(self, words: str) -> str:
        """Return a suggestion for the first unknown option."""
        unknown = next(word for word in words.split() if word.startswith("-"))
        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        return did_you_mean(unknown.partition("=")[0], known)

    def parse_known_intermixed_args(self, *words: Any, **settings: Any) -> Any:
        self.usage = ""
        try:
            return super().parse_known_intermixed_args(*words, **settings)
        finally:
            self.usage = None

    def format_help(self) -> str:
        self._begin_printing()
        return super().format_help()

    def format_usage(self) -> str:
        self._begin_printing()
        return super().format_usage()

    def _begin_printing(self) -> None:
        """Restore what argparse changes while it parses options and arguments apart; printing ends the program."""
        self._is_printing = True
        self.usage = None
        for action in self._actions:
            for name in ("nargs", "default", "required"):
                setattr(action, name, getattr(action, f"save_{name}", getattr(action, name)))

    def _get_formatter(self) -> argparse.HelpFormatter:
        if self._is_printing:
            return super()._get_formatter()
        return argparse.HelpFormatter(self.prog, width=DECLARED_WIDTH)
