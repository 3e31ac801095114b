"""The fence of back ends that elect without the registers: a majority has promised, and goes on to."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from ganeti.base.errors import NotMaster
from ganeti.model.objects import NodeUuid
from ganeti.store import fence as fence_module
from ganeti.store.encoding import MemberList
from ganeti.store.epochs import BOUND
from ganeti.store.fence import RegisterFence, keep_promised
from ganeti.store.interface import MAX_EPOCH, Identity
from ganeti.store.register import check_epoch
from tests.support.replicas import Replicas

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G4")]

A, B, C = (NodeUuid(name) for name in "abc")


class Nodes:
    """Registers of some nodes, and the fence of the first."""

    def __init__(self, tmp_path: Path, *names: str) -> None:
        self.replicas = Replicas(tmp_path, names)
        self.counted = frozenset(self.replicas.names)
        self.candidates = self.counted
        identity = Identity(self.replicas.cluster, A)
        self.fence = RegisterFence(identity, self.replicas.links("a"), self._counted, holds=bool)

    async def _counted(self) -> MemberList:
        return MemberList(self.counted, self.candidates)

    def promised(self, node: NodeUuid) -> int:
        register = self.replicas.registers[node].read()
        assert register is not None
        return register.promised.epoch

    def promise_to(self, other: NodeUuid, node: NodeUuid, epoch: int) -> None:
        self.replicas.registers[node].decide(lambda old: check_epoch(old, epoch, other))


async def test_majority_promises_the_epoch_and_others_learn_it_later(
    tmp_path: Path,
) -> None:
    nodes = Nodes(tmp_path, "a", "b", "c")
    nodes.replicas.silent_voters = {C}
    await nodes.fence.promise(5)
    assert [nodes.promised(node) for node in (A, B, C)] == [5, 5, 0]
    nodes.replicas.silent_voters = set()
    await nodes.fence.renew(5)
    assert nodes.promised(C) == 5
    assert await nodes.fence.greatest_promised(0) == 5


async def test_missing_majority_is_refused_and_names_missing_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_module, "PROMISE_S", 3.0)
    nodes = Nodes(tmp_path, "a", "b", "c")
    nodes.replicas.silent_voters = {B, C}
    with pytest.raises(NotMaster, match=r"only 1 of 3 .*node b: no answer; node c: no answer"):
        await nodes.fence.promise(5)
    with pytest.raises(NotMaster, match="was not promised"):
        await nodes.fence.renew(5)


async def test_of_two_nodes_the_master_suffices(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, "a", "b")
    nodes.replicas.silent_voters = {B}
    await nodes.fence.promise(5)
    assert nodes.promised(A) == 5


@pytest.mark.parametrize("is_promised", [False, True])
async def test_a_greater_epoch_anywhere_ends_the_master(
    tmp_path: Path, *, is_promised: bool
) -> None:
    nodes = Nodes(tmp_path, "a", "b", "c")
    if is_promised:
        await nodes.fence.promise(5)
    nodes.promise_to(B, C, 6)
    call = nodes.fence.renew if is_promised else nodes.fence.promise
    with pytest.raises(NotMaster, match="node c has promised epoch 6"):
        await call(5)


@pytest.mark.requirement("A26")
@pytest.mark.parametrize("epoch", [6, MAX_EPOCH])
async def test_greater_epoch_that_no_candidate_has_does_not_end_the_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, epoch: int
) -> None:
    nodes = Nodes(tmp_path, "a", "b", "c")
    nodes.candidates = frozenset((A, B))
    await nodes.fence.promise(5)
    nodes.replicas.spoil(C, epoch)
    for _ in range(3):
        await nodes.fence.renew(5)
    assert caplog.text.count(f"its register has promised epoch {epoch}") == 1
    assert "gnt-node add --readd c" in caplog.text


@pytest.mark.requirement("A26")
async def test_next_epoch_is_within_the_bound_of_what_a_majority_has(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, "a", "b", "c")
    await nodes.fence.promise(5)
    nodes.replicas.spoil(C, MAX_EPOCH)
    assert await nodes.fence.greatest_promised(5) == 5
    nodes.replicas.spoil(C, 5 + BOUND)
    assert await nodes.fence.greatest_promised(5) == 5 + BOUND


async def test_ten_seconds_without_a_majority_end_the_master(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, "a", "b", "c")
    await nodes.fence.promise(5)
    keeping = asyncio.create_task(keep_promised(nodes.fence, 5))
    await asyncio.sleep(30)
    nodes.replicas.silent_voters = {B, C}
    await asyncio.sleep(8)
    assert not keeping.done()
    await asyncio.sleep(6)
    assert keeping.done()
    assert await keeping == "no majority of the nodes has answered for 10 s"


async def test_nodes_that_come_and_go_are_counted_from_then_on(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, "a", "b", "c")
    nodes.counted = frozenset((A,))
    await nodes.fence.promise(5)
    nodes.counted = frozenset((A, B, C))
    nodes.replicas.silent_voters = {B, C}
    await nodes.fence.renew(5)
    await asyncio.sleep(11)
    with pytest.raises(NotMaster, match="no majority"):
        await nodes.fence.renew(5)
    nodes.counted = frozenset((A,))
    await nodes.fence.renew(5)


async def test_silent_node_does_not_delay_the_next_renewal(tmp_path: Path) -> None:
    """The lease of the master would run out meanwhile."""
    nodes = Nodes(tmp_path, "a", "b", "c")
    await nodes.fence.promise(5)
    nodes.replicas.hush(C)
    asked: list[float] = []
    renew = nodes.fence.renew

    async def counted(epoch: int) -> None:
        asked.append(asyncio.get_running_loop().time())
        await renew(epoch)

    nodes.fence.renew = counted  # type: ignore[method-assign] # looks at the time of each
    keeping = asyncio.create_task(keep_promised(nodes.fence, 5))
    await asyncio.sleep(9)
    keeping.cancel()
    await asyncio.wait((keeping,))
    assert all(later - earlier < 2.1 for earlier, later in pairwise(asked))
    assert len(asked) >= 4
