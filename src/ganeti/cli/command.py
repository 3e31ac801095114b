"""Tables of commands, the source of parsers, help, completion, manual pages and tests."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from ganeti.base.errors import GanetiError
from ganeti.base.start import version_line
from ganeti.base.suggestions import did_you_mean
from ganeti.base.terminal import Parser, say
from ganeti.cli.dashed_values import joined
from ganeti.cli.errors import exit_code_of, format_error
from ganeti.cli.option import Option
from ganeti.model.operation import Argument

EXIT_FAILURE, EXIT_USAGE = 1, 2
COMPLETION = "--generate-completion"
ABOUT = ("--version", "--help-completion")
"""Options by which a program and its commands describe themselves, as in upstream's compiled commands."""


class PartSource(Protocol):
    """Options and arguments that are created when a command is used, because their source is slow to import."""

    def parts(self) -> Iterable[Option | Argument]: ...


Handler = Callable[[argparse.Namespace], int]
Part = Option | Argument | PartSource


class Command(NamedTuple):
    """One subcommand: its function, options and arguments."""

    name: str
    function: Handler
    parts: tuple[Part, ...]
    aliases: tuple[str, ...] = ()
    doc: str = ""
    """Documentation: a summary, an empty line, the description."""

    @property
    def arguments(self) -> list[Argument]:
        """Return the positional arguments, in order."""
        return [part for part in self._made_parts() if isinstance(part, Argument)]

    @property
    def source(self) -> PartSource | None:
        """Return the source of options that the command does not list itself."""
        sources = [one for one in self.parts if not isinstance(one, Option | Argument)]
        return sources[0] if sources else None

    @property
    def options(self) -> list[Option]:
        """Return all options, in order."""
        found = [part for part in self._made_parts() if isinstance(part, Option)]
        taken = {flag for one in found for flag in one.flags}
        return found + [one for one in COMMON if not taken & set(one.flags)]

    def _made_parts(self) -> Iterator[Option | Argument]:
        for part in self.parts:
            if isinstance(part, Option | Argument):
                yield part
            else:
                yield from part.parts()

    @property
    def summary(self) -> str:
        """Return the first line of the documentation."""
        return self.doc.partition("\n")[0]

    @property
    def text(self) -> str:
        """Return the description for the manual page and `--help`."""
        return self.doc.partition("\n")[2].strip()


def option(*flags: str, help: str, completion: str = "", **settings: Any) -> Option:  # noqa: A002
    """Return an option with argparse's settings and the kind of its values for completion."""
    return Option(flags, help, completion, settings)


DEBUG = option("-d", "--debug", action="count", default=0, help="pass a debug level to the job")
REASON = option(
    "--reason",
    metavar="TEXT",
    help="reason, stored with the job; of jobs with rate-limit:N:LABEL at most N run at once",
)
COMMON = (DEBUG, REASON)
"""Options that every command accepts, because scripts pass them; a command without a job ignores them."""


class ErrorForm(NamedTuple):
    """How a program reports errors: the text of an error, and the parser that rejects a command line."""

    text: Callable[[GanetiError], str] = format_error
    parser: Callable[..., argparse.ArgumentParser] = Parser


GNT_FORM = ErrorForm()


def _clean(text: str) -> str:
    """Return a docstring without its indentation; `inspect` is slow to import."""
    return "\n".join(line.removeprefix("    ") for line in text.strip().splitlines())


