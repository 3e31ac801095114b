"""Real sshd on the nodes of a cluster of Debian's Ganeti, whose root has a password in its namespaces only."""

import contextlib
import subprocess
from collections.abc import Iterator

from ganeti.base.paths import Paths
from tests.support.debian_cluster import DebianCluster
from tests.support.local_cluster import wait_until
from tests.support.sshd import (
    PASSWORD,
    PORT,
    RUN_LIMIT_S,
    crypted,
    settings,
    sshd_environment,
    sshd_program,
)


@contextlib.contextmanager
def debian_sshd(cluster: DebianCluster, *numbers: int) -> Iterator[str]:
    """One on each of these nodes; yields what known hosts know of them."""
    program = sshd_program()

    def inside(*words: str) -> str:
        return subprocess.run(
            [*cluster.inside, *words],
            check=True,
            capture_output=True,
            text=True,
            timeout=RUN_LIMIT_S,
        ).stdout

    inside("usermod", "-p", crypted(PASSWORD), "root")
    inside(
        "sh",
        "-c",
        "getent passwd sshd || useradd -r -d /run/sshd -s /usr/sbin/nologin sshd; mkdir -p /run/sshd",
    )
    known = []
    for number in numbers:
        root = cluster.root(number)
        key, config, log = (root / f"sshd-{what}" for what in ("key", "config", "log"))
        inside("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
        text = settings(
            cluster.address(number), key, Paths(root).root_ssh, cluster.environment(number)
        )
        inside(
            "sh",
            "-c",
            'mkdir -p -m 700 "$1"; printf %s "$2" >"$3"',
            "sh",
            str(Paths(root).root_ssh),
            text,
            str(config),
        )
        libraries = [f"{name}={value}" for name, value in sshd_environment(program).items()]
        # It goes into the background by itself, and ends with the namespaces.
        inside("env", "-i", *libraries, str(program), "-f", str(config), "-E", str(log))

        def listens(number: int = number) -> bool:
            return f"{cluster.address(number)}:{PORT}" in inside("ss", "-Hltn")

        wait_until(listens, "sshd listens", RUN_LIMIT_S)
        algorithm, public, *_ = inside("cat", f"{key}.pub").split()
        known.append(f"[{cluster.address(number)}]:{PORT} {algorithm} {public}\n")
    yield "".join(known)
