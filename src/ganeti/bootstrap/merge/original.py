"""The part of a merge on a node of upstream Ganeti.

Upstream's master daemon stops and starts its guests, and upstream's programs start its daemons
after a rollback. So this implementation is installed beside upstream. Files move to `original/` as
in `ganeti-takeover`.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ganeti import __version__
from ganeti.base.errors import ErrorCode, HostError, InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.process import CLEAN_ENVIRONMENT, Run, run
from ganeti.bootstrap.daemons import START_LIMIT_S, Daemons, daemon_environment
from ganeti.bootstrap.merge.agent import Agent, pause, paused
from ganeti.bootstrap.merge.messages import HostFacts
from ganeti.bootstrap.take_node import CONFIG, NAMES, Node
from ganeti.clients.luxi import FINAL

PREFIX = "ganeti-"
STARTER = Path("/usr/lib/ganeti/daemon-util")
"""Upstream's program that starts its daemons."""


class OriginalAgent(Agent):
    """A node on which upstream runs, or ran until its files were moved."""

    def __init__(
        self, paths: Paths, node: Node, *, starter: Path = STARTER, runs: Run = run
    ) -> None:
        super().__init__(paths, Daemons(paths), runs=runs)
        self._node, self._starter = node, starter

    def facts(self) -> HostFacts:
        """Return the facts; PrereqError if a rollback would be impossible."""
        if not self._starter.exists():
            raise PrereqError(
                f"this is a cluster of upstream Ganeti without {self._starter}, which a rollback needs to start its"
                " daemons. Take the cluster over first ('ganeti-takeover' on each of its nodes, 'gnt-cluster"
                " import' on its master), then merge it",
                ErrorCode.ENVIRONMENT,
            )
        found = super().facts()
        return replace(found, version=__version__, original=found.version)

    def backup(self) -> bytes:
        """Return upstream's configuration file."""
        return (self._node.original_directory / CONFIG).read_bytes()

    async def state(self) -> bytes:
        if left := self._node.running():
            raise PrereqError(f"still running: {', '.join(left)}", ErrorCode.WRONG_STATE)
        if jobs := unfinished(self._node.original_directory / "queue"):
            raise PrereqError(
                f"jobs have not ended: {', '.join(map(str, jobs[:10]))}; wait for them, or cancel them",
                ErrorCode.WRONG_STATE,
            )
        return self.backup()

    def startup(self, name: str) -> object:
        """Return the opcode without the fields that upstream does not know and would refuse."""
        return {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": name, "reason": []}

    def running_daemons(self) -> list[str]:
        return [PREFIX + name for name in self._node.running()]

    async def stop_daemons(self) -> None:
        for name in self._node.running():
            await self._node.end(name)

    async def start_daemons(self, names: Sequence[str]) -> None:
        known = [PREFIX + name for name in reversed(NAMES)]
        if unknown := set(names) - set(known):
            raise InputError(f"unknown daemons: {', '.join(sorted(unknown))}", "names")
        environment = {**daemon_environment(os.environ), "PATH": CLEAN_ENVIRONMENT["PATH"]}
        for name in known:
            if name in names and name not in self.running_daemons():
                words = [str(self._starter), "start", name]
                await self.run(words, timeout_s=START_LIMIT_S, env=environment)
        if missing := set(names) - set(self.running_daemons()):
            raise HostError(
                f"{', '.join(sorted(missing))} ended during the start; see {self.paths.log}"
            )

    async def take(self) -> None:
        """Move upstream's files to `original/`; a pause of the watcher stays."""
        rest = paused(self.paths)
        await self._node.take()
        if rest is not None:
            pause(self.paths, rest)


def unfinished(queue: Path) -> list[int]:
    """Return the unfinished jobs in upstream's queue; an unreadable file counts as one."""
    found = []
    for path in queue.glob("job-*"):
        number = path.name.removeprefix("job-")
        if not number.isdecimal():
            continue
        try:
            ops = json.loads(path.read_bytes())["ops"]
            has_ended = all(op["status"] in FINAL for op in ops)
        except (OSError, ValueError, KeyError, TypeError):
            has_ended = False
        if not has_ended:
            found.append(int(number))
    return sorted(found)
