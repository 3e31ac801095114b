"""Questions as jobs, and the opcodes that exercise the queue."""

from typing import Any

import pytest

from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.query import OpClusterConfigQuery, OpQuery, OpQueryFields
from ganeti.model.opcodes.test import OpTestDummy, OpTestJqueue, OpTestOsParams
from ganeti.query.execute import ClusterFacts, QueryExecutor
from ganeti.query.live import LiveSource
from ganeti.simulation.virtual_time import LoopClock
from tests.support.units_cluster import Master, failed, said, succeeded

pytestmark = pytest.mark.virtual_time

SECRET = "correct horse battery"


@pytest.fixture
async def asked(master: Master) -> Master:
    """A master that answers questions."""

    async def pause() -> float | None:
        return None

    live = LiveSource(master.services.rpc, LoopClock())
    facts = ClusterFacts(lambda: master.queue.is_drained, pause)
    queries = QueryExecutor(lambda: master.snapshot, master.queue, list, live, facts)
    object.__setattr__(master.services, "queries", lambda: queries)
    return master


async def test_a_query_is_a_job_with_the_answer_as_its_result(asked: Master) -> None:
    op = OpQuery(what="node", fields=["name", "role"], qfilter=["=", "role", "M"])
    found = succeeded(await asked.run(op))
    assert found["data"] == [[[0, "node1.example.com"], [0, "M"]]]
    assert [one["title"] for one in found["fields"]] == ["Node", "Role"]
    fields = succeeded(await asked.run(OpQueryFields(what="lock")))["fields"]
    assert [one["name"] for one in fields] == ["mode", "name", "owner", "pending"]


async def test_the_cluster_is_a_kind_with_one_row(asked: Master) -> None:
    names = ["cluster_name", "master_node", "drain_flag", "watcher_pause"]
    values = ["cluster.example.com", "node1.example.com", False, None]
    assert succeeded(await asked.run(OpClusterConfigQuery(output_fields=names))) == values
    found = succeeded(await asked.run(OpQuery(what="cluster", fields=names)))
    assert found["data"] == [[[3 if one is None else 0, one] for one in values]]


async def test_what_the_nodes_have_of_an_os_is_a_kind(asked: Master) -> None:
    op = OpQuery(what="os", fields=["name", "valid", "variants"], qfilter=["=", "name", "tiny"])
    [[name, valid, _variants]] = succeeded(await asked.run(op))["data"]
    assert (name, valid) == ([0, "tiny"], [0, True])


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (OpQuery(what="soup", fields=[]), "'soup' is not a kind of objects"),
        (OpQuery(what="node", fields=["name"], qfilter=["?"]), "is not an operator"),
        (OpQueryFields(what=""), "is not a kind of objects"),
        (OpClusterConfigQuery(output_fields=["x"]), "output_fields: unknown field 'x'"),
        (OpTestOsParams(), "osparams_secret: must name at least one"),
        (OpTestDummy(submit_jobs=[[{"OP_ID": "OP_SOUP"}]]), "submit_jobs[0][0]"),
    ],
)
async def test_wrong_questions_are_refused(asked: Master, op: OpCode, text: str) -> None:
    _, (said_, code) = failed(await asked.run(op))
    assert (code, text in said_) == ("wrong_input", True), said_


async def test_a_master_that_begins_reports_it(master: Master) -> None:
    _, (_text, code) = failed(await master.run(OpQuery(what="node", fields=[])))
    assert code == "temp_insufficient_resources"


async def test_the_test_opcode_logs_submits_and_fails_on_request(asked: Master) -> None:
    inner: list[list[dict[str, Any]]] = [[{"OP_ID": "OP_TEST_DUMMY", "messages": "inner"}]]
    view = await asked.run(OpTestDummy(messages=["one", "two"], result=[7], submit_jobs=inner))
    found = succeeded(view)
    assert (said(view).split("\n")[:2], found["result"]) == (["one", "two"], [7])
    [[is_accepted, job_id]] = found["jobs"]
    assert is_accepted
    assert said(await asked.final(job_id)) == "inner"
    kind, (text, *_rest) = failed(await asked.run(OpTestDummy(fail="so it is")))
    assert (kind, text) == ("OpExecError", "so it is")


async def test_an_opcode_that_tests_the_queue_reports_its_messages_or_fails(asked: Master) -> None:
    view = await asked.run(OpTestJqueue(log_messages=["a", ""]))
    assert said(view) == "TESTMSG=a\nTESTMSG="
    failed(await asked.run(OpTestJqueue(fail=True)))
    kind, (text, *_rest) = failed(await asked.run(OpTestJqueue(notify_waitlock=True)))
    assert kind == "OpPrereqError"
    assert "no program has connected" in text


@pytest.mark.requirement("G23")
async def test_a_secret_reaches_the_master_and_nothing_else(asked: Master) -> None:
    view = await asked.run(OpTestOsParams(osparams_secret={"root": SECRET}))
    assert succeeded(view) == {"root": len(SECRET)}
    assert SECRET not in repr(view)
    assert SECRET.encode() not in b"".join(asked.world.disk.rows.values())
