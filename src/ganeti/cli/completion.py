"""Completion for bash and zsh, generated from the tables of commands."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ganeti.base.errors import InputError
from ganeti.cli.option import Option
from ganeti.model.operation import Argument

_NAMES = {
    "instance": "gnt-instance list --no-headers -o name",
    "node": "gnt-node list --no-headers -o name",
    "group": "gnt-group list --no-headers -o name",
    "network": "gnt-network list --no-headers -o name",
    "schedule": "gnt-backup schedule list --no-headers -o name",
    "webhook": "gnt-cluster webhook list --no-headers -o name",
    "image": "gnt-image list --no-headers -o name",
    "filter": "gnt-filter list --no-headers -o uuid",
    "job": "gnt-job list --no-headers -o id",
    "user": "gnt-cluster list-users --no-headers --separator=' ' | cut -d' ' -f1",
}


class Completed(NamedTuple):
    """Description of a command for completion."""

    names: tuple[str, ...]
    """Name and aliases."""
    summary: str
    options: Sequence[Option]
    arguments: Sequence[Argument]


def completion_script(prog: str, commands: Sequence[Completed]) -> str:
    """Return a script for bash that completes commands, options and names of objects of one program."""
    function = "_" + prog.replace("-", "_")
    cases = "\n".join(_case(name, one) for one in commands for name in one.names)
    words = " ".join(sorted(name for one in commands for name in one.names))
    return f"""# bash completion for {prog}; load with: source <({prog} --generate-completion)
{function}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} options="" names=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{words} --help --version" -- "$word"))
        return
    fi
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    case $word in
        -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
        *) [ -z "$names" ] || COMPREPLY=($(compgen -W "$($names 2>/dev/null)" -- "$word")) ;;
    esac
}}
complete -o default -F {function} {prog}"""


def zsh_script(prog: str, commands: Sequence[Completed]) -> str:
    """Return a script for zsh, which also shows the summaries of commands."""
    function = "_" + prog.replace("-", "_")
    words = "\n".join(
        f"            {_quoted(f'{name}:{one.summary}')}" for one in commands for name in one.names
    )
    cases = "\n".join(_zsh_case(name, one) for one in commands for name in one.names)
    return f"""#compdef {prog}
# zsh completion for {prog}; load with: source <({prog} --generate-completion=zsh)
{function}() {{
    local -a commands options
    local names=""
    if (( CURRENT == 2 )); then
        commands=(
{words}
        )
        _describe command commands
        compadd -- --help --version
        return
    fi
    case $words[2] in
{cases}
    esac
    if [[ $words[CURRENT] == -* ]]; then
        compadd -- $options
    elif [[ -n $names ]]; then
        compadd -- ${{(f)"$(${{=names}} 2>/dev/null)"}}
    else
        _files
    fi
}}
compdef {function} {prog}"""


def _quoted(text: str) -> str:
    """Return a text quoted as one word for a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh_case(name: str, command: Completed) -> str:
    options = " ".join(sorted(flag for one in command.options for flag in one.flags))
    return f'        {name}) options=({options} --help); names="{_source_of(command)}" ;;'


def script_for(shell: str, prog: str, commands: Sequence[Completed]) -> str:
    """Return a script for one of `SHELLS`; raise InputError."""
    if shell not in SHELLS:
        raise InputError(f"completion supports only {' and '.join(SHELLS)}", "shell")
    return SHELLS[shell](prog, commands)


def _case(name: str, command: Completed) -> str:
    options = " ".join(sorted(flag for one in command.options for flag in one.flags))
    return f'        {name}) options="{options} --help" names="{_source_of(command)}" ;;'


def _source_of(command: Completed) -> str:
    """Return the command that lists the names for the arguments, or '' if there is no such command."""
    kinds = [one.completion for one in command.arguments if one.completion in _NAMES]
    return _NAMES[kinds[0]] if kinds else ""


SHELLS = {"bash": completion_script, "zsh": zsh_script}


_KINDS = {
    "file": "file",
    "directory": "dir",
    "host": "host",
    "node": "onenode",
    "nodes": "manynodes",
    "group": "onegroup",
    "instances": "manyinstances",
}
_TYPES = {int: "integer", float: "float"}
_ALWAYS = ("-V,--version", "-h,--help", "--help-completion")


def option_lines(options: Iterable[Option], arguments: Iterable[Argument]) -> list[str]:
    """Return the lines of `--help-completion`: flags and kind of each option, then the arguments.

    Kinds are those of upstream's completion: `none`, `file`, `integer`, `onenode`, `choices=a,b` and so on.
    """
    lines = [f"{','.join(one.flags)} {_kind(one)}" for one in options]
    lines += [f"{flags} none" for flags in _ALWAYS]
    return lines + [f"{_KINDS.get(one.completion, 'string')} {_range(one)}" for one in arguments]


def _kind(one: Option) -> str:
    settings = one.settings
    if choices := settings.get("choices"):
        return f"choices={','.join(choices)}"
    if one.completion in _KINDS:
        return _KINDS[one.completion]
    if settings.get("action", "append") != "append" or settings.get("nargs") == "?":
        return "none"
    made = settings.get("type", str)
    # The annotation of a checking function is the type of its result.
    return _TYPES.get(getattr(made, "__annotations__", {}).get("return", made), "string")


def _range(argument: Argument) -> str:
    return {None: "1 1", "?": "0 1", "*": "0 none", "+": "1 none"}[argument.nargs]
