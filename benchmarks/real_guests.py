"""A cluster of real daemons with real guests for benchmarks, and QEMU processes started bare beside it."""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ganeti.vcluster import lifecycle
from ganeti.vcluster.layout import VirtualCluster, plan

CHECKOUT = Path(__file__).resolve().parents[1]
BOOTED = re.compile(r"HEARTBEAT \d+\n")
LOOK_EVERY_S = 0.01
LIMIT_S = 600.0


def built_guest() -> Path:
    """The directory of the small test guest, made if need be."""
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "guest" / "build.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def kvm_cluster(nodes: int) -> Iterator[VirtualCluster]:
    """A running cluster whose instances are real; removed at the end."""
    guest = built_guest()
    directory = Path(tempfile.mkdtemp(prefix="gnt-", dir="/var/tmp"))
    try:
        cluster = plan(directory / "c", nodes, hypervisor="kvm", netns=False, guest=guest)
        with contextlib.redirect_stdout(sys.stderr):
            lifecycle.up(cluster, _say)
        try:
            yield cluster
        finally:
            with contextlib.redirect_stdout(sys.stderr):
                lifecycle.down(cluster, _say)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def command(cluster: VirtualCluster, *words: str) -> str:
    """Run a command on the master; what it says."""
    master = cluster.master
    done = subprocess.run(
        master.words([*words]),
        env=master.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


def add_guest(
    cluster: VirtualCluster, name: str, *, node: int, start: bool = True, beats_every_s: float = 0.2
) -> str:
    """A small guest on a disk that all nodes see; its UUID."""
    words = ["-t", "sharedfile", "--disk", "0:size=64m", "-o", "tiny+default", "-B", "memory=96m"]
    words += ["-O", f"heartbeat_interval={beats_every_s}"]
    words += ["--no-nics", *([] if start else ["--no-start"]), "-n", f"node{node}"]
    command(cluster, "gnt-instance", "add", *words, name)
    return command(cluster, "gnt-instance", "list", "--no-headers", "-o", "uuid", name).strip()


def console(cluster: VirtualCluster, uuid: str, node: int) -> Path:
    """Return what a guest says on one of the nodes."""
    return cluster.nodes[node - 1].paths.log / "kvm" / f"{uuid[:13]}.console"


def wait_until_all_beat(logs: list[Path]) -> float:
    """The moment at which every guest has booted."""
    end = time.monotonic() + LIMIT_S
    left = list(logs)
    while left:
        left = [log for log in left if not _beats(log)]
        if time.monotonic() > end:
            raise RuntimeError(f"{len(left)} guests do not boot")
        time.sleep(LOOK_EVERY_S)
    return time.monotonic()


def _beats(log: Path) -> bool:
    try:
        return BOOTED.search(log.read_text(errors="replace")) is not None
    except FileNotFoundError:
        return False


def qemu_words(cluster: VirtualCluster, uuid: str, node: int) -> list[str]:
    """The very words with which a node started a guest."""
    record = cluster.nodes[node - 1].paths.kvm / f"{uuid[:13]}.json"
    words: list[str] = json.loads(record.read_bytes())["argv"]
    return words


def elsewhere(words: list[str], old: Path, new: Path) -> list[str]:
    """The same words with other runtime files."""
    return [word.replace(str(old), str(new)) for word in words]


class BareMonitor:
    """One connection to a QEMU's control socket, without any of our code."""

    def __init__(self, path: Path) -> None:
        self._socket = _connected(path)
        self._file = self._socket.makefile("rwb")
        self._file.readline()
        self.ask("qmp_capabilities")

    def ask(self, name: str, **arguments: Any) -> Any:
        """The answer to one command."""
        request = {"execute": name, **({"arguments": arguments} if arguments else {})}
        self._file.write(json.dumps(request).encode() + b"\n")
        self._file.flush()
        while True:
            answer = json.loads(self._file.readline())
            if "error" in answer:
                raise RuntimeError(f"{name}: {answer['error']}")
            if "return" in answer:
                return answer["return"]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def _connected(path: Path) -> socket.socket:
    end = time.monotonic() + LIMIT_S
    while True:
        one = socket.socket(socket.AF_UNIX)
        try:
            one.connect(str(path))
        except OSError:
            one.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.002)
        else:
            return one
