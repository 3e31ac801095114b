"""An administrator confirms that a lost node is off."""

import pytest

from ganeti.model.job import LOCAL_SOURCE, remote_source
from ganeti.model.opcodes.node import OpNodeFenced
from ganeti.model.recovery import NodeState
from ganeti.recovery.status import RecoveryStatus
from tests.support.recovery_status import FakeRecovery, node_status
from tests.support.units_cluster import NODES, Master, failed, succeeded
from tests.unit.units.test_job_source import run_as

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("D7")]

CONFIRM = OpNodeFenced(node_name="node2", confirm=True)


@pytest.fixture
def recovery(master: Master) -> FakeRecovery:
    found = FakeRecovery()
    object.__setattr__(master.services, "recovery", found)
    return found


@pytest.mark.parametrize(
    ("source", "by"),
    [(LOCAL_SOURCE, "an administrator (job 1)"), (remote_source("ann"), "user ann (job 1)")],
)
async def test_confirmation_names_the_person(
    master: Master, recovery: FakeRecovery, source: str, by: str
) -> None:
    view = await run_as(master, source, CONFIRM)
    assert "node2.example.com counts as off" in succeeded(view)
    assert recovery.confirmed == [(NODES[1], by)]
    master.check_nothing_is_held()


@pytest.mark.parametrize(
    ("state", "silent_s", "text"),
    [
        (NodeState.HEALTHY, 1.2, "is not off: it is healthy, and its last answer came 1 s ago"),
        (NodeState.RETURNING, 0.4, "is not off: it is returning"),
        (NodeState.SUSPECT, 7, "counts as lost after 10 s; try again then"),
        (NodeState.FENCING, 3, "may still answer: its last answer came 3 s ago"),
    ],
)
async def test_node_that_may_answer_is_refused(
    master: Master, recovery: FakeRecovery, state: NodeState, silent_s: float, text: str
) -> None:
    recovery.state = RecoveryStatus((node_status(2, state=state, silent_s=silent_s),))
    name, (found, code) = failed(await master.run(CONFIRM))
    assert (name, code) == ("OpPrereqError", "wrong_state")
    assert text in found
    assert recovery.confirmed == []


@pytest.mark.parametrize("state", [NodeState.SUSPECT, NodeState.FENCING, NodeState.STUCK])
async def test_silent_node_is_confirmed_in_every_state(
    master: Master, recovery: FakeRecovery, state: NodeState
) -> None:
    recovery.state = RecoveryStatus((node_status(2, state=state, silent_s=10.0),))
    succeeded(await master.run(CONFIRM))
    assert len(recovery.confirmed) == 1


async def test_confirmation_of_a_fenced_node_changes_nothing(
    master: Master, recovery: FakeRecovery
) -> None:
    why = "power off: fence_ipmilan"
    recovery.state = RecoveryStatus((node_status(2, state=NodeState.FENCED, why=why, is_off=True),))
    assert (
        succeeded(await master.run(CONFIRM)) == f"Node node2.example.com is fenced already: {why}"
    )
    assert recovery.confirmed == []


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (OpNodeFenced(node_name="node2"), "must be set, to state that the node is certainly off"),
        (OpNodeFenced(node_name="node9", confirm=True), "node9"),
    ],
)
async def test_wrong_request_confirms_nothing(
    master: Master, recovery: FakeRecovery, op: OpNodeFenced, text: str
) -> None:
    assert text in str(failed(await master.run(op)))
    assert recovery.confirmed == []


async def test_nothing_is_confirmed_while_nothing_is_protected(master: Master) -> None:
    assert "does not count this node as lost" in failed(await master.run(CONFIRM))[1][0]


async def test_dry_run_confirms_nothing(master: Master, recovery: FakeRecovery) -> None:
    op = OpNodeFenced(node_name="node2", confirm=True, dry_run=True)
    succeeded(await master.run(op))
    assert recovery.confirmed == []
