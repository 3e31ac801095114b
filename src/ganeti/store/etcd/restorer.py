"""Replaces a whole state in etcd while no node is the master.

The replacement takes many transactions. A mark shows that it has not finished: no candidate is
elected before the mark is removed. After a crash in between, a repeated restore starts again.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import BinaryIO

from ganeti.base.errors import StoreError
from ganeti.base.files import sync_file
from ganeti.base.paths import Paths
from ganeti.store.backend import PresentState, Restoration
from ganeti.store.backup import write_backup
from ganeti.store.etcd.backend import EtcdBackend
from ganeti.store.etcd.batch import MAX_BYTES, MAX_REQUESTS
from ganeti.store.etcd.gateway import Gateway, GatewayError
from ganeti.store.etcd.keys import Head, Keys, LeaderKey, encode_epoch, sealed
from ganeti.store.etcd.messages import Compare, Request, delete, put
from ganeti.store.etcd.opening import open_gateway
from ganeti.store.etcd.upkeep import EtcdOptions
from ganeti.store.etcd.view import View
from ganeti.store.interface import Identity, Position, Row
from ganeti.store.register import RegisterFile
from ganeti.store.restoring import register_restored
from ganeti.store.settings import StateSettings

HELD_S = 15
RENEW_S = 4.0
ANSWERS_S = 15.0
AGAIN_S = 0.3


class EtcdRestorer:
    """The `StateRestorer` of etcd; it also fills a new etcd with the state of another back end."""

    def __init__(self, paths: Paths, identity: Identity, settings: StateSettings) -> None:
        self._paths, self._identity, self._settings = paths, identity, settings
        self._keys = Keys(identity.cluster_uuid)
        self._gateway: Gateway | None = None
        self._token = 0

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        gateway = self._gateway = open_gateway(self._paths, self._settings)
        try:
            async with self._being_leader(gateway):
                yield
        finally:
            await gateway.close()

    @contextlib.asynccontextmanager
    async def _being_leader(self, gateway: Gateway) -> AsyncIterator[None]:
        """Prevent elections for the block; StoreError if a node is the master."""
        view = await self._free()
        if view.leader is not None:
            raise StoreError(
                f"node {view.leader.node} is the master; stop ganeti-masterd on every candidate"
                " first, and on the master last, since a new master starts it on the others"
            )
        lease = await gateway.grant_lease(HELD_S)
        leader = LeaderKey(self._identity.node_uuid, view.epoch).encode()
        free = [Compare(self._keys.leader, create_revision=0)]
        answer = await gateway.txn(free, [put(self._keys.leader, leader, lease)])
        if not answer.succeeded:
            raise StoreError(
                "a candidate has just become the master; stop ganeti-masterd on every candidate "
                "first"
            )
        self._token = answer.header.revision
        renewing = asyncio.create_task(_renew(gateway, lease), name="etcd-restore")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait((renewing,))
            with contextlib.suppress(GatewayError):
                await gateway.revoke_lease(lease)

    async def _free(self) -> View:
        """Return the view once no node is the master, or the lease of an earlier command has ended.

        GatewayError if etcd does not answer for a while: it may have just been started.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            try:
                view = await self._view()
            except GatewayError:
                if loop.time() > begun + ANSWERS_S:
                    raise
            else:
                if view.leader is None or loop.time() > begun + HELD_S + RENEW_S:
                    return view
            await asyncio.sleep(AGAIN_S)

    def _require(self) -> Gateway:
        if self._gateway is None:
            raise StoreError("the state in etcd is not locked")
        return self._gateway

    async def _view(self) -> View:
        view = View(self._require(), self._keys, self._identity.node_uuid)
        await view.read()
        return view

    async def present_state(self) -> PresentState:
        try:
            view = await self._view()
        except GatewayError:
            raise
        except StoreError as err:
            return PresentState(Position(0, 0), damage=err.message)
        return PresentState(view.head.position, view.epoch, view.job_id_ceiling)

    async def rows(self) -> AsyncGenerator[Row, None]:
        async with contextlib.aclosing(self._reader().load()) as items:
            async for item in items:
                if isinstance(item, Row):
                    yield item

    def _reader(self) -> EtcdBackend:
        """Return a back end that only reads: it is never started."""
        return EtcdBackend(self._require(), self._identity, options=EtcdOptions(is_managed=False))

    async def replace(self, plan: Restoration, rows: Iterable[Row]) -> str:
        gateway, keys = self._require(), self._keys
        found = await self.present_state()
        aside = (
            "" if found.damage or found.position == Position(0, 0) else await self._preserve(found)
        )
        await self._written([put(keys.incomplete, b"1")])
        await gateway.delete(keys.rows, keys.end_of_rows)
        waiting: list[Request] = []
        size = 0
        for row in rows:
            value = sealed(row.kind, row.key, row.value)
            if len(waiting) == MAX_REQUESTS or size + len(value) > MAX_BYTES:
                await self._written(waiting)
                waiting, size = [], 0
            waiting.append(put(keys.row(row.kind, row.key), value))
            size += len(value)
        await self._written(waiting)
        head = Head(plan.position, plan.digest)
        # The register first: a candidate that is elected afterwards takes a greater epoch than the
        # register's.
        register_restored(
            RegisterFile(self._paths.register),
            self._identity,
            plan.position.epoch,
            plan.job_id_ceiling,
            plan.voters,
        )
        epoch = encode_epoch(plan.position.epoch)
        await self._written(
            [
                put(keys.head, head.encode()),
                put(keys.epoch, epoch),
                delete(keys.incomplete),
                delete(keys.moved),
            ]
        )
        return aside

    async def _written(self, requests: list[Request]) -> None:
        """Write while no other node is the master; StoreError."""
        if not requests:
            return
        ours = [Compare(self._keys.leader, create_revision=self._token)]
        answer = await self._require().txn(ours, requests, timeout_s=10.0)
        if not answer.succeeded:
            raise StoreError("the state in etcd is no longer locked; restore again")

    async def _preserve(self, found: PresentState) -> str:
        """Preserve the replaced state as a backup; return its path."""
        at = found.position
        path = self._paths.data / f"etcd.aside-{at.epoch}-{at.serial}"
        with path.open("wb") as file:
            path.chmod(0o600)
            async with contextlib.aclosing(self._reader().load()) as items:
                await write_backup(items, _FileSink(file), self._identity.cluster_uuid)
        sync_file(path)
        return str(path)


class _FileSink:
    """A file as the target of a backup; nothing else runs on this loop."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    async def write(self, data: bytes) -> None:
        self._file.write(data)


async def _renew(gateway: Gateway, lease: int) -> None:
    while True:
        with contextlib.suppress(GatewayError):
            await gateway.keep_alive(lease)
        await asyncio.sleep(RENEW_S)
