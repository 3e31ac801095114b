"""The nodes of a virtual cluster that are virtual machines: their volume group, their joining, commands in them."""

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError
from ganeti.base.terminal import say
from ganeti.model.hypervisors import HYPERVISORS
from ganeti.vcluster.layout import VirtualCluster, VirtualNode
from ganeti.vcluster.machines import GUESTS_MIB, MEMORY_MIB, Machine, MachineAgent

DISK = "/dev/vdd"
JOIN_S = 900.0
"""Under emulation everything takes ten times as long."""
LOOK_EVERY_S = 2.0
"""The interval of checks: each costs the booting machine a fifth of a second."""
TOKEN_LENGTH = 100


class Runner(Protocol):
    """Runs commands as the master."""

    @property
    def cluster(self) -> VirtualCluster: ...

    def run(self, node: VirtualNode, argv: Sequence[str], *, stdin: str | None = None) -> None: ...


@dataclass
class NodeMachine:
    """A node that is a machine."""

    node: VirtualNode
    machine: Machine
    _agent: MachineAgent | None = None

    @property
    def agent(self) -> MachineAgent:
        """Return the connection to the running machine; reconnect after a power cut."""
        if self._agent is None:
            self._agent = self.machine.agent()
        return self._agent

    def forget(self) -> None:
        """Close the connection."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def cut_power(self) -> None:
        """Kill -9."""
        self.forget()
        self.machine.cut_power()

    def furnish(self, group: str) -> None:
        """Create its volume group."""
        self.agent.run(f"pvcreate -q -y {DISK} && vgcreate -q {shlex.quote(group)} {DISK}")

    def join(self, commands: Runner) -> None:
        """Add it to the cluster by a token, as any node. ExecError."""
        self.agent.run("ganeti-node-join >/run/join 2>&1 </dev/null & echo $! >/run/join.pid")
        token = self._wait_token()
        # Under emulation a candidate's daemons would take minutes to start.
        add = ["gnt-node", "add", "--token-file=-", "--master-capable=no", self.node.name]
        commands.run(commands.cluster.master, add, stdin=token + "\n")
        self.forget()

    def _wait_token(self) -> str:
        end = time.monotonic() + JOIN_S
        while time.monotonic() < end:
            said = self.agent.run("cat /run/join")
            for word in said.split():
                if len(word) > TOKEN_LENGTH:
                    return word
            if self.agent.call("kill -0 $(cat /run/join.pid)")[0]:
                break
            time.sleep(LOOK_EVERY_S)
        raise ExecError(f"ganeti-node-join on {self.node.name} printed no token: {said.strip()}")


def node_machines(cluster: VirtualCluster) -> list[NodeMachine]:
    """All nodes of a cluster that are machines, running or not."""
    guests_mib = GUESTS_MIB if HYPERVISORS[cluster.hypervisor].runs_guests else 0
    return [
        NodeMachine(
            node,
            Machine(
                Path(node.root),
                node.name,
                node.address,
                node.tap,
                cluster.volumes_mib,
                MEMORY_MIB + guests_mib,
            ),
        )
        for node in cluster.machines
    ]


def run_in_machine(cluster: VirtualCluster, node: VirtualNode, words: Sequence[str]) -> int:
    """Run a command in a machine and print its output; return its status. InputError without a command."""
    given = list(words[1:] if words[:1] == ["--"] else words)
    if not given:
        raise InputError(
            f"{node.name} is a virtual machine: pass a command to run there", "COMMAND"
        )
    (found,) = (one for one in node_machines(cluster) if one.node == node)
    if found.machine.pid is None:
        raise PrereqError(
            f"{node.name} is powered off; run 'ganeti-vcluster up' again", ErrorCode.WRONG_STATE
        )
    sys.stdout.flush()
    status, said = found.agent.call(shlex.join(given), 3600)
    say(said, end="")
    found.forget()
    return status
