"""Which nodes the master sends what confd answers from, and when."""

import asyncio
from typing import Any

import msgspec
import pytest

from ganeti.confd.facts import KINDS
from ganeti.confd.keys import KEY_NAME, key_of_node, new_key
from ganeti.config.config import Config
from ganeti.daemons.confd_copies import LOOK_S, ConfdCopies
from ganeti.model.stored import Stored
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.confd import CONFD_COPY_WRITE, ConfdCopyArgs, ConfdCopyReport
from ganeti.simulation.counting_ids import CountingIds
from ganeti.simulation.virtual_time import LoopClock
from ganeti.store.encoding import decode_transaction
from ganeti.store.interface import Put
from tests.support.fake_rpc import FakeRpc, Fault
from tests.unit.config.sample import (
    NODES,
    sample_cluster,
    sample_group,
    sample_instance,
    sample_node,
    store_with,
)

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("S238")]

KEY = new_key()
THIRD = "node3.example.com"


class Copy:
    """What one node has, as its node daemon keeps it."""

    def __init__(self) -> None:
        self.position = 0
        self.rows: dict[tuple[str, str], bytes] = {}
        self.key = b""
        self.wholes = 0

    async def write(self, args: ConfdCopyArgs, _call: Call) -> ConfdCopyReport:
        operations = decode_transaction(args.content).operations
        self.key = args.key
        if args.base is None:
            self.rows.clear()
            self.wholes += 1
        if args.base in (None, self.position):
            for one in operations:
                assert one.kind in KINDS
                if isinstance(one, Put):
                    self.rows[one.kind, one.key] = one.value
                else:
                    del self.rows[one.kind, one.key]
            self.position = args.position
        return ConfdCopyReport(position=self.position)

    def has(self, thing: Stored) -> bool:
        return any(key == thing.uuid for _kind, key in self.rows)


class Cluster:
    """A master, a candidate, and a third node whose copies are looked at."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.copies = {f"node{number}.example.com": Copy() for number in (1, 2, 3)}
        nodes: dict[str, Handlers] = {
            name: {CONFD_COPY_WRITE.name: copy.write} for name, copy in self.copies.items()
        }
        self.rpc = FakeRpc(nodes)
        self.sender = ConfdCopies(config, self.rpc, lambda: KEY)

    @property
    def third(self) -> Copy:
        return self.copies[THIRD]

    async def put(self, thing: Stored, settle_s: float = 3.0) -> None:
        await self.config.change(lambda draft: draft.put(thing))
        await asyncio.sleep(settle_s)

    async def remove(self, thing: Stored) -> None:
        await self.config.change(lambda draft: draft.remove(thing))
        await asyncio.sleep(3)

    async def switch(self, **fields: Any) -> None:
        cluster = self.config.snapshot.cluster
        await self.put(msgspec.structs.replace(cluster, **fields))

    async def is_now(self, **fields: Any) -> None:
        node = self.config.snapshot.nodes[NODES[2]]
        await self.put(msgspec.structs.replace(node, **fields))


async def begin(*, confd_on_all: bool = True) -> Cluster:
    things = [
        sample_cluster(confd_on_all_nodes=confd_on_all),
        sample_group(),
        sample_node(1),
        sample_node(2),
        sample_node(3, master_candidate=False),
        sample_instance(1),
    ]
    store, lease = await store_with(*things)
    made = Cluster(await Config.load(store, lease, LoopClock(), CountingIds()))
    made.sender.start()
    await asyncio.sleep(3)
    return made


async def test_only_nodes_that_are_no_candidates_get_a_copy_and_a_key_of_their_own() -> None:
    cluster = await begin()
    assert {call.node_name for call in cluster.rpc.calls} == {THIRD}
    assert cluster.third.key == key_of_node(KEY, THIRD)
    assert cluster.third.position == cluster.config.snapshot.position
    kinds = sorted(kind for kind, _key in cluster.third.rows)
    assert kinds == ["cluster", "group", "instance", "node", "node", "node"]
    assert cluster.third.wholes == 1
    await cluster.sender.close()


async def test_nothing_is_sent_without_the_option_and_after_its_end() -> None:
    cluster = await begin(confd_on_all=False)
    await cluster.put(sample_instance(2))
    assert cluster.rpc.calls == []
    await cluster.switch(confd_on_all_nodes=True)
    assert cluster.third.has(sample_instance(2))
    await cluster.switch(confd_on_all_nodes=False)
    cluster.rpc.reset()
    await cluster.put(sample_instance(3), settle_s=3 * LOOK_S)
    assert cluster.rpc.calls == []
    await cluster.sender.close()


async def test_changes_follow_and_are_all_that_is_sent() -> None:
    cluster = await begin()
    cluster.rpc.reset()
    await cluster.put(sample_instance(2))
    assert cluster.third.has(sample_instance(2))
    sent = [decode_transaction(call.args.content).operations for call in cluster.rpc.calls]
    assert [len(operations) for operations in sent] == [1]
    await cluster.remove(cluster.config.snapshot.instances[sample_instance(2).uuid])
    assert not cluster.third.has(sample_instance(2))
    assert cluster.third.wholes == 1
    await cluster.sender.close()


async def test_many_changes_at_once_cost_one_call_a_second() -> None:
    cluster = await begin()
    cluster.rpc.reset()
    for number in range(2, 30):
        await cluster.put(sample_instance(number), settle_s=0.1)
    await asyncio.sleep(2)
    assert len(cluster.rpc.calls) <= 5
    assert cluster.third.has(sample_instance(29))
    await cluster.sender.close()


@pytest.mark.parametrize("fault", list(Fault))
async def test_node_that_fails_gets_everything_later(fault: Fault) -> None:
    cluster = await begin()
    cluster.rpc.fail(1, fault)
    await cluster.put(sample_instance(2), settle_s=LOOK_S)
    assert cluster.third.has(sample_instance(2))
    assert cluster.third.position == cluster.config.snapshot.position
    await cluster.sender.close()


async def test_lost_copy_is_sent_again_within_a_minute() -> None:
    cluster = await begin()
    cluster.third.position, cluster.third.rows = 0, {}
    await asyncio.sleep(LOOK_S + 3)
    assert cluster.third.position == cluster.config.snapshot.position
    assert cluster.third.has(sample_instance(1))
    assert cluster.third.wholes == 2
    await cluster.sender.close()


@pytest.mark.parametrize("fields", [{"master_candidate": True}, {"offline": True}])
async def test_node_in_another_role_gets_no_more_and_all_when_it_is_back(
    fields: dict[str, Any],
) -> None:
    cluster = await begin()
    await cluster.is_now(**fields)
    cluster.rpc.reset()
    await cluster.put(sample_instance(2))
    assert cluster.rpc.calls == []
    await cluster.is_now(**dict.fromkeys(fields, False))
    assert cluster.third.wholes == 2
    assert cluster.third.has(sample_instance(2))
    await cluster.is_now(drained=True)
    await cluster.put(sample_instance(3))
    assert cluster.third.has(sample_instance(3))
    await cluster.sender.close()


async def test_master_that_missed_a_renewal_of_the_key_sends_nothing() -> None:
    cluster = await begin()
    await cluster.switch(renewed_files={KEY_NAME: "of another key"})
    cluster.rpc.reset()
    await cluster.put(sample_instance(2), settle_s=2 * LOOK_S)
    assert cluster.rpc.calls == []
    await cluster.sender.close()
