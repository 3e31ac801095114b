"""Real sshd on nodes of virtual clusters, with a password of root's that only these sshd know."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.vcluster.layout import VirtualNode
from tests.support.debian_packages import unpacked
from tests.support.local_cluster import wait_until

PASSWORD = "only for these sshd"
PORT = 2222
RUN_LIMIT_S = 120
_PACKAGES = ("openssh-server", "libwrap0")
_SCRIPT = 'mkdir -p /run/sshd; mount --bind "$1" /etc; shift; exec "$@"'
"""The whole of /etc: single files would come back when somebody replaces the host's."""


def sshd_program() -> Path:
    """The server, of this host or of Debian's package; skips where it is not to be had."""
    if os.geteuid() != 0:
        pytest.skip("a password of one's own for root needs a mount namespace, and that needs root")
    found = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if found:
        return Path(found)
    return unpacked(*_PACKAGES) / "usr/sbin/sshd"


def _run(command: list[str], directory: Path) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=RUN_LIMIT_S)


def _crypted(password: str) -> str:
    return subprocess.run(
        ["openssl", "passwd", "-6", "-stdin"],
        input=password,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@contextlib.contextmanager
def sshd_on(node: VirtualNode) -> Iterator[str]:
    """An sshd at the node's address; yields the line by which known hosts know it."""
    program = sshd_program()
    root = Path(node.root)
    place = root / "sshd"
    place.mkdir(mode=0o700, exist_ok=True)
    key = place / "host_key"
    if not key.exists():
        _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], place)
    users = Path("/etc/passwd").read_text()
    if not any(line.startswith("sshd:") for line in users.splitlines()):
        users += "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
    etc = place / "etc"
    shutil.copytree("/etc", etc, symlinks=True, ignore_dangling_symlinks=True, dirs_exist_ok=True)
    (etc / "passwd").write_text(users)
    (etc / "shadow").write_text(
        f"root:{_crypted(PASSWORD)}:19000:0:99999:7:::\nsshd:!:19000::::::\n"
    )
    environment = node.environment()
    settings = "".join(f" {name}={value}" for name, value in environment.items() if name != "HOME")
    (place / "config").write_text(
        f"Port {PORT}\nListenAddress {node.address}\nHostKey {key}\nPidFile none\nUsePAM no\n"
        "PermitRootLogin yes\nPasswordAuthentication yes\nKbdInteractiveAuthentication no\n"
        f"StrictModes no\nAuthorizedKeysFile {node.paths.root_ssh}/authorized_keys\n"
        f"MaxStartups 100\nSetEnv{settings}\n"
    )
    libraries = ":".join(str(one) for one in (program.parents[2] / "lib").glob("*-linux-gnu"))
    usr = ":".join(str(one) for one in (program.parents[2] / "usr/lib").glob("*-linux-gnu"))
    words = [str(program), "-D", "-e", "-f", str(place / "config")]
    with (place / "log").open("ab") as log:
        process = subprocess.Popen(
            node.words(
                [
                    "unshare",
                    "-m",
                    "--propagation",
                    "slave",
                    "bash",
                    "-c",
                    _SCRIPT,
                    "bash",
                    str(etc),
                    *words,
                ]
            ),
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH": f"{libraries}:{usr}"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(
            lambda: (
                b"Server listening" in (place / "log").read_bytes() or process.poll() is not None
            ),
            "sshd listens",
            30,
        )
        assert process.poll() is None, (place / "log").read_text()
        algorithm, public, *_ = key.with_suffix(".pub").read_text().split()
        yield f"[{node.address}]:{PORT} {algorithm} {public}"
    finally:
        process.terminate()
        process.wait(10)
