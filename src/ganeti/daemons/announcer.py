"""Distribution of the master's epoch to nodes without a vote.

These nodes then refuse an earlier master's calls (G4). The voters promise the epoch first. The
other nodes learn it here, before the first changing call and then every few seconds until they
confirm it. A register keeps what it has confirmed, so a node that has confirmed is asked again only
once a minute. The answers decide nothing.
"""

import asyncio
import contextlib
import math
from collections.abc import Mapping
from dataclasses import replace

from ganeti.base.errors import GanetiError
from ganeti.base.yield_every import YieldEvery
from ganeti.daemons.candidates import NodeDirectory, RenewalAnswer
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import StateBackend
from ganeti.store.election import Vote
from ganeti.store.fence import RENEW_S
from ganeti.store.interface import Identity, Lease
from ganeti.store.stream import Voters
from ganeti.units.services import RegisterState

AGAIN_S = 60.0
"""Interval of the announcements to a node that has confirmed the epoch."""
BEGUN_AT_ONCE = 20
"""Announcements that begin in one turn of the loop."""


class EpochAnnouncer:
    """The announcer of one lease's epoch."""

    def __init__(
        self,
        registers: Voters,
        store: StateBackend,
        directory: NodeDirectory,
        identity: Identity,
        lease: Lease,
    ) -> None:
        self._registers, self._store, self._directory = registers, store, directory
        self._identity, self._lease = identity, lease
        self._confirmed: dict[NodeUuid, None] = {}
        """The nodes that have confirmed the epoch, the last one last."""

    async def announce(self) -> None:
        """Announce the epoch to the nodes that have not confirmed it, and to some of the others in turn.

        Waits for silent nodes until their timeout.
        """
        others = self._directory.online() - (await self._store.members()).voters
        known = [node for node in self._confirmed if node in others]
        again = known[: math.ceil(len(known) * RENEW_S / AGAIN_S)]
        pause = YieldEvery(BEGUN_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for node in (*sorted(others - self._confirmed.keys()), *again):
                group.create_task(self._announce_to(node), name=f"announce to {node}")
                await pause()

    async def run(self) -> None:
        """Announce until cancelled."""
        while True:
            await asyncio.sleep(RENEW_S)
            with contextlib.suppress(GanetiError):
                await self.announce()

    async def _announce_to(self, node: NodeUuid) -> None:
        uuid, epoch = self._identity.cluster_uuid, self._lease.epoch
        self._confirmed.pop(node, None)
        with contextlib.suppress(GanetiError):
            answer = await self._registers.renew(node, uuid, epoch)
            if isinstance(answer, Vote) and answer.granted:
                self._confirmed[node] = None


def register_states(
    answers: Mapping[NodeUuid, RenewalAnswer],
    voters: frozenset[NodeUuid],
    epoch: int,
    master: NodeUuid,
) -> list[RegisterState]:
    """Return each node's last answer to the master of this epoch."""
    states = []
    for node, found in sorted(answers.items()):
        vote, state = found.answer, RegisterState(node, node in voters, found.seconds)
        if not isinstance(vote, Vote):
            state = replace(state, silent=vote.reason)
        elif (promised := vote.register.promised).excludes(epoch, master):
            to = promised.candidate if promised.epoch == epoch else None
            state = replace(state, promised=promised.epoch, promised_to=to)
        states.append(state)
    return states
