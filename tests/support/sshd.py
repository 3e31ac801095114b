"""Real sshd on nodes of virtual clusters, with a password of root's that only these sshd know."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
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


def sshd_environment(program: Path) -> dict[str, str]:
    """What that program runs with; one that was unpacked finds its libraries beside it."""
    parts = (program.parents[2] / part for part in ("lib", "usr/lib"))
    libraries = ":".join(str(one) for part in parts for one in part.glob("*-linux-gnu"))
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH": libraries}


def settings(address: str, key: Path, root_ssh: Path, environment: Mapping[str, str]) -> str:
    """The configuration: root may log in with a password, and gets this environment."""
    given = "".join(f" {name}={value}" for name, value in environment.items() if name != "HOME")
    return (
        f"Port {PORT}\nListenAddress {address}\nHostKey {key}\nPidFile none\nUsePAM no\n"
        "PermitRootLogin yes\nPasswordAuthentication yes\nKbdInteractiveAuthentication no\n"
        f"StrictModes no\nAuthorizedKeysFile {root_ssh}/authorized_keys\n"
        f"MaxStartups 100\nSetEnv{given}\n"
    )


def _run(command: list[str], directory: Path) -> None:
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=RUN_LIMIT_S)


def crypted(password: str) -> str:
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
        f"root:{crypted(PASSWORD)}:19000:0:99999:7:::\nsshd:!:19000::::::\n"
    )
    (place / "config").write_text(
        settings(node.address, key, node.paths.root_ssh, node.environment())
    )
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
            env=sshd_environment(program),
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
