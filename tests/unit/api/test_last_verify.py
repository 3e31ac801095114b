"""The findings of the last verify."""

from typing import Any

from ganeti.api.last_verify import FINDINGS_LIMIT, last_verify
from ganeti.model.job import LogEntry, OpState
from ganeti.model.names import JobStatus
from ganeti.model.opcodes.cluster import OpClusterVerifyConfig, OpClusterVerifyGroup
from tests.unit.query.cluster import FakeJob

GROUP = OpClusterVerifyGroup(group_name="g1")


def verified(job_id: int, op: Any, *lines: str, end: float | None = 9.0, **given: Any) -> FakeJob:
    log: list[LogEntry] = [
        (serial, (0, 0), "message", line) for serial, line in enumerate(lines, 1)
    ]
    return FakeJob(job_id, (OpState(op=op),), (log,), end=end, **given)


def test_cluster_without_a_finished_verify_has_no_findings() -> None:
    running = verified(2, GROUP, end=None, status=JobStatus.RUNNING)
    failed = verified(3, GROUP, "  - ERROR: node n1: old", status=JobStatus.ERROR)
    assert last_verify([running, failed]) is None


def test_newest_job_of_each_group_counts() -> None:
    found = last_verify([
        verified(5, OpClusterVerifyConfig(), "* Verifying", end=20.0),
        verified(6, GROUP, "  - WARNING:ENODEN1:node:n1:slow: 3 s", "  - ERROR: node n1: broken", end=30.0),
        verified(2, GROUP, "  - ERROR: node n1: repaired since", end=10.0),
    ])  # fmt: skip
    assert found == {
        "ended": 20.0,
        "errors": 1,
        "warnings": 1,
        "findings": [
            {
                "severity": "error",
                "code": None,
                "kind": "node",
                "name": "n1",
                "text": "broken",
                "job": 6,
            },
            {
                "severity": "warning",
                "code": "ENODEN1",
                "kind": "node",
                "name": "n1",
                "text": "slow: 3 s",
                "job": 6,
            },
        ],
    }


def test_only_the_first_findings_are_listed_but_all_are_counted() -> None:
    lines = [f"  - ERROR: node n{number}: broken" for number in range(FINDINGS_LIMIT + 5)]
    found = last_verify([verified(1, GROUP, *lines)])
    assert found is not None
    assert (found["errors"], len(found["findings"])) == (FINDINGS_LIMIT + 5, FINDINGS_LIMIT)
