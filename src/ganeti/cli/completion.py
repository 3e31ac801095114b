"""Completion for bash, made from the tables of commands."""

from ganeti.cli.command import Command, CommandTable

_NAMES = {
    "instance": "gnt-instance list --no-headers -o name",
    "node": "gnt-node list --no-headers -o name",
    "group": "gnt-group list --no-headers -o name",
    "job": "gnt-job list --no-headers -o id",
}


def completion_script(table: CommandTable) -> str:
    """A script for bash that completes one program: commands, options, names of things."""
    function = "_" + table.prog.replace("-", "_")
    cases = "\n".join(_case(name, one) for one in table.commands.values() for name in _names(one))
    commands = " ".join(sorted(name for one in table.commands.values() for name in _names(one)))
    return f"""# bash completion for {table.prog}; load with: source <({table.prog} --generate-completion)
{function}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} options="" names=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands} --help --version" -- "$word"))
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
complete -o default -F {function} {table.prog}"""


def _names(command: Command) -> tuple[str, ...]:
    return (command.name, *command.aliases)


def _case(name: str, command: Command) -> str:
    options = " ".join(sorted(flag for one in command.options for flag in one.flags))
    kinds = [one.completion for one in command.arguments if one.completion in _NAMES]
    names = _NAMES[kinds[0]] if kinds else ""
    return f'        {name}) options="{options} --help" names="{names}" ;;'
