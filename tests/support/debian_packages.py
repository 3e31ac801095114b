"""Debian packages of foreign clients: fetched once by apt-get into the cache, unpacked, never installed."""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import ran

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "debian"
FETCH_LIMIT_S = 120
PYTHON = "/usr/bin/python3"
"""Debian's own: the libraries among the packages are for that one."""


def unpacked(*packages: str) -> Path:
    """A directory with the files of these packages; skips the test where they cannot be had."""
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} here")
    root = CACHE / "root"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if missing := [one for one in packages if not _marker(one).exists()]:
            _fetch(missing, root)
            for package in missing:
                _marker(package).touch()
    return root


def _marker(package: str) -> Path:
    return CACHE / f"{package}.unpacked"


def _fetch(packages: Sequence[str], root: Path) -> None:
    place = CACHE / "fetched"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    names = ", ".join(packages)
    try:
        done = ran(
            ["apt-get", "-q", "download", *packages],
            cwd=place, limit_s=FETCH_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip(f"cannot be fetched in time: {names}")
    archives = sorted(place.glob("*.deb"))
    if done.returncode or len(archives) != len(packages):
        pytest.skip(f"cannot be fetched: {names}: {done.stderr.strip()[-200:]}")
    for archive in archives:
        subprocess.run(["dpkg", "-x", str(archive), str(root)], check=True)
    shutil.rmtree(place)


def environment(root: Path) -> dict[str, str]:
    """Variables with which the system's Python, and programs among the files, find what was unpacked."""
    libraries = sorted(
        str(path) for below in ("lib", "usr/lib") for path in (root / below).glob("*-linux-gnu")
    )
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(root / "usr/lib/python3/dist-packages"),
        "LD_LIBRARY_PATH": ":".join(libraries),
    }


def said_by_python(script: Path, *words: str, packages: tuple[str, ...], below: str = "") -> Any:
    """What a script prints as JSON on its last line when Debian's Python runs it with these packages' libraries.

    `below` is a further directory of libraries among their files. Skips the test where that Python lacks something.
    """
    if not Path(PYTHON).exists():
        pytest.skip("there is no Debian Python here")
    root = unpacked(*packages)
    found = environment(root)
    if below:
        found["PYTHONPATH"] = f"{root / below}:{found['PYTHONPATH']}"
    done = ran(
        [PYTHON, "-W", "ignore", str(script), *words],
        env=found, limit_s=300,
    )  # fmt: skip
    if done.returncode and "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"Debian's Python lacks a library: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
