import pytest

from ganeti.model.objects import NodeUuid
from ganeti.node.register import NodeRegister
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import (
    REGISTER_ACCEPT,
    REGISTER_PROMISE,
    REGISTER_READ,
    AcceptArgs,
    PromiseArgs,
    RegisterState,
)
from ganeti.store.register import MemoryRegister, Promise, Register

CLUSTER, MASTER, OTHER = "cluster-uuid", "master-uuid", "other-uuid"


class Node:
    def __init__(self, register: Register | None) -> None:
        self.keeper = MemoryRegister(register)
        self.register = NodeRegister(self.keeper, lambda epoch: [f"older than {epoch}"])

    async def call(self, name: str, args: object) -> RegisterState:
        answer = await self.register.handlers()[name](args, Call())
        assert isinstance(answer, RegisterState)
        return answer

    async def promise(self, epoch: int, who: str) -> RegisterState:
        args = PromiseArgs(cluster_uuid=CLUSTER, epoch=epoch, candidate_uuid=who)
        return await self.call(REGISTER_PROMISE.name, args)


def joined(epoch: int = 3) -> Node:
    return Node(Register(CLUSTER, Promise(epoch, NodeUuid(MASTER))))


@pytest.mark.requirement("A26", "G4")
@pytest.mark.parametrize(
    ("epoch", "master", "why"),
    [
        (3, MASTER, None),
        (4, OTHER, None),
        (2, MASTER, "is over"),
        (3, OTHER, "belongs to"),
        (0, MASTER, "needs the epoch"),
        (3, "", "needs the epoch"),
        (-1, MASTER, "needs the epoch"),
        (2**31, MASTER, "out of range"),
    ],
)
async def test_a_changing_call_needs_the_epoch_of_its_master(
    epoch: int, master: str, why: str | None
) -> None:
    node = joined()
    refused = await node.register.check_epoch(epoch, master)
    await node.register.close()
    assert (refused is None) == (why is None)
    assert (why or "") in (refused or "")


@pytest.mark.requirement("A26")
async def test_a_greater_epoch_is_kept_so_that_the_old_one_is_refused_from_then_on() -> None:
    node = joined(3)
    assert await node.register.check_epoch(5, OTHER) is None
    assert await node.register.check_epoch(3, MASTER) is not None
    await node.register.close()
    register = node.keeper.read()
    assert register is not None
    assert register.promised == Promise(5, NodeUuid(OTHER))


async def test_a_node_that_never_joined_refuses_every_changing_call() -> None:
    node = Node(None)
    assert "accepts only a join" in str(await node.register.check_epoch(1, MASTER))
    state = await node.call(REGISTER_READ.name, Nothing())
    await node.register.close()
    assert (state.cluster_uuid, state.promised_epoch, state.promised_to) == ("", 0, "")


async def test_an_epoch_is_promised_once() -> None:
    node = joined(3)
    granted = await node.promise(4, OTHER)
    refused = await node.promise(4, MASTER)
    await node.register.close()
    assert (granted.granted, granted.promised_epoch, granted.promised_to) == (True, 4, OTHER)
    assert not refused.granted
    assert refused.promised_to == OTHER
    assert "not greater" in refused.why


async def test_a_master_registers_itself_and_an_answer_names_older_calls() -> None:
    node = joined(3)
    args = AcceptArgs(
        cluster_uuid=CLUSTER,
        epoch=3,
        version=1,
        master_uuid=MASTER,
        sync_set=[MASTER],
        job_id_ceiling=100,
    )
    state = await node.call(REGISTER_ACCEPT.name, args)
    await node.register.close()
    assert (state.granted, state.accepted_master, state.job_id_ceiling) == (True, MASTER, 100)
    assert state.sync_set == [MASTER]
    assert state.older_calls == ["older than 3"]


async def test_a_master_of_another_cluster_is_refused() -> None:
    node = joined(3)
    args = PromiseArgs(cluster_uuid="elsewhere", epoch=9, candidate_uuid=OTHER)
    state = await node.call(REGISTER_PROMISE.name, args)
    await node.register.close()
    assert not state.granted
    assert CLUSTER in state.why
