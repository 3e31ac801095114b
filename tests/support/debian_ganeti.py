"""Debian's own Ganeti commands, unpacked in a cache directory and not installed, as foreign clients."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.paths import Paths
from tests.support.debian_packages import PYTHON, environment, said_by_python, unpacked
from tests.support.patience import ran

COMMANDS = (
    "ganeti-3.0",
    *("python3-bitarray", "python3-simplejson", "python3-pyparsing", "python3-pycurl"),
    *("python3-openssl", "python3-paramiko", "python3-pyinotify", "python3-psutil"),
)
"""The commands, and the libraries that all of them load."""
HTOOLS = ("ganeti-htools-3.0", "libpcre3", "libcurl4")
CONFIG_READER = Path(__file__).with_name("read_original_config.py")
PROGRAMS = "usr/share/ganeti/3.0"
"""Where its own Python packages are among the files."""


def run_debian(
    command: str, paths: Paths, *words: str, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run one of its commands on the node whose files are at `paths`, in a mount namespace of its own."""
    if not Path(PYTHON).exists() or os.geteuid() != 0:
        pytest.skip("Debian's commands need Debian's Python, and root for a mount namespace")
    root = unpacked(*COMMANDS)
    programs = root / PROGRAMS
    script = (
        "mkdir -p /run/ganeti /var/lib/ganeti;"
        ' mount --bind "$1" /run/ganeti; mount --bind "$2" /var/lib/ganeti; shift 2; exec "$@"'
    )
    ours = [str(paths.run), str(paths.data)]
    theirs = [PYTHON, "-W", "ignore", str(programs / command), *words]
    done = ran(
        ["unshare", "-m", "--propagation", "slave", "bash", "-c", script, "bash", *ours, *theirs],
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": f"{programs}:{environment(root)['PYTHONPATH']}",
        },
        limit_s=timeout_s,
    )
    if done.returncode and "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"Debian's Python lacks a library: {done.stderr.splitlines()[-1]}")
    return done


def run_debian_htools(
    tool: str, socket: Path, *words: str, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run one of its compiled placement tools against a LUXI socket."""
    root = unpacked(*HTOOLS)
    program = root / "usr/lib/ganeti/3.0/usr/bin" / tool
    done = ran(
        [str(program), f"-L{socket}", *words],
        env=environment(root),
        limit_s=timeout_s,
    )
    if "error while loading shared libraries" in done.stderr:
        pytest.skip(f"the libraries of Debian's htools do not fit this system: {done.stderr}")
    return done


def opened_by_the_original(path: Path) -> dict[str, Any]:
    """What its own reader and its `cfgupgrade --dry-run` say of a configuration."""
    programs = unpacked(*COMMANDS) / PROGRAMS
    said: dict[str, Any] = said_by_python(
        CONFIG_READER, str(path), str(programs), packages=COMMANDS, below=PROGRAMS
    )
    return said