class CommandTable:
    """A program such as `gnt-instance` and its commands."""

    def __init__(self, prog: str, purpose: str, errors: ErrorForm = GNT_FORM) -> None:
        self.prog = prog
        self.purpose = purpose
        self.errors = errors
        self.commands: dict[str, Command] = {}
        self._by_alias: dict[str, Command] = {}

    def command(
        self, name: str, *parts: Part, aliases: Sequence[str] = ()
    ) -> Callable[[Handler], Handler]:
        """Decorate the function that runs the command `name`; its docstring is the documentation."""

        def record(function: Handler) -> Handler:
            self.add(Command(name, function, parts, tuple(aliases), _clean(function.__doc__ or "")))
            return function

        return record

    def add(self, command: Command) -> None:
        """Add a command; lists show all commands sorted by name."""
        self.commands[command.name] = command
        for alias in command.aliases:
            self._by_alias[alias] = command

    def find(self, name: str) -> Command | None:
        """Return a command by name or alias."""
        return self.commands.get(name) or self._by_alias.get(name)

    def usage(self) -> str:
        """Return the list of commands."""
        width = max(len(name) for name in self.commands)
        lines = [f"  {name:<{width}}  {one.summary}" for name, one in sorted(self.commands.items())]
        head = f"Usage: {self.prog} COMMAND [options] [arguments]\n\n{self.purpose}\n\nCommands:"
        tail = f"\n'{self.prog} COMMAND --help' describes a command."
        return "\n".join([head, *lines, tail])

    def run(self, argv: Sequence[str]) -> int:
        """Run one command line; return the exit code. Raise GanetiError on failure."""
        if not argv:
            say(self.usage(), file=sys.stderr)
            return EXIT_FAILURE
        name, *rest = argv
        if name in ("--help", "-h"):
            say(self.usage())
            return 0
        if name in ABOUT:
            return self._say_about(None, name)
        if name.startswith(COMPLETION):
            say(self.completion(name.removeprefix(COMPLETION).removeprefix("=") or "bash"))
            return 0
        command = self.find(name)
        if command is None:
            close = did_you_mean(name, [*self.commands, *self._by_alias])
            say(f"{self.prog}: there is no command {name!r}{close}\n", file=sys.stderr)
            say(self.usage(), file=sys.stderr)
            return EXIT_FAILURE
        if rest and rest[0] in ABOUT:
            return self._say_about(command, rest[0])
        words = joined(rest, command.options)
        args = parser_of(self.prog, command, self.errors).parse_intermixed_args(words)
        args.prog, args.command, args.op = self.prog, command.name, command.source
        args.given_words = tuple(rest)
        return command.function(args)

    def completion(self, shell: str) -> str:
        """Return a script that completes the program in a shell; InputError for an unknown shell."""
        from ganeti.cli.completion import Completed, script_for

        known = [
            Completed((one.name, *one.aliases), one.summary, one.options, one.arguments)
            for one in self.commands.values()
        ]
        return script_for(shell, self.prog, known)

    def _say_about(self, command: Command | None, what: str) -> int:
        """Print the version, or the lines about a command or the list of commands that completion needs."""
        from ganeti.cli.completion import option_lines

        if what == "--version":
            say(version_line(self.prog))
        elif command is not None:
            say("\n".join(option_lines(command.options, command.arguments)))
        else:
            say("\n".join([*option_lines((), ()), f"choices={','.join(self.commands)} 1 1"]))
        return 0

    def main(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Run the program and exit; errors that users can cause never show a traceback."""
        words = sys.argv[1:] if argv is None else argv
        sys.exit(run_guarded(lambda: self.run(words), self.errors.text))


def run_guarded(
    work: Callable[[], int], error_text: Callable[[GanetiError], str] = format_error
) -> int:
    """Return the exit code of `work`; print errors for users in the form that scripts expect."""
    try:
        code = work()
        sys.stdout.flush()
    except GanetiError as err:
        sys.stdout.flush()
        if text := error_text(err):
            say(text, file=sys.stderr)
        return exit_code_of(err)
    except KeyboardInterrupt:
        say("Interrupted; submitted jobs continue to run.", file=sys.stderr)
        return EXIT_FAILURE
    except BrokenPipeError:
        # The reader of the output has gone, so nothing can be printed any more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    return code


def parser_of(prog: str, command: Command, errors: ErrorForm = GNT_FORM) -> argparse.ArgumentParser:
    """Return the parser of one command; it accepts abbreviated options, and options between arguments."""
    parser = errors.parser(
        prog=f"{prog} {command.name}",
        description="\n\n".join(part for part in (command.summary, command.text) if part),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for argument in command.arguments:
        settings: dict[str, Any] = {} if argument.nargs is None else {"nargs": argument.nargs}
        parser.add_argument(argument.name, help=argument.help, **settings)
    for one in command.options:
        parser.add_argument(*one.flags, help=one.help.replace("%", "%%"), **one.settings)
    return parser
