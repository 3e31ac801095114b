"""The voters, as a store asks them for an epoch (R2, R7).

The store has no connection to other nodes: it declares this port, and `daemons` wires it to the
registers of all voters. `SoleVoter` is the electorate of a cluster with one voter.
"""

from collections.abc import Callable
from typing import Protocol

from ganeti.base.errors import NotMaster
from ganeti.store.interface import CampaignKind
from ganeti.store.register import (
    AcceptRequest,
    Answer,
    PromiseRequest,
    Register,
    RegisterKeeper,
    accept,
    join,
    promise,
)
from ganeti.store.worker import Worker


class Electorate(Protocol):
    """The registers of the voters; every method raises NotMaster if too few of them agree."""

    async def registers(self) -> tuple[Register, ...]:
        """What each voter that answers has promised and accepted."""
        ...

    async def promise(self, request: PromiseRequest, how: CampaignKind) -> None:
        """Return when a majority has granted the epoch (with force: those that answer)."""
        ...

    async def accept(self, request: AcceptRequest, how: CampaignKind) -> None:
        """Return when a majority has registered the master."""
        ...


def greatest_epoch(registers: tuple[Register, ...]) -> int:
    """What a new epoch must be greater than (R2)."""
    return max((register.promised.epoch for register in registers), default=0)


def greatest_ceiling(registers: tuple[Register, ...]) -> int:
    """Above which all new job ids are (R12)."""
    return max((register.job_id_ceiling for register in registers), default=0)


class SoleVoter:
    """The electorate of one: this node's own register.

    With a worker the register is written there, else at once (for registers in memory).
    """

    def __init__(self, keeper: RegisterKeeper, worker: Worker | None = None) -> None:
        self._keeper = keeper
        self._worker = worker

    async def found(self, request: PromiseRequest) -> None:
        """Let the node join a cluster that is being made; harmless when it has."""

        def rule(register: Register | None) -> Answer:
            if register is not None and register.cluster_uuid == request.cluster_uuid:
                return Answer(True, register)
            return join(register, request)

        await self._decide(rule)

    async def registers(self) -> tuple[Register, ...]:
        read = self._keeper.read
        register = await self._worker.call(read) if self._worker else read()
        return () if register is None else (register,)

    async def promise(self, request: PromiseRequest, how: CampaignKind) -> None:
        del how  # one voter is its own majority: there is nobody to force past
        await self._decide(lambda register: promise(register, request))

    async def accept(self, request: AcceptRequest, how: CampaignKind) -> None:
        del how
        await self._decide(lambda register: accept(register, request))

    async def _decide(self, rule: Callable[[Register | None], Answer]) -> None:
        keeper = self._keeper
        if self._worker:
            answer = await self._worker.call(lambda: keeper.decide(rule))
        else:
            answer = keeper.decide(rule)
        if not answer.granted:
            raise NotMaster(f"this node's register refused: {answer.reason}")
