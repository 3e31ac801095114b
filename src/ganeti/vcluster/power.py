"""The power switch of a node: switching it off is SIGKILL for all of its processes, as if it lost power.

`ganeti-vcluster power` has the arguments and answers of an out-of-band program (`model/outofband.py`), and each
node has it as such a program. So a virtual cluster can fence its nodes.
"""

import asyncio
import json
import time

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, PrereqError
from ganeti.model.outofband import OobCommand
from ganeti.vcluster import lifecycle
from ganeti.vcluster.layout import VirtualCluster, VirtualNode
from ganeti.vcluster.leftovers import Say, end_commands, end_guests, end_tasks

BOOT_ATTEMPTS = 5
BOOT_PAUSE_S = 1.0


def switch(cluster: VirtualCluster, node: VirtualNode, command: OobCommand, say: Say) -> str:
    """Carry out an out-of-band command and return its answer; idempotent. ExecError, PrereqError."""
    if command in (OobCommand.POWER_OFF, OobCommand.POWER_CYCLE):
        _off(cluster, node, say)
    if command in (OobCommand.POWER_ON, OobCommand.POWER_CYCLE):
        _on(cluster, node, say)
    if command is OobCommand.POWER_STATUS:
        return json.dumps({"powered": _is_on(cluster, node)}) + "\n"
    return ""


def _is_on(cluster: VirtualCluster, node: VirtualNode) -> bool:
    rows = lifecycle.status(cluster)
    return any(name == node.name and state != lifecycle.DOWN for name, _daemon, state in rows)


def _off(cluster: VirtualCluster, node: VirtualNode, say: Say) -> None:
    if node.tap:
        from ganeti.vcluster.node_machines import node_machines

        for one in node_machines(cluster):
            if one.node == node:
                one.machine.cut_power()
        return
    end_commands(node.paths, node.name, say)
    end_tasks(node.paths, node.name, say)
    if problems := asyncio.run(end_guests(node, say)):
        raise ExecError(f"{node.name} is not off: {'; '.join(problems)}")


def _on(cluster: VirtualCluster, node: VirtualNode, say: Say) -> None:
    if node.tap or node.namespace:
        raise PrereqError(
            f"{node.name} cannot be switched on alone: run 'ganeti-vcluster --dir {cluster.directory} up'",
            ErrorCode.WRONG_STATE,
        )
    for _ in range(BOOT_ATTEMPTS - 1):
        try:
            lifecycle.start(cluster, say, only=node)
        except GanetiError as err:
            # The master may take a role from the node, and give it a new one, while its daemons start.
            say(f"{node.name} does not run all of its daemons yet: {err}")
            time.sleep(BOOT_PAUSE_S)
        else:
            return
    lifecycle.start(cluster, say, only=node)
