"""A virtual cluster whose storage nodes are machines with LVM and DRBD; the master is outside."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ganeti.base.paths import NODED_PORT
from ganeti.vcluster.layout import VirtualCluster, load
from ganeti.vcluster.machine_image import build_image
from ganeti.vcluster.node_machines import NodeMachine, node_machines
from tests.support.local_cluster import LocalCluster, short_directory, vcluster_words
from tests.support.patience import ran
from tests.support.tiny_guest import build_tiny_guest

UP_S = 1500
_START = """
import asyncio, sys
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import Daemons
asyncio.run(Daemons(Paths.from_environment()).start(sys.argv[1]))
"""
POWER = "/usr/local/sbin/machine-power"
_POWER = """#!/bin/sh
case "$2" in
FILES
*) exit 1 ;;
esac
is_on() { tr '\\0' ' ' 2>/dev/null <"/proc/$(cat "$file")/cmdline" | grep -q "$file"; }
case "$1" in
power-off) is_on && kill -9 "$(cat "$file")"; exit 0 ;;
power-status) if is_on; then echo '{"powered": true}'; else echo '{"powered": false}'; fi ;;
esac
"""


class MachineCluster(LocalCluster):
    """Node 1 is the master, a directory of this host; the nodes from 2 on are machines."""

    def __init__(self, cluster: VirtualCluster) -> None:
        super().__init__(cluster)
        self._machines = dict(enumerate(node_machines(cluster), start=2))

    @property
    def numbers(self) -> list[int]:
        """The numbers of the nodes that are machines."""
        return list(self._machines)

    def machine(self, number: int) -> NodeMachine:
        """The machine that is this node."""
        return self._machines[number]

    def inside(self, number: int, script: str) -> str:
        """What a script says in a machine, where it must succeed."""
        return self.machine(number).agent.run(script)

    def start(self, daemon: str, node: int = 1) -> int:
        """Start a daemon of the master's node, which has a network namespace of its own."""
        self.ok(sys.executable, "-c", _START, daemon, timeout_s=UP_S)
        return self.pid(daemon, node)

    def kernel_said(self) -> str:
        """The end of what the kernels of the machines have said."""
        said = (
            f"--- {one.node.name}\n{one.agent.call('dmesg | tail -40')[1]}"
            for one in self._machines.values()
        )
        return "\n".join(said)

    def open_agents(self) -> None:
        """Connect to all machines, so that they belong to the cluster and not to the test that asks first."""
        for one in self._machines.values():
            one.agent.run("true")

    def power_on(self, number: int) -> None:
        """Switch a machine on again, and wait until its node daemon listens."""
        one = self.machine(number)
        one.machine.start(build_image(build_tiny_guest(), self.directory))
        self.wait_serving(number)

    def wait_serving(self, number: int) -> None:
        """Wait until the node daemon of a machine listens."""
        one, end = self.machine(number), time.monotonic() + UP_S
        listens = f"grep -q ':{NODED_PORT:04X} 00000000:0000 0A' /proc/net/tcp"
        while one.agent.call(listens)[0]:
            assert time.monotonic() < end, f"{self.node(number).name} does not serve"
            time.sleep(1)

    def install_power(self) -> None:
        """Give the master an out-of-band program that kills the QEMU of a machine, and says whether it runs."""
        program = Path(self.node(1).root) / POWER.lstrip("/")
        program.parent.mkdir(parents=True, exist_ok=True)
        files = "\n".join(
            f"{one.node.name}) file={one.machine.pid_file} ;;" for one in self._machines.values()
        )
        program.write_text(_POWER.replace("FILES", files))
        program.chmod(0o755)

    def close(self) -> None:
        """Give up the connections."""
        for one in self._machines.values():
            one.forget()


@contextlib.contextmanager
def machine_cluster(machines: int = 2, hypervisor: str = "fake") -> Iterator[MachineCluster]:
    """A cluster of a master and some machines; nothing of it is left afterwards."""
    guest = build_tiny_guest()
    with short_directory() as parent:
        directory = parent / "c"
        options = ["--nodes", "1", "--storage-vms", str(machines), "--guest", str(guest)]
        options += ["--hypervisor", hypervisor]
        try:
            _vcluster(directory, "up", "--no-image", *options)
            made = load(directory)
            assert made is not None
            with contextlib.closing(MachineCluster(made)) as cluster:
                cluster.open_agents()
                yield cluster
        finally:
            _vcluster(directory, "down")


def _vcluster(directory: Path, *words: str) -> None:
    command = [*vcluster_words(directory), *words]
    done = ran(command, stderr=subprocess.STDOUT, limit_s=UP_S)
    assert done.returncode == 0, done.stdout
