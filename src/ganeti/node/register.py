"""The node's register for remote callers: which node may be the master (R2, R3, R8).

It never waits for storage work: the register has a thread of its own for its syncs.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from ganeti import __version__
from ganeti.base.clock import Clock, SystemClock
from ganeti.base.errors import StoreError
from ganeti.model.objects import NodeUuid
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import PROTOCOL_VERSION, Nothing
from ganeti.rpc.procedures.mastership import (
    REGISTER_ACCEPT,
    REGISTER_PROMISE,
    REGISTER_READ,
    REGISTER_RENEW,
    AcceptArgs,
    PromiseArgs,
    RegisterAnswer,
    RenewArgs,
)
from ganeti.store.election import FORMER_SILENCE_S, SILENCE_S, LastContact, Vote, Voter, vote
from ganeti.store.register import (
    Answer,
    Register,
    RegisterKeeper,
    accept,
    check_epoch,
)
from ganeti.store.worker import Worker

SOFTWARE_LENGTH = 64
DISK_S = 2.0
"""Time that the disk may take to answer when the node is to be restarted."""
UNSEEN = Voter(master_capable=False)
"""The report of a node whose register alone was read."""
NO_EPOCH = "a changing call needs the epoch and the UUID of the master"


class NodeRegister:
    """The register of this node; `older_calls` returns the running calls of masters before an epoch."""

    def __init__(
        self,
        keeper: RegisterKeeper,
        older_calls: Callable[[int], list[str]],
        clock: Clock | None = None,
        voter: Callable[[str], Voter] | None = None,
    ) -> None:
        """`voter` reports about this node, given the UUID of a master with recent contact, or ''."""
        self._keeper = keeper
        self._older_calls = older_calls
        self._clock = clock or SystemClock()
        self._voter = voter or (lambda _heard_master: Voter(software=__version__))
        self._began_at = self._clock.monotonic()
        self._heard: tuple[NodeUuid, float, float] | None = None
        """The last master that a renewal or a registration came from, when, and after which silence it may go."""
        self._last_read: Register | None = None
        self._worker = Worker("register")

    async def check_epoch(self, epoch: int, master_uuid: str) -> str | None:
        """Return why a changing call is refused, or None; records a greater epoch first (R2, A26)."""
        if epoch <= 0 or not master_uuid:
            return NO_EPOCH
        answer = await self._decide(lambda old: check_epoch(old, epoch, NodeUuid(master_uuid)))
        return None if answer.granted else answer.reason

    async def check_epoch_without_disk(self, epoch: int, master_uuid: str) -> str | None:
        """Like `check_epoch`, but with the last known register if the disk fails or hangs (S31)."""
        try:
            async with asyncio.timeout(DISK_S):
                return await self.check_epoch(epoch, master_uuid)
        except (StoreError, TimeoutError):
            answer = check_epoch(self._last_read, epoch, NodeUuid(master_uuid))
            return None if answer.granted else answer.reason

    def handlers(self) -> Handlers:
        return {
            REGISTER_READ.name: self._read,
            REGISTER_PROMISE.name: self._promise,
            REGISTER_ACCEPT.name: self._accept,
            REGISTER_RENEW.name: self._renew,
        }

    async def close(self) -> None:
        await self._worker.close()

    async def _read(self, _args: Nothing, _call: Call) -> RegisterAnswer:
        register = await self._worker.call(self._keeper.read)
        return await self._whole_answer(Answer(granted=True, register=register))

    async def _promise(self, args: PromiseArgs, _call: Call) -> RegisterAnswer:
        heard = self._last_contact()
        return await self._whole_answer(
            await self._decide(
                lambda old: vote(old, args.request, args.kind, heard or self._perhaps_heard(old))
            )
        )

    async def _renew(self, args: RenewArgs, _call: Call) -> RegisterAnswer:
        """Record contact with a master that this node may follow (R8)."""
        master = NodeUuid(args.master_uuid)

        def rule(old: Register | None) -> Answer:
            if old is not None and old.cluster_uuid != args.cluster_uuid:
                return Answer(granted=False, register=old, reason="this is another cluster")
            return check_epoch(old, args.epoch, master)

        answer = await self._decide(rule)
        if answer.granted:
            self._hears(master, args.silence_s)
        return self._answer(answer)

    def _hears(self, master: NodeUuid, silence_s: float) -> None:
        self._heard = master, self._clock.monotonic(), min(silence_s, FORMER_SILENCE_S)

    def _last_contact(self) -> LastContact | None:
        if self._heard is None:
            return None
        master, at, silence_s = self._heard
        return LastContact(master, self._clock.monotonic() - at, silence_s)

    def _perhaps_heard(self, register: Register | None) -> LastContact | None:
        """A daemon that was restarted may have confirmed the lease of the last master just before."""
        if register is None or register.accepted is None:
            return None
        since = self._clock.monotonic() - self._began_at
        return LastContact(register.accepted.master, since, SILENCE_S)

    async def _accept(self, args: AcceptArgs, _call: Call) -> RegisterAnswer:
        accepted = args.request.accepted
        shown = replace(accepted, software=accepted.software[:SOFTWARE_LENGTH])
        request = replace(args.request, accepted=shown)
        answer = await self._decide(lambda old: accept(old, request))
        if answer.granted:
            self._hears(accepted.master, SILENCE_S)  # its lease begins with that
        return self._answer(answer)

    async def _decide(self, rule: Callable[[Register | None], Answer]) -> Answer:
        answer = await self._worker.call(lambda: self._keeper.decide(rule))
        self._last_read = answer.register
        return answer

    async def _whole_answer(self, answer: Answer) -> RegisterAnswer:
        """Add the node's report about itself, made after its promise so that it is not older."""
        heard = self._last_contact()
        current = heard.master if heard and heard.seconds < heard.silence_s else ""
        return self._answer(answer, await self._worker.call(lambda: self._voter(current)))

    def _answer(self, answer: Answer, voter: Voter = UNSEEN) -> RegisterAnswer:
        register = answer.register
        if register is None:
            return RegisterAnswer(why=answer.reason, protocol=PROTOCOL_VERSION)
        older = tuple(self._older_calls(register.promised.epoch))
        voter = replace(voter, software=__version__, older_calls=older)
        said = Vote(answer.granted, register, answer.reason, self._last_contact(), voter)
        return RegisterAnswer(vote=said, protocol=PROTOCOL_VERSION)
