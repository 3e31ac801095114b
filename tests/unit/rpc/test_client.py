import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from ganeti.base.errors import RpcError, RpcFailed, RpcOffline, RpcUnknown
from ganeti.model.objects import Node, NodeUuid
from ganeti.rpc.client import (
    NODES_AT_ONCE,
    REATTACH_DELAY_S,
    REATTACH_TRIES,
    RpcClient,
)
from ganeti.rpc.headers import EPOCH_HEADER, KEY_HEADER, MASTER_HEADER, UNREACHABLE
from ganeti.rpc.procedures.files import WRITE_SSCONF, SsconfArgs
from ganeti.rpc.procedures.form import Lane, Nothing, Procedure
from ganeti.rpc.procedures.host import LEAVE_CLUSTER, TEST_DELAY, HypervisorsArgs, LeaveArgs
from ganeti.rpc.procedures.host import TestDelayArgs as DelayArgs
from ganeti.rpc.procedures.instances import INSTANCES_INFO
from ganeti.rpc.procedures.mastership import REGISTER_READ
from ganeti.rpc.procedures.programs import OS_CREATE, ScriptResult
from ganeti.rpc.transport import Answer, NoAnswer, NotSent
from ganeti.store.lease_gate import LeaseGate
from tests.unit.rpc.nodes import node

pytestmark = pytest.mark.virtual_time

LEAVE = LeaveArgs(cluster_uuid="c")


def ok(result: object) -> Answer:
    return Answer(200, json.dumps({"result": result}).encode())


