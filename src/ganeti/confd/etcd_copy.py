"""The facts as etcd has them: a projection in memory, kept by one watch over the whole state.

One watch, so that what one transaction changed comes in one message: a position is never shown without
all that belongs to it. While etcd does not answer, what is known is answered further on.
"""

import asyncio
import contextlib
import logging

from ganeti.base.errors import ProtocolError, StoreError
from ganeti.confd.facts import KINDS, ClusterCopy
from ganeti.confd.local_copy import put
from ganeti.store.etcd.gateway import Compacted, Gateway, GatewayError
from ganeti.store.etcd.keys import Head, Keys
from ganeti.store.etcd.messages import Event, WatchAnswer, range_end

AGAIN_S = 0.5
PAGE_ROWS = 500
SILENCE_S = 20.0
"""Seconds after which the watch is restarted, because a broken connection is silent, too."""

_log = logging.getLogger(__name__)


class _BeingReplaced(StoreError):
    """A whole state is being put here, or taken away: it is read again afterwards."""


class EtcdCopy:
    """Follows one cluster's keys; `facts` has position 0 until they were read once."""

    def __init__(self, gateway: Gateway, cluster_uuid: str) -> None:
        self._gateway, self._keys = gateway, Keys(cluster_uuid)
        self._revision = 0
        self._said = ""
        self.facts = ClusterCopy()

    async def follow(self) -> None:
        """Keep `facts` current until cancelled."""
        try:
            while True:
                try:
                    await self._read_all()
                    self._said = ""
                    await self._follow_changes()
                except (StoreError, ProtocolError) as err:
                    if err.message != self._said:
                        _log.warning("the state cannot be read now: %s", err)
                    self._said = err.message
                    await asyncio.sleep(AGAIN_S)
        finally:
            await self._gateway.close()

    async def _read_all(self) -> None:
        """All rows of interest at one revision; GatewayError, _BeingReplaced."""
        keys = self._keys
        answer = await self._gateway.look((keys.head, keys.incomplete, keys.moved))
        head, *marks = [one.response_range.kvs for one in answer.responses]
        if any(marks) or not head:
            raise _BeingReplaced("the state in etcd is not whole now")
        revision = answer.header.revision
        facts = ClusterCopy()
        for kind in KINDS:
            start = keys.row(kind, "")
            end = range_end(start)
            while True:
                page = await self._gateway.range(start, end, revision=revision, limit=PAGE_ROWS)
                for found in page.kvs:
                    self._take(facts, found.key, found.value)
                if not page.more or not page.kvs:
                    break
                start = page.kvs[-1].key + b"\0"
        facts.position = Head.decode(head[0].value).position.as_int()
        self.facts, self._revision = facts, revision

    def _take(self, facts: ClusterCopy, key: bytes, value: bytes) -> None:
        row = self._keys.decode_row(key, value)
        put(facts, row.kind, row.key, row.value)

    async def _follow_changes(self) -> None:
        """Return when the state must be read again; a broken watch continues where it was."""
        keys = self._keys
        while True:
            watch = self._gateway.watch(
                (keys.prefix, keys.end), revision=self._revision + 1, silence_s=SILENCE_S
            )
            try:
                async with contextlib.aclosing(watch) as answers:
                    async for answer in answers:
                        self._apply(answer)
            except Compacted:
                return
            except (GatewayError, ProtocolError) as err:
                _log.info("restarting the watch: %s", err)
                await asyncio.sleep(AGAIN_S)

    def _apply(self, answer: WatchAnswer) -> None:
        if not answer.events:
            return
        position = self.facts.position
        for event in answer.events:
            if event.kv.key in (self._keys.incomplete, self._keys.moved):
                raise _BeingReplaced("the state in etcd is being replaced")
            if event.kv.key == self._keys.head and event.type != "DELETE":
                position = Head.decode(event.kv.value).position.as_int()
            elif event.kv.key.startswith(self._keys.rows):
                self._apply_row(event)
        self.facts.position = position
        self._revision = max(event.kv.mod_revision for event in answer.events)

    def _apply_row(self, event: Event) -> None:
        kind, _, name = (
            event.kv.key.removeprefix(self._keys.rows).decode(errors="replace").partition("\0")
        )
        if kind not in KINDS:
            return
        if event.type == "DELETE":
            self.facts.delete(kind, name)
        else:
            self._take(self.facts, event.kv.key, event.kv.value)
