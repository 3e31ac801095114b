"""Write the programs of pyproject.toml: programs.py PYTHON DIRECTORY PATH...

PYTHON is the interpreter that they run with, and each PATH a directory of modules. A program of pip would look for
these directories at each start, would run what other packages have left to run there, and would compile a pattern to
remove the suffix `.exe` from its name. That takes a fifth of the time of a short command.
"""

import sys
import tomllib
from pathlib import Path

FORM = """#!{start}
import sys
sys.path += {path!r}
from ganeti.base.start import start
start({program!r}, {module!r})
"""
FLAGS = "-SP"
"""Without `site`, and without the directory of the program among those of modules."""
LONGEST_START = 127
"""The kernel cuts a longer first line."""


def text(python: Path, path: list[str], program: str, module: str) -> str:
    """Return the text of a program; a shell starts a Python whose path the kernel cannot read from a first line."""
    start = f"{python} {FLAGS}"
    if " " in str(python) or len(start) > LONGEST_START:
        start = f"/bin/sh\n'''exec' '{python}' {FLAGS} \"$0\" \"$@\"\n' '''"
    return FORM.format(start=start, path=path, program=program, module=module)


def write(python: Path, directory: Path, path: list[str]) -> None:
    """Replace the programs in `directory`."""
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())
    for program, entry in project["project"]["scripts"].items():
        file = directory / program
        file.unlink(missing_ok=True)
        file.write_text(text(python, path, program, entry.removesuffix(":main")))
        file.chmod(0o755)


if __name__ == "__main__":
    write(Path(sys.argv[1]).absolute(), Path(sys.argv[2]), sys.argv[3:])
