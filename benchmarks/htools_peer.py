"""Debian's own placement tools, unpacked in a cache directory and not installed, to compare with."""

import os
import subprocess
from pathlib import Path

PACKAGES = ("ganeti-htools-3.0", "libpcre3")
DOWNLOAD_TIMEOUT_S = 120.0
TOOL_TIMEOUT_S = 600.0


def cache_directory() -> Path:
    """Return where the peer is kept: `$GANETI_HTOOLS_CACHE`, or a folder of the user's cache."""
    given = os.environ.get("GANETI_HTOOLS_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "ganeti-htools"


class Peer:
    """The tools of a directory; `why_not` says what is missing."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or cache_directory()
        self.root = self.directory / "root"
        self.binary = self.root / "usr/lib/ganeti/3.0/usr/bin/htools"

    def fetch(self) -> str:
        """Download and unpack what is missing; why that is not possible, or nothing."""
        if self.binary.exists():
            return ""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            for package in PACKAGES:
                self._run(["apt-get", "download", package])
            for file in self.directory.glob("*.deb"):
                self._run(["dpkg", "-x", str(file), str(self.root)])
        except (OSError, subprocess.SubprocessError) as err:
            return f"Debian's htools are not to be had: {err}"
        return "" if self.binary.exists() else "the package has no htools"

    def _run(self, command: list[str]) -> None:
        subprocess.run(
            command, cwd=self.directory, check=True, capture_output=True, timeout=DOWNLOAD_TIMEOUT_S
        )

    def run(self, tool: str, *words: str) -> tuple[str, float]:
        """(standard output, processor seconds) of `hbal` and the like."""
        libraries = ":".join(
            str(self.root / one) for one in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
        )
        before = os.times()
        done = subprocess.run(
            [str(self.binary), *words],
            env={**os.environ, "HTOOLS": tool, "LD_LIBRARY_PATH": libraries},
            capture_output=True,
            text=True,
            check=False,
            timeout=TOOL_TIMEOUT_S,
        )
        after = os.times()
        spent = (
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
        return done.stdout, spent
