"""What earlier masters began on a node is ended before anything of it is touched (R11)."""

import asyncio
from typing import Any

import pytest

from ganeti.base.errors import RpcError, RpcFailed, RpcUnknown
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.objects import GroupUuid, Node, NodeUuid
from ganeti.rpc.calls import Call
from ganeti.rpc.headers import UNREACHABLE
from ganeti.rpc.procedures.disks import BLOCKDEV_INFO, BLOCKDEV_REMOVE, DiskArgs, DiskInfo
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import CANDIDATE_STOP
from ganeti.rpc.procedures.programs import OS_CREATE, OsCreateArgs
from ganeti.rpc.procedures.stale_work import (
    END_STALE_WORK,
    EndWorkArgs,
    EndWorkResult,
    UnfinishedWork,
)
from ganeti.rpc.stale_work import AGAIN_S, KNOWN_FOR_S, STALE_WORK, StaleWorkFence
from tests.support.fake_rpc import FakeRpc, Fault

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G4", "G7")]

DISK = DiskSpec(
    uuid="d", index=0, template="file", size=1, mode="rw", logical_id=("blktap", "/local/x")
)


def spec(name: str) -> InstanceSpec:
    return InstanceSpec(
        name=name,
        uuid=name,
        hypervisor="fake",
        os="tiny",
        hvparams={},
        memory=64,
        vcpus=1,
        disks=(DISK,),
    )


def disk_of(instance: str) -> DiskArgs:
    return DiskArgs(instance_name=instance, disk=DISK)


class Bench:
    """One node, and what it says."""

    def __init__(self) -> None:
        self.unfinished: list[UnfinishedWork] = []
        self.asked: list[tuple[EndWorkArgs, Call]] = []
        self.fails = False
        self.rpc = FakeRpc(
            {
                "node1": {
                    END_STALE_WORK.name: self.end,
                    BLOCKDEV_REMOVE.name: self.nothing,
                    BLOCKDEV_INFO.name: self.info,
                    CANDIDATE_STOP.name: self.nothing,
                }
            },
            lambda: (5, "master"),
        )
        self.node = Node(
            uuid=NodeUuid("n1"),
            name="node1",
            primary_ip="192.0.2.1",
            secondary_ip="192.0.2.1",
            group=GroupUuid("g"),
            certificate="00",
        )
        self.earlier = StaleWorkFence(self.rpc)

    async def end(self, args: EndWorkArgs, call: Call) -> EndWorkResult:
        self.asked.append((args, call))
        if self.fails:
            raise RpcError("node1", "no")
        return EndWorkResult(ended=["task 1/0/1"], unfinished=self.unfinished)

    async def nothing(self, _args: Any, _call: Call) -> Nothing:
        return Nothing()

    async def info(self, _args: Any, _call: Call) -> DiskInfo:
        return DiskInfo(exists=False, path="", size=0)

    async def remove(self, instance: str) -> Any:
        return await self.earlier.call(self.node, BLOCKDEV_REMOVE, disk_of(instance), key="9/0/1")

    def sent(self) -> list[str]:
        return [call.procedure for call in self.rpc.calls]


async def test_a_node_is_asked_once_before_the_first_act_on_an_instance() -> None:
    bench = Bench()
    await bench.earlier.call(bench.node, BLOCKDEV_INFO, disk_of("a"))
    await bench.earlier.call(bench.node, CANDIDATE_STOP, Nothing())
    assert END_STALE_WORK.name not in bench.sent()
    await bench.remove("a")
    await bench.remove("b")
    assert bench.sent()[2:] == [END_STALE_WORK.name, BLOCKDEV_REMOVE.name, BLOCKDEV_REMOVE.name]
    (args, call) = bench.asked[0]
    assert args.older
    assert call.epoch == 5


async def test_earlier_work_blocks_calls_of_its_instance_only() -> None:
    bench = Bench()
    bench.unfinished = [UnfinishedWork(what="task 1/0/3", instance="a")]
    with pytest.raises(RpcFailed, match="task 1/0/3 for an earlier master") as failed:
        await bench.remove("a")
    assert failed.value.wire_error == STALE_WORK
    assert BLOCKDEV_REMOVE.name not in bench.sent()
    await bench.remove("b")
    bench.unfinished = []
    with pytest.raises(RpcFailed):
        await bench.remove("a")  # not asked again at once
    await asyncio.sleep(KNOWN_FOR_S)
    await bench.remove("a")


async def test_earlier_work_of_an_unknown_instance_blocks_all() -> None:
    bench = Bench()
    bench.unfinished = [UnfinishedWork(what="something")]
    for instance in ("a", "b"):
        with pytest.raises(RpcFailed, match="something"):
            await bench.remove(instance)


@pytest.mark.parametrize("how", ["it says so", "it is gone"])
async def test_nothing_is_sent_to_a_node_that_cannot_say(how: str) -> None:
    bench = Bench()
    if how == "it is gone":
        bench.rpc.nodes.clear()
    bench.fails = True
    with pytest.raises(RpcFailed):
        await bench.remove("a")
    assert BLOCKDEV_REMOVE.name not in bench.sent()


async def test_an_unknown_outcome_of_asking_is_no_unknown_outcome_of_the_act() -> None:
    bench = Bench()

    class Lossy(FakeRpc):
        def _next_fault(self, procedure: Any) -> Fault | None:
            return Fault.LOST_ANSWER if procedure is END_STALE_WORK else None

    earlier = StaleWorkFence(Lossy(bench.rpc.nodes))
    with pytest.raises(RpcFailed) as failed:
        await earlier.call(bench.node, BLOCKDEV_REMOVE, disk_of("a"), key="9/0/1")
    assert failed.value.wire_error == UNREACHABLE


async def test_the_sweep_asks_until_nothing_is_left() -> None:
    bench = Bench()
    bench.unfinished = [UnfinishedWork(what="task 1/0/3", instance="a")]
    sweep = asyncio.create_task(bench.earlier.sweep(lambda: [bench.node]))
    await asyncio.sleep(AGAIN_S - 1)
    assert len(bench.asked) == 1
    bench.unfinished = []
    await asyncio.sleep(AGAIN_S)
    await sweep
    assert len(bench.asked) == 2
    await bench.remove("a")
    assert len(bench.asked) == 2


async def test_program_of_unknown_outcome_is_ended_before_the_next_act() -> None:
    bench = Bench()
    os_create = OsCreateArgs(instance=spec("a"), os="tiny", osparams={})
    bench.rpc.fail(1, Fault.LOST_CALL)
    with pytest.raises(RpcUnknown):
        await bench.earlier.call(bench.node, OS_CREATE, os_create, key="9/0/1")
    asked = len(bench.asked)
    await bench.remove("b")
    assert len(bench.asked) == asked
    bench.unfinished = [UnfinishedWork(what="task 9/0/1", instance="a")]
    with pytest.raises(RpcFailed, match="task 9/0/1, which cannot be ended"):
        await bench.remove("a")
    assert bench.asked[-1][0].keys == ["9/0/1"]
    assert not bench.asked[-1][0].older
    bench.unfinished = []
    await bench.remove("a")
    asked = len(bench.asked)
    await bench.remove("a")
    assert len(bench.asked) == asked
