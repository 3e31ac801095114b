"""Copies of confd's data for nodes that are not master candidates, if the cluster enables them (S238).

When a master begins, it sends each such node a full copy of the configuration without secrets.
After that it sends the changes, at most once a second. Within a minute it detects a node that has
lost its copy and sends a full copy again. The node removes its copy when its ssconf files no longer
allow one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from hashlib import sha256

from ganeti.base.errors import GanetiError
from ganeti.base.roles import COPY_HOLDERS
from ganeti.base.yield_every import YieldEvery
from ganeti.confd.facts import CLUSTER, GROUP, INSTANCE, NODE, without_secrets
from ganeti.confd.keys import KEY_NAME, key_of_node
from ganeti.config.config import Config
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import put_row
from ganeti.model.objects import Cluster, Instance, Node, NodeGroup, NodeUuid
from ganeti.model.stored import Stored
from ganeti.rpc.procedures.confd import CONFD_COPY_WRITE, ConfdCopyArgs
from ganeti.store.encoding import encode_transaction
from ganeti.store.interface import Delete, Operation, Put, Transaction
from ganeti.units.calls import Rpc
from ganeti.units.cluster.file_findings import role_of

INTERVAL_S = 1.0
"""Minimum time between two updates of one node, in seconds."""
LOOK_S = 60.0
"""Interval at which an unchanged node is asked whether it still has its copy.

Also the longest delay between retries.
"""
AT_ONCE = 30
ROUNDS = 20
"""Number of objects to encode before the loop gets a turn."""

_TYPES: dict[str, type[Stored]] = {
    CLUSTER: Cluster,
    GROUP: NodeGroup,
    INSTANCE: Instance,
    NODE: Node,
}

_log = logging.getLogger(__name__)


def copy_holders(snapshot: Snapshot) -> dict[NodeUuid, Node]:
    """Return the nodes whose confd answers from a copy."""
    cluster = snapshot.cluster
    if not cluster.confd_on_all_nodes:
        return {}
    return {
        NodeUuid(node.uuid): node
        for node in snapshot.nodes.values()
        if role_of(node, is_master=node.uuid == cluster.master_node) in COPY_HOLDERS
    }


async def changes(before: Snapshot | None, after: Snapshot) -> AsyncIterator[Operation]:
    """Yield the operations that turn a copy of `before` into one of `after`.

    Without `before`, all rows of `after`.
    """
    pause = YieldEvery(ROUNDS)
    for name, kind in _TYPES.items():
        old = {} if before is None else before.tables[kind]
        new = after.tables[kind]
        for uuid in old.keys() - new.keys():
            yield Delete(name, uuid)
        for uuid, thing in new.items():
            if old.get(uuid) is not thing:
                row = put_row(thing)
                yield Put(name, uuid, without_secrets(name, row.value))
                await pause()


class ConfdCopies:
    """Follows the configuration with one task for each node that holds a copy.

    A slow node delays only itself.
    """

    def __init__(self, config: Config, rpc: Rpc, cluster_key: Callable[[], bytes]) -> None:
        """`cluster_key` returns the cluster's key of confd; it blocks."""
        self._config, self._rpc, self._cluster_key = config, rpc, cluster_key
        self._tasks: dict[NodeUuid, asyncio.Task[None]] = {}
        self._news: dict[NodeUuid, asyncio.Event] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._encoding = asyncio.Lock()
        self._encoded: tuple[tuple[int | None, int], bytes] = ((None, -1), b"")
        """The last encoded content from one position to another: most nodes need the same."""
        self._unsubscribe: Callable[[], None] | None = None
        self._calls = 0

    def start(self) -> None:
        """Follow the configuration from now on."""
        self._unsubscribe = self._config.subscribe(self._changed)
        self._changed(self._config.snapshot)

    async def close(self) -> None:
        """Stop; unfinished transfers are cancelled."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _changed(self, snapshot: Snapshot) -> None:
        for uuid, node in copy_holders(snapshot).items():
            if uuid not in self._tasks:
                self._news[uuid] = asyncio.Event()
                work = self._follow(uuid)
                self._tasks[uuid] = asyncio.create_task(work, name=f"confd copy of {node.name}")
        for news in self._news.values():
            news.set()

    async def _follow(self, uuid: NodeUuid) -> None:
        """Keep one node's copy current while the configuration assigns it one."""
        known: Snapshot | None = None
        retry_s, said = INTERVAL_S, ""
        try:
            while node := copy_holders(self._config.snapshot).get(uuid):
                self._news[uuid].clear()
                snapshot = self._config.snapshot
                try:
                    known = await self._send(node, known, snapshot)
                    pause_s, retry_s, said = LOOK_S if known else INTERVAL_S, INTERVAL_S, ""
                except GanetiError as err:
                    # The node's ssconf files may arrive shortly after the first copy.
                    if retry_s > INTERVAL_S and err.message != said:
                        _log.warning("confd of %s has no current copy: %s", node.name, err)
                        said = err.message
                    pause_s, retry_s = retry_s, min(2 * retry_s, LOOK_S)
                await self._pause(uuid, pause_s)
        finally:
            del self._tasks[uuid], self._news[uuid]

    async def _pause(self, uuid: NodeUuid, most_s: float) -> None:
        """Wait for the next change or until the timeout; at least `INTERVAL_S`."""
        await asyncio.sleep(INTERVAL_S)
        try:
            async with asyncio.timeout(most_s - INTERVAL_S):
                await self._news[uuid].wait()
        except TimeoutError:
            return

    async def _send(
        self, node: Node, known: Snapshot | None, snapshot: Snapshot
    ) -> Snapshot | None:
        """Return the snapshot that the node has now, or None where it needs a full copy; GanetiError."""
        key = await asyncio.to_thread(self._cluster_key)
        renewed = snapshot.cluster.renewed_files.get(KEY_NAME)
        if renewed not in (None, sha256(key).hexdigest()):
            _log.warning("%s of this node is not the most recently renewed one", KEY_NAME)
            return known
        args = ConfdCopyArgs(
            key=key_of_node(key, node.name),
            base=known.position if known else None,
            position=snapshot.position,
            content=await self._content(known, snapshot),
        )
        self._calls += 1
        call = f"confd/{snapshot.position}/{node.uuid}/{self._calls}"
        async with self._gate:
            report = await self._rpc.call(node, CONFD_COPY_WRITE, args, key=call)
        return snapshot if report.position == snapshot.position else None

    async def _content(self, known: Snapshot | None, snapshot: Snapshot) -> bytes:
        way = (known.position if known else None, snapshot.position)
        async with self._encoding:
            if self._encoded[0] != way:
                operations = [one async for one in changes(known, snapshot)]
                content = await asyncio.to_thread(
                    encode_transaction, Transaction(tuple(operations))
                )
                self._encoded = way, content
            return self._encoded[1]
