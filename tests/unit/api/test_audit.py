import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.api.audit import OBJECTS_LIMIT, MasterAudit
from ganeti.api.luxi_methods import AUDITED
from ganeti.api.luxi_server import Caller
from ganeti.config.changes import HIDDEN, ChangedObject
from ganeti.model.backup_schedule import BackupSchedule
from ganeti.protocols.luxi import Answer, Request
from tests.support.predictable import FrozenClock
from tests.unit.api.masters import Master
from tests.unit.config.sample import sample_instance

CALLER = Caller(1000, 1000, 4711)
NOOP = {"OP_ID": "OP_TEST_DELAY", "duration": 1.0}
RENAME = {
    "OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "web1", "osparams_private": {"pw": "hunter2"}
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def audit(path: Path) -> MasterAudit:
    return MasterAudit(path, FrozenClock())


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("method", "args", "result", "path_", "jobs"),
    [
        ("SubmitJob", [[NOOP, RENAME]], 7, "TEST_DELAY(1.0), INSTANCE_SET_PARAMS(web1)", [7]),
        ("SubmitManyJobs", [[[NOOP], [NOOP]]], [[True, 8], [False, "no"]], "TEST_DELAY(1.0), TEST_DELAY(1.0)", [8]),
        ("CancelJob", ["9"], [True, "canceled"], "9", [9]),
        ("SetDrainFlag", [True], True, "True", []),
        ("ReplaceFilter", [None, 1, [], "ACCEPT", []], "uuid", "1 ACCEPT", []),
    ],
)  # fmt: skip
def test_each_request_is_one_audit_line(
    audit: MasterAudit, path: Path, method: str, args: Any, result: Any, path_: str, jobs: Any
) -> None:
    audit.asked(CALLER, Request(method, args), Answer(True, result))
    [found] = written(path)
    assert found.pop("time") > 0
    assert found == {
        "user": "uid 1000", "address": "pid 4711", "method": method, "path": path_,
        "status": "done", "jobs": jobs,
    }  # fmt: skip
    assert "hunter2" not in path.read_text()


@pytest.mark.parametrize("args", [[], [7], [[7]], [[{"OP_ID": "OP_X\x1b[2J"}]], [[[[]]]]])
@pytest.mark.parametrize("method", ["SubmitJob", "SubmitManyJobs", "CancelJob"])
def test_what_was_refused_is_recorded_whatever_it_was(
    audit: MasterAudit, path: Path, method: str, args: Any
) -> None:
    answer = Answer(False, ["OpPrereqError", ["the queue is drained", "wrong_state"]])
    audit.asked(CALLER, Request(method, args), answer)
    [found] = written(path)
    assert (found["status"], found["why"], found["jobs"]) == ("refused", "the queue is drained", [])
    assert "\x1b" not in found["path"]


def test_what_a_job_changed_is_recorded_without_secrets(audit: MasterAudit, path: Path) -> None:
    before = sample_instance(1)
    after = msgspec.structs.replace(
        before, hvparams={"boot_order": "disk"}, osparams_private={"pw": "hunter2"}, serial_no=9
    )
    audit.changed(7, [ChangedObject(before, after)])
    audit.changed(None, [ChangedObject(None, before), ChangedObject(after, None)])
    audit.changed(8, [ChangedObject(None, before)] * (OBJECTS_LIMIT + 3))
    first, second, third = written(path)
    assert (first["user"], first["jobs"], first["path"]) == (
        "job 7",
        [7],
        f"instance {before.name}",
    )
    assert first["objects"][0]["change"] == "changed"
    assert first["objects"][0]["differences"] == {
        "hvparams.boot_order": [None, "disk"], "osparams_private.pw": [None, HIDDEN],
    }  # fmt: skip
    assert second["user"] == "master"
    assert [one["change"] for one in second["objects"]] == ["added", "removed"]
    assert second["objects"][0]["differences"]["name"] == [None, before.name]
    assert second["objects"][1]["differences"]["osparams_private.pw"] == [HIDDEN, None]
    assert third["more_objects"] == 3
    assert "hunter2" not in path.read_text()


async def test_changing_requests_are_recorded_and_queries_are_not() -> None:
    master = Master()
    methods = master.methods()
    assert methods.names >= AUDITED
    for method, args in (
        ("SubmitJob", [[NOOP]]),
        ("SubmitJob", ["nonsense"]),
        ("QueryTags", ["cluster", ""]),
        ("SubmitJobAs", [{"user": "anna"}, [NOOP], "key"]),
        ("SetDrainFlag", [True]),
    ):
        await methods.answer(Request(method, args), CALLER)
    told = [(request.method, answer.success) for _, request, answer in master.audit.told]
    assert told == [("SubmitJob", True), ("SubmitJob", False), ("SetDrainFlag", True)]


def test_scheduled_backup_is_recorded_under_the_name_of_its_owner(
    audit: MasterAudit, path: Path
) -> None:
    schedule = BackupSchedule(uuid="u", name="nightly", calendar="daily", owner="rest:ann")
    audit.scheduled(schedule, "web1.example.com", 7)
    [found] = written(path)
    assert (found["user"], found["jobs"]) == ("rest:ann", [7])
    assert found["path"] == "schedule nightly, instance web1.example.com"
