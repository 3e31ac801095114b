"""Distribution of the master's epoch to nodes without a vote.

These nodes then refuse an earlier master's calls (G4). The voters promise the epoch first. The
other nodes learn it here, before the first changing call and again every few seconds. Their answers
decide nothing.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace

from ganeti.base.errors import GanetiError
from ganeti.daemons.candidates import NodeDirectory, RenewalAnswer
from ganeti.model.objects import NodeUuid
from ganeti.store.backend import StateBackend
from ganeti.store.election import Vote
from ganeti.store.fence import RENEW_S
from ganeti.store.interface import Identity, Lease
from ganeti.store.stream import Voters
from ganeti.units.services import RegisterState


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

    async def announce(self) -> None:
        """Announce the epoch once to every online node without a vote.

        Waits for silent nodes until their timeout.
        """
        others = self._directory.online() - (await self._store.members()).voters
        uuid, epoch = self._identity.cluster_uuid, self._lease.epoch
        await asyncio.gather(*(self._registers.renew(node, uuid, epoch) for node in sorted(others)))

    async def run(self) -> None:
        """Announce until cancelled."""
        while True:
            await asyncio.sleep(RENEW_S)
            with contextlib.suppress(GanetiError):
                await self.announce()


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
