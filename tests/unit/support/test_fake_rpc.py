from typing import Any

import pytest

from ganeti.base.errors import RpcFailed, RpcOffline, RpcUnknown, StorageError
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.headers import UNREACHABLE
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.host import LEAVE_CLUSTER, TEST_DELAY, LeaveArgs
from ganeti.rpc.procedures.host import TestDelayArgs as DelayArgs
from ganeti.rpc.procedures.mastership import REGISTER_READ
from tests.support.fake_rpc import FakeRpc, Fault
from tests.unit.rpc.nodes import node

LEAVE = LeaveArgs(cluster_uuid="c")


class Deeds:
    def __init__(self) -> None:
        self.done: list[tuple[Any, Call]] = []

    async def leave(self, args: LeaveArgs, call: Call) -> Nothing:
        self.done.append((args, call))
        if args.cluster_uuid == "broken":
            raise StorageError("disk full")
        return Nothing()

    async def delay(self, args: DelayArgs, call: Call) -> Nothing:
        return Nothing()


def fake() -> tuple[FakeRpc, Deeds]:
    deeds = Deeds()
    handlers: Handlers = {LEAVE_CLUSTER.name: deeds.leave, TEST_DELAY.name: deeds.delay}
    return FakeRpc({"node1.example": handlers}, lambda: (3, "me")), deeds


async def test_the_handler_gets_arguments_and_leader_term_and_the_call_is_recorded() -> None:
    rpc, deeds = fake()
    assert await rpc.call(node(), LEAVE_CLUSTER, LEAVE, key="1/0/1") == Nothing()
    assert deeds.done == [(LEAVE, Call(3, "me", "1/0/1"))]
    assert [(one.node_name, one.procedure, one.args) for one in rpc.calls] == [
        ("node1.example", "leave_cluster", LEAVE)
    ]


@pytest.mark.parametrize(
    ("fault", "error", "is_done"),
    [
        (Fault.NOT_SENT, RpcFailed, False),
        (Fault.REFUSED, RpcFailed, False),
        (Fault.LOST_CALL, RpcUnknown, False),
        (Fault.LOST_ANSWER, RpcUnknown, True),
    ],
)
async def test_the_nth_changing_call_fails_as_asked(
    fault: Fault, error: type[Exception], is_done: bool
) -> None:
    rpc, deeds = fake()
    rpc.fail(2, fault)
    await rpc.call(node(), LEAVE_CLUSTER, LEAVE)
    await rpc.call(node(), TEST_DELAY, DelayArgs(duration_s=0))
    with pytest.raises(error):
        await rpc.call(node(), LEAVE_CLUSTER, LEAVE)
    assert len(deeds.done) == 1 + is_done
    await rpc.call(node(), LEAVE_CLUSTER, LEAVE)
    assert len(rpc.changing_calls) == 3


async def test_errors_of_handlers_and_missing_ones_are_failures_of_their_kind() -> None:
    rpc, _ = fake()
    with pytest.raises(RpcFailed, match="disk full") as caught:
        await rpc.call(node(), LEAVE_CLUSTER, LeaveArgs(cluster_uuid="broken"))
    assert caught.value.wire_error == "StorageError"
    with pytest.raises(RpcFailed, match="no procedure"):
        await rpc.call(node(), REGISTER_READ, Nothing())


async def test_unknown_nodes_are_unreachable_and_offline_ones_not_called() -> None:
    rpc, _ = fake()
    answers = await rpc.call_all(
        [node(1), node(2), node(3, offline=True)], TEST_DELAY, DelayArgs(duration_s=0)
    )
    first, second, third = answers.values()
    assert first == Nothing()
    assert isinstance(second, RpcFailed)
    assert second.wire_error == UNREACHABLE
    assert isinstance(third, RpcOffline)
    assert [call.node_name for call in rpc.calls] == ["node1.example", "node2.example"]
