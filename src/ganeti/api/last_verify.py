"""The findings of the last `gnt-cluster verify`, from the logs of its jobs."""

from collections.abc import Iterable
from typing import Any

from ganeti.model.names import JobStatus
from ganeti.model.opcodes.cluster import OpClusterVerifyConfig, OpClusterVerifyGroup
from ganeti.model.verify_lines import parsed_finding
from ganeti.query.context import JobRow

VERIFY_OPS = (OpClusterVerifyConfig, OpClusterVerifyGroup)
FINDINGS_LIMIT = 200
"""Maximum number of findings in the answer; `errors` and `warnings` count all of them."""


def last_verify(jobs: Iterable[JobRow]) -> dict[str, Any] | None:
    """Return the findings of the newest finished job for the configuration and for each group; None without one.

    The first opcode of each job is one of `VERIFY_OPS`. `ended` is the end of the oldest of these jobs: what is older has been checked again.
    """
    newest: dict[str, JobRow] = {}
    for job in jobs:
        op = job.ops[0].op
        if job.end is None or job.status is not JobStatus.SUCCESS:
            continue
        about = op.group_name if isinstance(op, OpClusterVerifyGroup) else ""
        if about not in newest or newest[about].id < job.id:
            newest[about] = job
    if not newest:
        return None
    found = [
        {**finding, "job": job.id}
        for job in newest.values()
        for _serial, _time, _kind, content in job.log[0]
        if (finding := parsed_finding(str(content)))
    ]
    errors = [one for one in found if one["severity"] == "error"]
    warnings = [one for one in found if one["severity"] == "warning"]
    return {
        "ended": min(job.end or 0.0 for job in newest.values()),
        "errors": len(errors),
        "warnings": len(warnings),
        "findings": [*errors, *warnings][:FINDINGS_LIMIT],
    }
