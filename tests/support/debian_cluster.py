"""A running cluster of Debian's Ganeti: virtual nodes, the fake hypervisor, in namespaces of its own; and ours on its nodes."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.debian_ganeti import COMMANDS, HTOOLS
from tests.support.debian_packages import unpacked
from tests.support.patience import ran, text_of

PACKAGES = (*COMMANDS, *HTOOLS, "ganeti", "ganeti-haskell-3.0")
SCRIPT = Path(__file__).with_suffix(".sh")
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
LIMIT_S = 1200
NO_SSH = ("--ignore-errors=ENODESSH", "--ignore-errors=ENODESETUP")
"""What verify of the original finds wrong with any virtual node: there is no sshd, and no /proc of its own."""


@dataclass(frozen=True)
class DebianCluster:
    """Nodes `peernode1` and on; each is the original's, or ours once it was taken over."""

    holder: int
    """The process that has the namespaces."""
    top: Path
    nodes: int

    def root(self, number: int) -> Path:
        return self.top / f"peernode{number}"

    def address(self, number: int) -> str:
        return f"198.51.100.1{number}"

    def environment(self, number: int, path: str = "") -> dict[str, str]:
        """What makes a program one of a node's; without `path` it finds ours first."""
        return {
            "PATH": path or f"{Path(sys.executable).parent}:{SYSTEM_PATH}",
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "GANETI_ROOTDIR": str(self.root(number)),
            "GANETI_HOSTNAME": f"peernode{number}",
            "GANETI_ADDRESS": self.address(number),
        }

    def words(self, number: int, words: tuple[str, ...], path: str = "") -> list[str]:
        """A command on a node, as words for this host."""
        assigned = [f"{name}={value}" for name, value in self.environment(number, path).items()]
        return [*self.inside, "env", "-i", *assigned, *words]

    @property
    def inside(self) -> list[str]:
        """What a command begins with that is to run in the namespaces."""
        return _entered(self.holder)

    def theirs(self, number: int, *words: str) -> str:
        """Run a command of the original on a node; what it prints."""
        return _ran(self.words(number, words, SYSTEM_PATH))

    def ours(self, number: int, *words: str, stdin: str = "") -> str:
        """Run a command of this version on a node; what it prints."""
        return _ran(self.words(number, words), stdin=stdin)

    @contextlib.contextmanager
    def joining(self, number: int) -> Iterator[str]:
        """A node waits to be joined; yields its token."""
        with subprocess.Popen(
            self.words(number, ("ganeti-node-join",)),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            yield process.stdout.readline()
            text_of(process, LIMIT_S)
        assert process.returncode == 0


def _ran(words: list[str], stdin: str = "") -> str:
    done = ran(words, given=stdin, stderr=subprocess.STDOUT, limit_s=LIMIT_S)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}"
    return done.stdout


def _entered(holder: int) -> list[str]:
    return ["nsenter", "-t", str(holder), "-m", "-n"]


@contextlib.contextmanager
def debian_cluster(nodes: int, *, spare: int = 0) -> Iterator[DebianCluster]:
    """A new one; nothing of it is left. `spare` hosts more are in no cluster. Skips the test where it cannot be had."""
    if os.geteuid() != 0 or shutil.which("nsenter") is None:
        pytest.skip("a cluster of Debian's Ganeti needs root and nsenter")
    packages = unpacked(*PACKAGES)
    top = Path(
        tempfile.mkdtemp(prefix="gnt-debian-", dir="/var/tmp")
    )  # the original refuses /tmp and /dev
    with subprocess.Popen(
        ["unshare", "-m", "-n", "--propagation", "slave", "sleep", "infinity"]
    ) as holder:
        try:
            _check_overlay(holder.pid, packages)
            words = ["bash", str(SCRIPT), str(packages), str(top), str(nodes), str(spare)]
            said = _made([*_entered(holder.pid), *words])
            if "ModuleNotFoundError" in said or "error while loading shared libraries" in said:
                pytest.skip(f"Debian's Ganeti does not run on this system: {said[-300:]}")
            assert said.endswith("is up\n"), said
            yield DebianCluster(holder.pid, top, nodes)
        finally:
            _end_all(holder.pid)
            holder.kill()
            shutil.rmtree(top, ignore_errors=True)


def _made(words: list[str]) -> str:
    return ran(words, stderr=subprocess.STDOUT, limit_s=LIMIT_S).stdout


def _check_overlay(holder: int, packages: Path) -> None:
    """Its programs have to be below /usr, where this system must not change."""
    words = [*_entered(holder), "unshare", "-m", "mount", "-t", "overlay", "overlay",
             "-o", f"lowerdir={packages}/usr:/usr", "/usr"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no overlay can be mounted here: {done.stderr.strip()}")


def _end_all(holder: int) -> None:
    """End every process in the holder's mount namespace but the holder itself."""
    here = Path(f"/proc/{holder}/ns/mnt").readlink()
    for _ in range(3):  # some may be starting others
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if int(entry.name) != holder and (entry / "ns/mnt").readlink() == here:
                    os.kill(int(entry.name), signal.SIGKILL)
