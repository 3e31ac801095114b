"""Debian's own Ganeti commands, unpacked in a cache directory and not installed, as foreign clients."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from ganeti.base.paths import Paths

PACKAGES = (
    "ganeti-3.0",
    *("python3-bitarray", "python3-simplejson", "python3-pyparsing", "python3-pycurl"),
    *("python3-openssl", "python3-paramiko", "python3-pyinotify", "python3-psutil"),
)
"""The commands, and the libraries that all of them load."""
DOWNLOAD_LIMIT_S = 120
PYTHON = "/usr/bin/python3"
"""Debian's own: the libraries are for that one."""


def cache_directory() -> Path:
    """Where they are kept: `$GANETI_DEBIAN_CACHE`, or a folder of the user's cache."""
    given = os.environ.get("GANETI_DEBIAN_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "ganeti-debian"


def debian_ganeti() -> Path:
    """The root of the unpacked packages; skips the test where they are not to be had."""
    directory = cache_directory()
    root = directory / "root"
    if not Path(PYTHON).exists() or os.geteuid() != 0:
        pytest.skip("Debian's commands need Debian's Python, and root for a mount namespace")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (directory / "complete").exists():
                _run(["apt-get", "download", *PACKAGES], directory)
                for file in directory.glob("*.deb"):
                    _run(["dpkg", "-x", str(file), str(root)], directory)
                (directory / "complete").touch()
    except (OSError, subprocess.SubprocessError) as err:
        pytest.skip(f"Debian's ganeti-3.0 is not to be had here: {err}")
    return root


def run_debian(command: str, paths: Paths, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one of its commands on the node whose files are at `paths`, in a mount namespace of its own."""
    root = debian_ganeti()
    programs = root / "usr/share/ganeti/3.0"
    script = (
        "mount --make-rprivate /; mkdir -p /run/ganeti /var/lib/ganeti;"
        ' mount --bind "$1" /run/ganeti; mount --bind "$2" /var/lib/ganeti; shift 2; exec "$@"'
    )
    ours = [str(paths.run), str(paths.data)]
    theirs = [PYTHON, "-W", "ignore", str(programs / command), *words]
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script, "bash", *ours, *theirs],
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": f"{programs}:{root}/usr/lib/python3/dist-packages",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode and "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"Debian's Python lacks a library: {done.stderr.splitlines()[-1]}")
    return done


def _run(command: list[str], directory: Path) -> None:
    subprocess.run(
        command, cwd=directory, check=True, capture_output=True, timeout=DOWNLOAD_LIMIT_S
    )