class Script:
    """A transport that does what it was told, call by call; the last word is repeated."""

    def __init__(self, *outcomes: Answer | Exception | float) -> None:
        self.outcomes: Sequence[Answer | Exception | float] = outcomes
        self.sent: list[tuple[str, str, Mapping[str, str], Any]] = []
        self.lanes: list[tuple[str, Lane]] = []
        self.at_once = self.most_at_once = 0

    async def post(
        self,
        node: Node,
        procedure: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        lane: Lane,
    ) -> Answer:
        self.lanes.append((procedure, lane))
        self.sent.append((node.name, procedure, headers, json.loads(body)))
        outcome = self.outcomes[min(len(self.sent), len(self.outcomes)) - 1]
        if isinstance(outcome, float):
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
            await asyncio.sleep(min(outcome, timeout_s))
            self.at_once -= 1
            if outcome > timeout_s:
                raise NoAnswer("nothing in time")
            return ok({})
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Nothing to close."""


def client(script: Script, superseded: Callable[[str], None] | None = None) -> RpcClient:
    return RpcClient(script, lambda: (7, "master-uuid"), superseded)


async def test_a_call_carries_epoch_master_and_key_and_its_result_is_typed() -> None:
    script = Script(ok({"tail": "done", "log_path": "/x", "of_a_newer_node": 1}))
    args = LEAVE
    procedure: Procedure[Any, Any] = Procedure(
        OS_CREATE.name, LeaveArgs, ScriptResult, 10.0, changes=True
    )
    result = await client(script).call(node(), procedure, args, key="1/0/2")
    assert result == ScriptResult(tail="done", log_path="/x")
    headers = {EPOCH_HEADER: "7", MASTER_HEADER: "master-uuid", KEY_HEADER: "1/0/2"}
    assert script.sent == [("node1.example", "os_create", headers, {"cluster_uuid": "c"})]


async def test_nothing_is_sent_to_an_offline_node() -> None:
    script = Script(ok({}))
    with pytest.raises(RpcOffline):
        await client(script).call(node(offline=True), LEAVE_CLUSTER, LEAVE)
    assert script.sent == []


async def test_an_error_answer_is_a_failure_of_its_kind() -> None:
    body = json.dumps({"error": "StorageError", "message": "disk full", "code": ""}).encode()
    with pytest.raises(RpcFailed, match=r"node1.example: disk full") as caught:
        await client(Script(Answer(500, body))).call(node(), LEAVE_CLUSTER, LEAVE)
    assert caught.value.wire_error == "StorageError"


async def test_a_node_that_does_not_know_this_candidate_is_to_be_taken_in_again() -> None:
    body = json.dumps({"error": "AccessDenied", "message": "no", "code": ""}).encode()
    with pytest.raises(RpcFailed, match=r"gnt-node add --readd node1\.example") as caught:
        await client(Script(Answer(403, body))).call(node(), LEAVE_CLUSTER, LEAVE)
    assert caught.value.wire_error == "AccessDenied"


async def test_a_changing_call_that_was_not_sent_surely_did_nothing() -> None:
    script = Script(NotSent("connection refused"))
    with pytest.raises(RpcFailed, match="connection refused") as caught:
        await client(script).call(node(), LEAVE_CLUSTER, LEAVE)
    assert caught.value.wire_error == UNREACHABLE
    assert len(script.sent) == 1


async def test_a_changing_call_without_an_answer_is_unknown_and_not_repeated() -> None:
    script = Script(NoAnswer("connection reset"), ok({}))
    with pytest.raises(RpcUnknown, match="connection reset"):
        await client(script).call(node(), LEAVE_CLUSTER, LEAVE, key="1/0/1")
    assert len(script.sent) == 1


async def test_a_call_that_changes_nothing_is_tried_once_more() -> None:
    script = Script(NoAnswer("reset"), ok([]))
    args = HypervisorsArgs(hypervisors=["fake"])
    assert await client(script).call(node(), INSTANCES_INFO, args) == []
    script = Script(NoAnswer("reset"))
    with pytest.raises(RpcUnknown):
        await client(script).call(node(), INSTANCES_INFO, args)
    assert len(script.sent) == 2


@pytest.mark.requirement("A32")
async def test_call_to_a_silent_node_ends_at_the_deadline() -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    with pytest.raises(RpcUnknown):
        await client(Script(1e9)).call(node(), REGISTER_READ, Nothing())
    assert loop.time() - before == pytest.approx(REGISTER_READ.deadline_s)


LONG: Procedure[Any, Any] = Procedure(
    "os_create", LeaveArgs, ScriptResult, 6 * 3600.0, changes=True, is_long=True
)
DONE = ok({"tail": "", "log_path": ""})


async def test_long_work_is_asked_for_again_while_its_node_daemon_restarts() -> None:
    script = Script(NoAnswer("reset"), NotSent("refused"), NotSent("refused"), DONE)
    loop = asyncio.get_running_loop()
    before = loop.time()
    await client(script).call(node(), LONG, LEAVE, key="1/0/1")
    assert {headers[KEY_HEADER] for _, _, headers, _ in script.sent} == {"1/0/1"}
    assert loop.time() - before == pytest.approx(3 * REATTACH_DELAY_S)


async def test_long_work_whose_node_stays_away_is_unknown_and_not_failed() -> None:
    script = Script(NoAnswer("reset"), NotSent("refused"))
    with pytest.raises(RpcUnknown):
        await client(script).call(node(), LONG, LEAVE, key="1/0/1")
    assert len(script.sent) == REATTACH_TRIES


async def test_long_work_that_was_never_sent_or_has_no_key_is_not_asked_for_again() -> None:
    script = Script(NotSent("refused"), DONE)
    with pytest.raises(RpcFailed):
        await client(script).call(node(), LONG, LEAVE, key="1/0/1")
    script = Script(NoAnswer("reset"), DONE)
    with pytest.raises(RpcUnknown):
        await client(script).call(node(), LONG, LEAVE)


@pytest.mark.parametrize(
    "body",
    [b"", b"garbage", b'{"result": 5}', b"[]", b"{}", b'{"result": {"tail": 1}}', b"\xff"],
)
async def test_an_answer_that_cannot_be_understood_is_unknown(body: bytes) -> None:
    with pytest.raises(RpcUnknown, match="cannot be understood"):
        await client(Script(Answer(200, body))).call(node(), LONG, LEAVE, key="k")


async def test_an_error_that_is_no_json_is_still_a_failure() -> None:
    with pytest.raises(RpcFailed, match="HTTP status 404"):
        await client(Script(Answer(404, b"<html>"))).call(node(), LEAVE_CLUSTER, LEAVE)


@pytest.mark.requirement("G4")
@pytest.mark.parametrize("is_candidate", [True, False])
@pytest.mark.requirement("A26")
async def test_only_a_candidate_that_refuses_the_epoch_ends_the_master(
    *, is_candidate: bool
) -> None:
    heard: list[str] = []
    body = json.dumps({"error": "EpochError", "message": "epoch 7 is over", "code": ""}).encode()
    target = msgspec.structs.replace(node(), master_candidate=is_candidate)
    with pytest.raises(RpcFailed) as caught:
        await client(Script(Answer(409, body)), heard.append).call(target, LEAVE_CLUSTER, LEAVE)
    assert heard == (["node node1.example: epoch 7 is over"] if is_candidate else [])
    assert ("gnt-node add --readd node1.example" in caught.value.reason) is not is_candidate


@pytest.mark.requirement("F31")
async def test_many_nodes_are_asked_at_most_thirty_at_once_and_errors_stand_for_results() -> None:
    nodes = [node(number, offline=number == 5) for number in range(1, 101)]
    script = Script(1.0)
    answers = await client(script).call_all(nodes, TEST_DELAY, DelayArgs(duration_s=1))
    assert script.most_at_once == NODES_AT_ONCE
    assert [uuid for uuid, one in answers.items() if isinstance(one, RpcError)] == [nodes[4].uuid]
    assert list(answers) == [one.uuid for one in nodes]


async def test_question_to_many_nodes_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = list[bytes]()
    script = Script(ok({}))
    post = script.post

    async def noted(node: Node, procedure: str, body: bytes, **given: Any) -> Answer:
        bodies.append(body)
        return await post(node, procedure, body, **given)

    monkeypatch.setattr(script, "post", noted)
    await client(script).call_all([node(1), node(2)], TEST_DELAY, DelayArgs(duration_s=1))
    assert len(bodies) == 2
    assert bodies[0] is bodies[1]


async def test_calls_take_lanes_by_how_long_they_may_take() -> None:
    script = Script(NotSent("no"))
    calls: list[tuple[Procedure[Any, Any], Any]] = [
        (REGISTER_READ, Nothing()),
        (INSTANCES_INFO, HypervisorsArgs(hypervisors=[])),
        (TEST_DELAY, DelayArgs(duration_s=1.0)),
    ]
    for procedure, args in calls:
        with pytest.raises(RpcFailed):
            await client(script).call(node(), procedure, args)
    assert [lane for _, lane in script.lanes] == [Lane.QUICK, Lane.NORMAL, Lane.LONG]


@pytest.mark.requirement("G4")
async def test_changing_call_waits_for_the_lease_and_is_not_sent_without_one() -> None:
    holds, is_over = False, False
    script = Script(ok({}))
    gate = LeaseGate(lambda: holds, lambda: is_over)
    rpc = RpcClient(script, lambda: (7, "master-uuid"), None, gate)
    await rpc.call(node(1), REGISTER_READ, Nothing())  # changes nothing
    waiting = asyncio.create_task(rpc.call(node(1), LEAVE_CLUSTER, LEAVE))
    await asyncio.sleep(5)
    assert [sent[1] for sent in script.sent] == [REGISTER_READ.name]
    holds = True
    await waiting
    assert script.sent[-1][1] == LEAVE_CLUSTER.name
    holds, is_over = False, True
    with pytest.raises(RpcFailed) as caught:
        await rpc.call(node(1), LEAVE_CLUSTER, LEAVE)
    assert caught.value.wire_error == UNREACHABLE
    assert len(script.sent) == 2


@pytest.mark.parametrize(
    ("procedure", "args", "outcome", "counts"),
    [
        (LEAVE_CLUSTER, LEAVE, ok({}), True),
        (WRITE_SSCONF, SsconfArgs(position=1, values={}), ok({}), False),
        (INSTANCES_INFO, HypervisorsArgs(hypervisors=[]), ok([]), False),
        (INSTANCES_INFO, HypervisorsArgs(hypervisors=[]), NoAnswer("broken"), True),
        (INSTANCES_INFO, HypervisorsArgs(hypervisors=[]), NotSent("no route"), True),
    ],
)
async def test_calls_that_use_resources_or_stay_unanswered_count_as_changes_of_the_node(
    procedure: Procedure[Any, Any], args: Any, outcome: Answer | Exception, counts: bool
) -> None:
    rpc, one = client(Script(outcome)), NodeUuid(node().uuid)
    moment = rpc.node_changes.moment()
    with contextlib.suppress(RpcError):
        await rpc.call(node(), procedure, args)
    assert rpc.node_changes.since(one, moment) == counts
    assert not rpc.node_changes.since(one, rpc.node_changes.moment())
