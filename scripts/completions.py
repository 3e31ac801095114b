"""Completion for bash of all programs, where it is loaded by itself: completions.py DIRECTORY."""

import sys
import tomllib
from pathlib import Path

from ganeti.cli.manual import PROGRAMS, table_of

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def scripts() -> dict[str, str]:
    """The script of each program, by its name.

    What has no table of commands has the options that its --help names: bash-completion looks there.
    """
    programs = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["scripts"]
    return {
        name: table_of(name).completion("bash")
        if name in PROGRAMS
        else f"complete -o default -F _longopt {name}"
        for name in programs
    }


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, script in scripts().items():
        (directory / name).write_text(script + "\n", encoding="utf-8")
