"""The state in etcd for a reader: one watch over the whole state.

With one watch, the changes of one transaction arrive in one message. So a position is never
published without all its changes.
"""

import asyncio
import contextlib
import logging

from ganeti.base.errors import ProtocolError, StoreError
from ganeti.store.backends import StateSink
from ganeti.store.etcd.gateway import Compacted, Gateway, GatewayError
from ganeti.store.etcd.keys import Head, Keys
from ganeti.store.etcd.messages import Event, WatchAnswer, range_end
from ganeti.store.interface import Position

AGAIN_S = 0.5
PAGE_ROWS = 500
SILENCE_S = 20.0
"""Seconds after which the watch is restarted, because a broken connection is silent, too."""

_log = logging.getLogger(__name__)


class _BeingReplaced(StoreError):
    """A whole state is being written or removed: it must be read again afterwards."""


class EtcdReader:
    """The `StateReader` of one cluster's keys."""

    def __init__(self, gateway: Gateway, cluster_uuid: str) -> None:
        self._gateway, self._keys = gateway, Keys(cluster_uuid)
        self._revision = 0
        self._position = Position(0, 0)

    async def close(self) -> None:
        await self._gateway.close()

    async def follow(self, sink: StateSink) -> None:
        await self._read_all(sink)
        await self._follow_changes(sink)

    async def _read_all(self, sink: StateSink) -> None:
        """Read all requested rows at one revision; GatewayError, _BeingReplaced."""
        keys = self._keys
        answer = await self._gateway.look((keys.head, keys.incomplete, keys.moved))
        head, *marks = [one.response_range.kvs for one in answer.responses]
        if any(marks) or not head:
            raise _BeingReplaced("the state in etcd is incomplete at this moment")
        revision = answer.header.revision
        sink.begin()
        for kind in sink.kinds:
            start = keys.row(kind, "")
            end = range_end(start)
            while True:
                page = await self._gateway.range(start, end, revision=revision, limit=PAGE_ROWS)
                for found in page.kvs:
                    self._put(sink, found.key, found.value)
                if not page.more or not page.kvs:
                    break
                start = page.kvs[-1].key + b"\0"
        self._revision, self._position = revision, Head.decode(head[0].value).position
        sink.reached(self._position)

    def _put(self, sink: StateSink, key: bytes, value: bytes) -> None:
        row = self._keys.decode_row(key, value)
        sink.put(row.kind, row.key, row.value)

    async def _follow_changes(self, sink: StateSink) -> None:
        """Return when everything must be read again; a broken watch continues at its last revision."""
        keys = self._keys
        while True:
            watch = self._gateway.watch(
                (keys.prefix, keys.end), revision=self._revision + 1, silence_s=SILENCE_S
            )
            try:
                async with contextlib.aclosing(watch) as answers:
                    async for answer in answers:
                        self._apply(sink, answer)
            except Compacted:
                return
            except (GatewayError, ProtocolError) as err:
                _log.info("restarting the watch: %s", err)
                await asyncio.sleep(AGAIN_S)

    def _apply(self, sink: StateSink, answer: WatchAnswer) -> None:
        if not answer.events:
            return
        for event in answer.events:
            if event.kv.key in (self._keys.incomplete, self._keys.moved):
                raise _BeingReplaced("the state in etcd is being replaced")
            if event.kv.key == self._keys.head and event.type != "DELETE":
                self._position = Head.decode(event.kv.value).position
            elif event.kv.key.startswith(self._keys.rows):
                self._apply_row(sink, event)
        sink.reached(self._position)
        self._revision = max(event.kv.mod_revision for event in answer.events)

    def _apply_row(self, sink: StateSink, event: Event) -> None:
        kind, _, name = (
            event.kv.key.removeprefix(self._keys.rows).decode(errors="replace").partition("\0")
        )
        if kind not in sink.kinds:
            return
        if event.type == "DELETE":
            sink.delete(kind, name)
        else:
            self._put(sink, event.kv.key, event.kv.value)
