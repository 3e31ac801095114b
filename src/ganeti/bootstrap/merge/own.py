"""The local master, on which the merge runs."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from ganeti.base.clock import Clock
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import MASTERD, Daemons
from ganeti.bootstrap.heard import last_seen_masters
from ganeti.bootstrap.init import answers
from ganeti.bootstrap.merge.agent import MASTER_LIMIT_S, Agent
from ganeti.bootstrap.merge.messages import Reply, Request
from ganeti.bootstrap.merge.states import offline_backup
from ganeti.bootstrap.restore import restore


class Own(Protocol):
    """The actions of the steps on this node; GanetiError gives the reason of a failure."""

    async def answer(self, request: Request) -> Reply:
        """Answer like a node of another cluster."""
        ...

    async def start(self, options: Sequence[str] = ()) -> None:
        """Start the master daemon, and wait until it answers."""
        ...

    async def stop(self) -> None:
        """Stop the master daemon; idempotent."""
        ...

    async def state(self) -> bytes:
        """Return a backup of the state, while the master daemon is stopped."""
        ...

    async def put(self, backup: Path, *, is_undo: bool = False) -> None:
        """Replace the state with a backup, at a greater position.

        With `is_undo` the replaced state is not preserved.
        """
        ...


class OwnMaster:
    """The real actions."""

    def __init__(self, paths: Paths, clock: Clock) -> None:
        self._paths, self._clock = paths, clock
        self._daemons = Daemons(paths)
        # Units of systemd accept no options: with options, the daemon is started as a process.
        self._plain = Daemons(paths, systemd=False)
        self._agent = Agent(paths, self._daemons)

    async def answer(self, request: Request) -> Reply:
        return await self._agent.answer(request)

    async def start(self, options: Sequence[str] = ()) -> None:
        await (self._plain if options else self._daemons).start(MASTERD, options)
        await answers(self._paths, MASTER_LIMIT_S)

    async def stop(self) -> None:
        await self._daemons.stop(MASTERD)
        await self._plain.stop(MASTERD)

    async def state(self) -> bytes:
        return await offline_backup(self._paths)

    async def put(self, backup: Path, *, is_undo: bool = False) -> None:
        ask = partial(last_seen_masters, self._paths)
        await restore(
            self._paths,
            backup,
            clock=self._clock,
            ask_nodes=ask,
            is_sure=True,
            is_undo=is_undo,
        )
