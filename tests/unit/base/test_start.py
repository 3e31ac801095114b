"""Installed programs: how they start, and that they answer for their version like their modules."""

import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from ganeti import __version__
from ganeti.base.start import COMPILED, version_line
from ganeti.cli.htools import ROLES

TOP = Path(__file__).parents[3]
PROGRAMS = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["scripts"]


def written(directory: Path, python: str = sys.executable) -> Path:
    """Write all programs to a directory."""
    directory.mkdir(exist_ok=True)
    path = [str(TOP / "src"), sysconfig.get_path("purelib")]
    words = [sys.executable, str(TOP / "scripts" / "programs.py"), python, str(directory), *path]
    subprocess.run(words, check=True)
    return directory


def test_programs_run_their_modules_without_site(tmp_path: Path) -> None:
    made = written(tmp_path / "bin")
    assert sorted(one.name for one in made.iterdir()) == sorted(PROGRAMS)
    done = subprocess.run(
        [str(made / "gnt-instance"), "no-such-command"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "gnt-instance: there is no command 'no-such-command'" in done.stderr
    assert (made / "hail").read_text().startswith(f"#!{sys.executable} -SP\n")


def test_program_of_a_python_with_a_space_in_its_path_starts(tmp_path: Path) -> None:
    (tmp_path / "a b").symlink_to(Path(sys.executable).parent)
    made = written(tmp_path / "bin", str(tmp_path / "a b" / "python3"))
    done = subprocess.run(
        [str(made / "hbal"), "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"hbal (ganeti) version {__version__}\n"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("program", [name for name in PROGRAMS if version_line(name)])
def test_version_is_the_same_with_and_without_the_programs_module(program: str) -> None:
    module = PROGRAMS[program].removesuffix(":main")
    source = (
        f"import sys, {module} as module; sys.argv = [{program!r}, '--version']\n"
        "from ganeti.base.start import start\n"
        "try: start(sys.argv[0], module.__name__)\n"
        "except SystemExit as end: assert not end.code, end\n"
        "sys.exit(module.main())"
    )
    environment = {**os.environ, "PYTHONPATH": str(TOP / "src")}
    done = subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{version_line(program)}\n" * 2


def test_version_is_answered_without_the_modules_of_a_command() -> None:
    source = (
        "import sys; sys.argv = ['gnt-instance', '--version']\n"
        "from ganeti.base.start import start\n"
        "try: start('gnt-instance', 'ganeti.cli.gnt_instance')\n"
        "except SystemExit: sys.exit('argparse' in sys.modules or 'ganeti.cli' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", source], check=False).returncode == 0


def test_compiled_programs_are_the_placement_commands() -> None:
    assert set(ROLES) == COMPILED
