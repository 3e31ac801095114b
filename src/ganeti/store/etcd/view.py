"""A candidate's view of the state in etcd, kept up to date by a watch.

A silent watch proves nothing, so the view is read again after a while; that also detects that etcd
has no quorum.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator

from ganeti.base.errors import ProtocolError, StoreError
from ganeti.model.objects import NodeUuid
from ganeti.store.encoding import MemberList, decode_ceiling
from ganeti.store.etcd.gateway import Gateway, GatewayError
from ganeti.store.etcd.keys import Head, Keys, LeaderKey, decode_epoch, opened
from ganeti.store.etcd.messages import KeyValue, TxnAnswer
from ganeti.store.interface import JOB_ID_CEILING_KEY, MEMBERS_KEY, META_KIND

SILENCE_S = 2.0
AGAIN_S = 0.5

_log = logging.getLogger(__name__)


class View:
    """The keys that name the master and the position of the state."""

    def __init__(self, gateway: Gateway, keys: Keys, node: NodeUuid) -> None:
        self._gateway, self._keys, self._node = gateway, keys, node
        self._values: dict[bytes, KeyValue] = {}
        self._revision = 0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.unreachable = "etcd has not answered yet"
        """The reason why nothing is known of etcd now; '' while it answers."""
        self.damage = ""
        """The reason why etcd's data cannot be used."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="etcd-view")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    # What is known

    @property
    def leader(self) -> LeaderKey | None:
        found = self._values.get(self._keys.leader)
        return LeaderKey.decode(found.value) if found else None

    @property
    def token(self) -> int:
        """The create revision of the leader's key; 0 without a leader."""
        found = self._values.get(self._keys.leader)
        return found.create_revision if found else 0

    @property
    def head(self) -> Head:
        return Head.decode(self._value(self._keys.head))

    @property
    def epoch(self) -> int:
        """Return the greatest epoch that was ever taken."""
        return decode_epoch(self._value(self._keys.epoch))

    @property
    def epoch_value(self) -> bytes | None:
        return self._value(self._keys.epoch)

    @property
    def hand_over(self) -> NodeUuid | None:
        """Return the node in whose favour the master is to end."""
        value = self._value(self._keys.hand_over)
        return NodeUuid(value.decode(errors="replace")) if value else None

    @property
    def is_incomplete(self) -> bool:
        """Return whether a state is being written here, or an interrupted write was never finished."""
        return self._keys.incomplete in self._values

    @property
    def moved_to(self) -> str:
        """Return the node to which the state moves or has moved; '' if it is here."""
        value = self._value(self._keys.moved)
        return value.decode(errors="replace") if value else ""

    @property
    def members(self) -> MemberList:
        value = self._value(self._keys.members)
        row = None if value is None else opened(META_KIND, MEMBERS_KEY, value)
        return MemberList.decode(row, self._node)

    @property
    def members_value(self) -> bytes | None:
        """The stored form of `members`; None before there is one."""
        return self._value(self._keys.members)

    @property
    def job_id_ceiling(self) -> int:
        value = self._value(self._keys.ceiling)
        return decode_ceiling(
            None if value is None else opened(META_KIND, JOB_ID_CEILING_KEY, value)
        )

    def _value(self, key: bytes) -> bytes | None:
        found = self._values.get(key)
        return found.value if found else None

    async def changed(self) -> None:
        """Return at the next change of the view."""
        self._news.clear()
        await self._news.wait()

    def wake(self) -> None:
        """Wake the waiting tasks, so that they check the view again."""
        self._news.set()

    # Updates

    @property
    def _watched(self) -> tuple[bytes, ...]:
        keys = self._keys
        return (
            keys.leader,
            keys.epoch,
            keys.head,
            keys.hand_over,
            keys.incomplete,
            keys.moved,
            keys.members,
            keys.ceiling,
        )

    async def read(self) -> None:
        """Read once; GatewayError without a quorum, StoreError for damaged data."""
        answer = await self._gateway.look(self._watched)
        self.take(answer)
        self.unreachable = ""

    def take(self, answer: TxnAnswer) -> None:
        """Update the view from an answer with ranges of some of the keys."""
        for operation in answer.responses:
            for found in operation.response_range.kvs:
                self._learn(found)
        seen = {found.key for one in answer.responses for found in one.response_range.kvs}
        for key in self._watched:
            if key not in seen and answer.header.revision >= self._revision:
                self._values.pop(key, None)
        self._revision = max(self._revision, answer.header.revision)
        self._check()

    def _learn(self, found: KeyValue) -> None:
        old = self._values.get(found.key)
        if old is None or old.mod_revision <= found.mod_revision:
            self._values[found.key] = found

    def _check(self) -> None:
        """Decode everything once; StoreError where it cannot be used."""
        _ = self.leader, self.head, self.epoch, self.members, self.job_id_ceiling

    async def _run(self) -> None:
        while True:
            try:
                await self.read()
                self._news.set()
                await self._follow_changes()
            except (GatewayError, ProtocolError) as err:
                if not self.unreachable:
                    _log.warning("etcd: %s", err)
                self.unreachable = err.message
                self._news.set()
                await asyncio.sleep(AGAIN_S)
            except StoreError as err:
                self.damage = err.message
                self._news.set()
                return

    async def _follow_changes(self) -> None:
        """Wake the waiting tasks at each change until the watch ends, in silence or by a fault.

        Then read everything again.
        """
        with contextlib.suppress(GatewayError, ProtocolError):
            async with contextlib.aclosing(self._watch()) as changes:
                async for _ in changes:
                    self._news.set()

    async def _watch(self) -> AsyncGenerator[None, None]:
        """Apply each change; ends after a silence."""
        ranges = [(key, key + b"\0") for key in self._watched]
        watch = self._gateway.watch(*ranges, revision=self._revision + 1, silence_s=SILENCE_S)
        async with contextlib.aclosing(watch) as answers:
            async for answer in answers:
                for event in answer.events:
                    if event.type != "DELETE":
                        self._learn(event.kv)
                        continue
                    old = self._values.get(event.kv.key)
                    if old is not None and old.mod_revision < event.kv.mod_revision:
                        del self._values[event.kv.key]
                if answer.events:
                    self._revision = max(self._revision, answer.header.revision)
                    self._check()
                    yield
