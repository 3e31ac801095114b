"""A back end is a package and a line: one in memory is registered, chosen, and held to the contract."""

from collections.abc import Iterator
from pathlib import Path
from typing import Never

import pytest

from ganeti.base.clock import SystemClock
from ganeti.base.errors import ConfigurationError, InputError
from ganeti.base.node_files import node_files
from ganeti.base.paths import Paths
from ganeti.base.state_kinds import EMBEDDED, STATE_KINDS, ExternalServers, StateKind
from ganeti.bootstrap import switch_state
from ganeti.bootstrap.init import InitOptions, check_options
from ganeti.model.objects import NodeUuid
from ganeti.simulation.faulty_store import Delay, FaultyStore
from ganeti.store.backend import StateBackend, become_master
from ganeti.store.backends import (
    BackEnd,
    CandidateState,
    back_end,
    join_cluster,
    open_alone,
    open_state,
)
from ganeti.store.interface import Identity
from ganeti.store.ports import alone
from ganeti.store.register import RegisterFile
from ganeti.store.settings import StateSettings, keep_state_settings, state_settings
from tests.support.memory_back_end import BACK_END
from tests.support.switching import NoDaemons, Registers, SteppedSwitch
from tests.unit.config.sample import NODES, sample_node
from tests.unit.store.conformance import (
    CLUSTER,
    NODE,
    Harness,
    StoreConformance,
    keys_of,
    put,
)

MEMORY = "memory"


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The line that registers the back end."""
    line = StateKind("tests.support.memory_back_end", "the memory of this process", "for tests")
    monkeypatch.setitem(STATE_KINDS, MEMORY, line)
    yield
    BACK_END.disks.clear()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    for directory in (paths.data, paths.run, paths.log):
        directory.mkdir(parents=True)
    return paths


class ChosenHarness(Harness):
    """Opens what the setting of the node says."""

    def __init__(self, paths: Paths) -> None:
        self.paths, self.identity = paths, Identity(CLUSTER, NODE)
        keep_state_settings(paths, StateSettings(kind=MEMORY))
        self.register = RegisterFile(paths.register)
        join_cluster(self.register, self.identity)

    async def open(self, *, log_entries: int = 20_000) -> StateBackend:
        BACK_END.disk(self.paths, self.identity).log_entries = log_entries
        opened = await open_state(self.paths, self.identity, alone(NODE, self.register))
        assert isinstance(opened.backend, FaultyStore)
        return opened.backend

    def fill(self, store: StateBackend) -> None:
        assert isinstance(store, FaultyStore)
        store.set_full(full=True)

    async def free(self, store: StateBackend) -> None:
        assert isinstance(store, FaultyStore)
        store.set_full(full=False)

    def hold_sync(self, store: StateBackend) -> None:
        assert isinstance(store, FaultyStore)
        store.inject(Delay(1.0))


@pytest.fixture
def harness(paths: Paths) -> ChosenHarness:
    return ChosenHarness(paths)


@pytest.mark.virtual_time
class TestRegisteredBackEnd(StoreConformance):
    """The suite of all back ends, on one that was registered by a line."""


def test_every_line_names_a_back_end() -> None:
    assert {EMBEDDED, "etcd", MEMORY} == STATE_KINDS.keys()
    for kind in STATE_KINDS:
        assert isinstance(back_end(kind), BackEnd)


def test_a_back_end_that_is_not_registered_is_refused(paths: Paths) -> None:
    paths.state_settings.write_text('{"kind": "tape"}')
    with pytest.raises(ConfigurationError, match="'tape' is not a state back end"):
        state_settings(paths)


async def test_candidates_learn_of_a_back_end_that_is_not_the_embedded_one(paths: Paths) -> None:
    async def reports(_nodes: object) -> dict[NodeUuid, Never]:
        return {}

    for kind in (MEMORY, EMBEDDED):
        settings = StateSettings(kind=kind)
        servers = back_end(kind).servers(paths, CLUSTER, settings, reports)
        place = await servers.admit(sample_node(1))
        assert place == CandidateState(settings if kind == MEMORY else None)
        assert await servers.faults([sample_node(1)]) == []
        await servers.close()


def test_init_accepts_every_registered_back_end() -> None:
    def options(state: str) -> InitOptions:
        return InitOptions(
            cluster_name="cluster.example.com", node_name="node1.example.com",
            primary_ip="192.0.2.1", state=state,
        )  # fmt: skip

    check_options(options(MEMORY))
    with pytest.raises(InputError, match="tape"):
        check_options(options("tape"))


async def test_a_back_end_without_servers_refuses_servers(paths: Paths) -> None:
    switch = a_switch(paths)
    with pytest.raises(InputError, match="no servers"):
        await switch.move(MEMORY, ExternalServers(("https://192.0.2.1:2379",)))
    with pytest.raises(InputError, match="no servers"):
        back_end(MEMORY).check_server("{}")


def a_switch(paths: Paths) -> SteppedSwitch:
    identity = Identity(CLUSTER, NodeUuid(NODES[0]))
    return SteppedSwitch(paths, NoDaemons(paths), SystemClock(), identity, lambda _line: None)


async def test_the_state_moves_to_a_registered_back_end_and_back(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = RegisterFile(paths.register)
    monkeypatch.setattr(switch_state, "_asked", Registers(NODES[0], {NODES[0]: register}).asked)
    monkeypatch.setattr("ganeti.base.tls.client_context", lambda *_files: None)
    switch = a_switch(paths)
    store = await open_alone(paths, switch.identity)
    lease = await become_master(store)
    await store.commit(lease, put("web1"))
    await store.commit(lease, put(NODES[0], node_row(), kind="node"))
    await store.close()
    for kind in (MEMORY, EMBEDDED):
        await switch.move(kind, None)
        assert state_settings(paths).kind == kind
        store = await open_alone(paths, switch.identity)
        assert "web1" in await keys_of(store)
        newer = await become_master(store)
        assert newer.epoch > lease.epoch
        lease = newer
        await store.close()
    assert not paths.state_settings.exists()


def node_row() -> bytes:
    from ganeti.model import wire

    return wire.encode(sample_node(1))


def test_the_files_of_every_server_are_listed(paths: Paths) -> None:
    listed = {one.path for one in node_files(paths)}
    for kind in STATE_KINDS.values():
        if kind.server is not None:
            assert listed.issuperset(kind.server.secrets(paths))
            assert {paths.log / name for name in kind.server.logs} <= listed
