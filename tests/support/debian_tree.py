"""Debian systems that tests boot: `mmdebstrap` installs packages below a directory, from where this host's apt has them."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.debian_packages import unpacked

BASE = (
    *("systemd-sysv", "udev", "kmod", "dbus", "iproute2", "openssh-server"),
    *("linux-image-cloud-amd64", "initramfs-tools", "e2fsprogs"),
)
"""Packages of any system that boots."""
SLOW = "[Manager]\nDefaultTimeoutStartSec=900\nDefaultDeviceTimeoutSec=900\n"
"""Settings of systemd for a machine that is emulated."""
LEFT_OUT = ("man", "doc", "locale")
SOURCES = ("sources.list", "sources.list.d/debian.sources", "sources.list.d/ubuntu.sources")
BUILD_LIMIT_S = 1800


def install_debian(tree: Path, packages: Sequence[str], settings: Mapping[str, str]) -> None:
    """Install packages below a new directory, and write files there; skips the test where that does not work."""
    if os.geteuid() != 0 or shutil.which("perl") is None:
        pytest.skip("to install packages below a directory needs root and perl")
    sources = [place for name in SOURCES if (place := Path("/etc/apt", name)).exists()]
    options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
    options += ["--dpkgopt=force-unsafe-io", "--aptopt=Acquire::Languages none"]
    options += ["--mode=root", "--variant=minbase", "--format=directory", "--quiet"]
    options += [f"--include={','.join((*BASE, *packages))}"]
    try:
        build("unshare", "-m", "--propagation", "slave",
              "mmdebstrap", *options, "", tree, *sources, tools=unpacked("mmdebstrap"))  # fmt: skip
    except subprocess.CalledProcessError as err:
        pytest.skip(f"the packages of a Debian system cannot be installed: {err.stderr[-300:]}")
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for name, text in settings.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)


def build(*words: str | Path, tools: Path | None = None) -> None:
    """Run a program, also one of unpacked packages; CalledProcessError."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin" + (f":{tools}/usr/bin" if tools else "")
    subprocess.run(
        [str(word) for word in words], env={"PATH": path, "HOME": "/root", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=BUILD_LIMIT_S,
    )  # fmt: skip
