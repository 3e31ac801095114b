"""The built console in the wheel, served from an installed wheel; and a host without npm."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.patience import ran

TOP = Path(__file__).resolve().parents[2]
UI = TOP / "src/ganeti/web/ui"
pytestmark = [pytest.mark.host, pytest.mark.timeout(600)]
SERVE = """
import asyncio, pathlib, sys
import ganeti.web
from ganeti.web.ui_files import UiFiles

async def main():
    here = pathlib.Path(ganeti.web.__file__)
    assert here.is_relative_to(sys.argv[1]), here
    files = UiFiles(here.parent / "ui")
    for path in sys.argv[2:]:
        answer = await files.answer("GET", path, {})
        print(path, answer.status, answer.headers["Content-Type"], len(answer.body))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, made as `make install` and `make deb` make theirs."""
    if not (UI / "index.html").exists():
        pytest.skip("run `make console` first")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(TOP / name, source)
    shutil.copytree(
        TOP / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
    )
    pip = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-build-isolation", "--no-deps"]
    done = ran([*pip, "-w", str(out), str(source)], limit_s=300)
    assert done.returncode == 0, done.stderr
    [found] = out.glob("ganeti-*.whl")
    return found


def test_wheel_contains_the_whole_page(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    built = {f"ganeti/web/ui/{one.relative_to(UI)}" for one in UI.rglob("*") if one.is_file()}
    assert len(built) > 5
    assert built <= names


def test_installed_wheel_serves_the_page_and_what_it_names(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    named = re.findall(r'"(/ui/assets/[^"]+)"', (UI / "index.html").read_text())
    assert len(named) >= 2
    words = [sys.executable, "-P", "-c", SERVE, str(tmp_path), "/ui/", "/ui/instances", *named]
    done = ran(words, limit_s=60, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines] == [
        [path, "200"] for path in ("/ui/", "/ui/instances", *named)
    ]
    assert lines[0][2:] == lines[1][2:]


def test_debian_package_takes_the_page_from_the_same_wheel() -> None:
    script = (TOP / "scripts/build_deb").read_text()
    assert 'cp -r --parents src/ganeti/web/ui "$work/source"' in script
    assert "console: $(STAMP)" in (TOP / "Makefile").read_text()
    deb = re.search(r"^deb:.*\n((?:\t.*\n)+)", (TOP / "Makefile").read_text(), re.MULTILINE)
    assert deb is not None
    assert "scripts/build_console" in deb[1]


@pytest.mark.parametrize(("mode", "status"), [("optional", 0), ("", 1)])
def test_host_without_npm_learns_how_to_get_the_page(
    tmp_path: Path, mode: str, status: int
) -> None:
    for name in ("sh", "dirname", "basename", "cat", "env"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    words = [str(TOP / "scripts/build_console"), sys.executable, *([mode] if mode else [])]
    done = subprocess.run(
        words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    assert "npm is missing" in done.stderr
    assert "make console" in done.stderr
