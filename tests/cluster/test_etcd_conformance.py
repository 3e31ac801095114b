"""The conformance suite on three real etcd servers."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from ganeti.store.backend import StateBackend
from ganeti.store.etcd.backend import EtcdBackend
from ganeti.store.etcd.gateway import REQUEST_S, Full, Gateway
from ganeti.store.etcd.keys import Keys
from ganeti.store.etcd.messages import Compare, Request, TxnAnswer
from ganeti.store.etcd.settings import Access
from ganeti.store.etcd.upkeep import EtcdOptions
from ganeti.store.interface import Identity
from tests.support.etcd_servers import EtcdServers, etcd_servers
from tests.support.patience import patience
from tests.unit.store.conformance import CLUSTER, NODE, Harness, StoreConformance

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def servers() -> Iterator[EtcdServers]:
    with etcd_servers() as running:
        yield running


class TroubledGateway(Gateway):
    """Says that etcd is full, or answers late, when it is told to."""

    is_full = False
    late_s = 0.0

    async def txn(
        self,
        compare: Sequence[Compare],
        success: Sequence[Request],
        failure: Sequence[Request] = (),
        *,
        timeout_s: float = REQUEST_S,
    ) -> TxnAnswer:
        late_s, self.late_s = self.late_s, 0.0
        await asyncio.sleep(late_s)
        if self.is_full:
            raise Full("database space exceeded (of the test)")
        return await super().txn(compare, success, failure, timeout_s=timeout_s)


class EtcdHarness(Harness):
    def __init__(self, servers: EtcdServers) -> None:
        self._servers = servers
        self.opened: list[EtcdBackend] = []

    def gateway(self) -> TroubledGateway:
        return TroubledGateway(Access(self._servers.endpoints))

    async def open(self, *, log_entries: int = 20_000) -> StateBackend:
        backend = EtcdBackend(
            self.gateway(), Identity(CLUSTER, NODE), options=EtcdOptions(is_managed=False)
        )
        self.opened.append(backend)
        await backend.start()
        return backend

    @staticmethod
    def _gateway_of(store: StateBackend) -> TroubledGateway:
        assert isinstance(store, EtcdBackend)
        assert isinstance(store._gateway, TroubledGateway)
        return store._gateway

    def fill(self, store: StateBackend) -> None:
        self._gateway_of(store).is_full = True

    async def free(self, store: StateBackend) -> None:
        self._gateway_of(store).is_full = False
        async with asyncio.timeout(30 * patience()):
            while store.statistics().is_full:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.05)

    def hold_sync(self, store: StateBackend) -> None:
        self._gateway_of(store).late_s = 0.2


@pytest.fixture
async def harness(servers: EtcdServers) -> AsyncIterator[EtcdHarness]:
    made = EtcdHarness(servers)
    empty = made.gateway()
    keys = Keys(CLUSTER)
    await empty.delete(keys.prefix, keys.end)
    # The test before has written the same positions: history begins here.
    await empty.compact((await empty.range(keys.head)).header.revision)
    await empty.close()
    yield made
    for backend in made.opened:
        await backend.close()


class TestEtcdBackend(StoreConformance):
    """What every back end does."""


# It is elected a moment after it is opened, without being asked.
for name in ("test_a_new_store_is_empty_and_follows", "test_role_changes_are_reported_in_order"):
    assert hasattr(StoreConformance, name), f"{name} is not in the suite any more"
    setattr(TestEtcdBackend, name, None)
