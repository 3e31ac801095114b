"""Messages and exit codes of upstream's compiled programs: the placement commands and mon-collector.

Scripts match the beginning of these messages, so it is upstream's. The rest of each message is advice.
"""

import argparse
import sys
from typing import Any, NoReturn

from ganeti.base.errors import GanetiError
from ganeti.base.terminal import Parser, say
from ganeti.cli.command import EXIT_FAILURE, EXIT_USAGE, ErrorForm

NO_ARGUMENTS = "This program doesn't take any arguments."
ONE_FILE = "Only one argument is accepted (the input file)"
"""Message for surplus arguments; `{}` stands for them."""


def error_line(err: GanetiError) -> str:
    """Return the error on one line."""
    return f"Error: {err.message}"


class CompiledParser(Parser):
    """argparse with upstream's exit codes: 2 for an unknown option, 1 for an invalid value or argument."""

    def __init__(self, *args: Any, surplus: str = NO_ARGUMENTS, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._surplus = surplus

    def error(self, message: str) -> NoReturn:
        """Print the error and exit; for an unknown option, also print the list of options."""
        _, is_surplus, words = message.partition("unrecognized arguments: ")
        unknown = next((word for word in words.split() if word.startswith("-")), None)
        if unknown is not None:
            option = unknown.partition("=")[0]
            close = self._close_option(option)
            say(f"Command line error: unrecognized option `{option}'{close}\n", file=sys.stderr)
            self.print_usage(sys.stderr)
            self.exit(EXIT_USAGE)
        if is_surplus:
            say(f"Error: {self._surplus.format(words)}", file=sys.stderr)
        elif "arguments are required: " in message:
            say("Error: This program needs an input file.", file=sys.stderr)
        else:
            say(f"Error while parsing command line arguments:\n{message}", file=sys.stderr)
        self.exit(EXIT_FAILURE)


def collector_parser(**settings: Any) -> argparse.ArgumentParser:
    """The parser of a command of mon-collector, which has its own message for surplus arguments."""
    return CompiledParser(surplus="This program takes exactly zero arguments, got '{}'", **settings)


COLLECTOR = ErrorForm(error_line, collector_parser)
