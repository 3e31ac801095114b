import os
from pathlib import Path
from typing import Any

import pytest

from ganeti.api import luxi_methods
from ganeti.api.login_links import LINKS_LIMIT
from ganeti.api.luxi_server import Caller
from ganeti.api.rest_methods import MAY, SESSIONS_LIMIT
from ganeti.base.errors import JobQueueFull
from ganeti.jobs.pending_undo import PendingStep
from ganeti.model.job import UndoStep
from ganeti.model.names import JobStatus
from ganeti.protocols.luxi import Answer, Request
from ganeti.store.interface import Position
from tests.unit.api.masters import Master
from tests.unit.query.cluster import NODE_UUIDS, job, running

CALLER = Caller(uid=1000, gid=1000, pid=42)
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0, "reason": []}


async def ask(master: Master, method: str, *args: Any) -> Answer:
    return await master.methods().answer(Request(method, list(args)), CALLER)


async def result(master: Master, method: str, *args: Any) -> Any:
    answer = await ask(master, method, *args)
    assert answer.success, answer.result
    return answer.result


@pytest.fixture
def master() -> Master:
    return Master()


def test_all_methods_of_the_interface_exist(master: Master) -> None:
    wanted = (
        "SubmitJob SubmitManyJobs SubmitJobToDrainedQueue WaitForJobChange CancelJob ArchiveJob"
        " AutoArchiveJobs ChangeJobPriority Query QueryFields QueryJobs QueryInstances QueryNodes"
        " QueryGroups QueryNetworks QueryImages QueryExports QueryConfigValues QueryClusterInfo QueryTags"
        " SetDrainFlag SetWatcherPause QueryFilters ReplaceFilter DeleteFilter PickupJob"
    )
    assert set(wanted.split()) <= master.methods().names


@pytest.mark.requirement("A44", "S225")
async def test_the_user_of_the_rest_server_submits_only_jobs_of_its_users(master: Master) -> None:
    methods = master.methods(rest_uid=CALLER.uid)
    assert methods.names > MAY
    for name in sorted(methods.names - MAY):
        answer = await methods.answer(Request(name, []), CALLER)
        assert not answer.success
        assert f"may not call {name}" in answer.result[1][0]
    assert master.queue.submitted == []
    job = {**DELAY, "reason": []}
    who = {"user": "anna", "address": "192.0.2.1"}
    for_anna = await methods.answer(Request("SubmitJobAs", [who, [job], "key"]), CALLER)
    assert for_anna.success
    assert (await methods.answer(Request("QueryClusterInfo", []), CALLER)).success
    other = Caller(uid=CALLER.uid + 1, gid=1000, pid=42)
    assert (await methods.answer(Request("SubmitJob", [[job]]), other)).success


WRONG = {
    "OP_ID": "OP_CLUSTER_SET_PARAMS",
    "hvparams": {"kvm": {"kernel_pth": "/x"}},
    "reason": [],
}


async def as_anna(master: Master, *ops: dict[str, Any], key: str = "key") -> Any:
    who = {"user": "anna", "address": "192.0.2.1"}
    return await ask(master, "SubmitJobAs", who, list(ops), key)


async def test_wrong_value_of_a_remote_user_is_refused_before_there_is_a_job(
    master: Master,
) -> None:
    master.queue.busy = False
    answer = await as_anna(master, WRONG)
    assert answer.result[0] == "OpPrereqError"
    assert "hvparams.kvm.kernel_pth" in answer.result[1][0]
    assert master.queue.submitted == []
    assert await result(master, "SubmitJob", [WRONG]) == 1  # as upstream's master takes it


@pytest.mark.parametrize("is_busy", [True, False])
async def test_value_that_an_earlier_job_may_make_right_is_left_to_the_job(
    master: Master, *, is_busy: bool
) -> None:
    master.queue.busy = is_busy
    ops = [WRONG] if is_busy else [DELAY | {"reason": []}, WRONG]
    assert (await as_anna(master, *ops)).success
    depending = {**WRONG, "depends": [[1, ["success"]]]}
    assert (await as_anna(master, depending, key="other")).success


@pytest.mark.requirement("F16")
async def test_known_key_gives_its_job_despite_configuration_changes(
    master: Master,
) -> None:
    assert (await as_anna(master, WRONG)).result == 1
    master.queue.busy = False
    assert (await as_anna(master, WRONG)).result == 1


async def test_a_job_is_picked_up_without_doing_anything(master: Master) -> None:
    master.queue.live = [job(5)]
    assert await result(master, "PickupJob", 5) is None
    assert (await ask(master, "PickupJob", 6)).result[0] == "JobLost"


async def test_job_is_submitted_with_its_caller(master: Master) -> None:
    given = {**DELAY, "reason": [["gnt:client:gnt-debug", "delay", 7]]}
    assert await result(master, "SubmitJob", [given]) == 1
    [[op]] = master.queue.submitted
    assert [(source, text) for source, text, _when in op.reason] == [
        ("gnt:client:gnt-debug", "delay"),
        ("gnt:luxi", "uid 1000, pid 42"),
    ]


async def test_filters_are_made_and_deleted_at_once(master: Master) -> None:
    reasons = [["gnt:user", "why", 7]]
    assert await result(master, "ReplaceFilter", None, 1, [], "PAUSE", reasons) == "made"
    assert await result(master, "ReplaceFilter", "u1", 1, [], ["RATE_LIMIT", 3], []) == "u1"
    assert await result(master, "DeleteFilter", "u1") is None
    assert master.filters.calls == [
        (None, 1, [], "PAUSE", reasons),
        ("u1", 1, [], ["RATE_LIMIT", 3], []),
        ("u1",),
    ]
    assert await result(master, "QueryFilters", [], ["uuid", "action"]) == []
    assert not (await ask(master, "QueryFilters", ["no such"], ["uuid"])).success
    assert not (await ask(master, "DeleteFilter", 7)).success


@pytest.mark.requirement("F16")
async def test_a_submission_may_have_a_key(master: Master) -> None:
    for arguments in ([[DELAY]], [[DELAY], None], [[DELAY], "k1"]):
        await result(master, "SubmitJob", *arguments)
    assert master.queue.keys == [None, None, "k1"]
    assert await result(master, "SubmitManyJobs", [[DELAY]], "k2") == [[True, 4]]
    assert await result(master, "SubmitManyJobs", [[DELAY]]) == [[True, 5]]
    assert master.queue.batch_keys == ["k2", None]


@pytest.mark.parametrize("key", [7, True, ["k"], {}])
async def test_a_key_that_is_no_text_submits_nothing(master: Master, key: Any) -> None:
    answer = await ask(master, "SubmitJob", [DELAY], key)
    assert answer.result == "Failed to parse request: SubmitJob[1]: must be a string"
    assert master.queue.submitted == []


async def test_an_empty_job_is_a_job(master: Master) -> None:
    assert await result(master, "SubmitJob", []) == 1


async def test_many_jobs_say_which_were_accepted(master: Master) -> None:
    master.queue.refuse = {1: JobQueueFull("the queue is full")}
    assert await result(master, "SubmitManyJobs", [[DELAY], [DELAY], []]) == [
        [True, 1],
        [False, "the queue is full"],
        [True, 2],
    ]


@pytest.mark.requirement("A22")
@pytest.mark.parametrize(
    ("op", "part"),
    [
        ({"OP_ID": "OP_NO_SUCH"}, "OP_NO_SUCH"),
        ({"OP_ID": "__class__"}, "__class__"),
        ({"duration": 1}, "OP_ID"),
        ({**DELAY, "nosuch": 1}, "nosuch"),
        ({**DELAY, "__init__": 1}, "__init__"),
        ({**DELAY, "duration": "x"}, "jobs[1][0].duration"),
        ({**DELAY, "priority": 99}, "jobs[1][0].priority"),
        ({**DELAY, "depends": [["x", []]]}, "jobs[1][0].depends"),
        (None, "jobs[1][0]"),
        ([], "jobs[1][0]"),
    ],
)
async def test_a_malformed_opcode_refuses_the_whole_submission(
    master: Master, op: Any, part: str
) -> None:
    answer = await ask(master, "SubmitManyJobs", [[DELAY], [op]])
    assert not answer.success
    assert answer.result[0] == "OpPrereqError"
    assert part in answer.result[1][0]
    assert answer.result[1][1] == "wrong_input"
    assert master.queue.submitted == []


@pytest.mark.requirement("A21")
@pytest.mark.parametrize(
    "jobs",
    [
        [[]] * 100_000,
        [[DELAY] * 10_000],
        [[{**DELAY, "comment": "x" * 10 * 1024 * 1024}]],
        "x",
        [{}],
    ],
)
async def test_submissions_have_limits(master: Master, jobs: Any) -> None:
    answer = await ask(master, "SubmitManyJobs", jobs)
    assert (answer.success, answer.result[0]) == (False, "OpPrereqError")
    assert master.queue.submitted == []


async def test_a_drained_queue_takes_only_what_is_meant_for_it(master: Master) -> None:
    assert await result(master, "SetDrainFlag", True) is True
    answer = await ask(master, "SubmitJob", [DELAY])
    assert answer.result[0] == "JobQueueDrainError"
    assert await result(master, "SubmitJobToDrainedQueue", [DELAY]) == 1
    assert await result(master, "QueryConfigValues", ["drain_flag"]) == [True]


@pytest.mark.requirement("S192", "S195")
async def test_waiting_is_the_queues_business_and_bounded(master: Master) -> None:
    master.queue.live = [job(5, JobStatus.RUNNING)]
    waited = await result(master, "WaitForJobChange", 5, ["status"], ["queued"], 3, 100_000)
    assert waited == "nochange"
    assert master.queue.waited == [(5, ["running"], ["queued"], 3, luxi_methods.WAIT_LIMIT_S)]


async def test_news_of_a_job_come_with_its_log(master: Master) -> None:
    master.queue.live = [job(5, JobStatus.RUNNING)]
    master.queue.news = (["running"], [(1, (7, 8), "message", "hello")])
    found = await result(master, "WaitForJobChange", 5, ["status"], None, None, 60)
    assert found == [["running"], [(1, (7, 8), "message", "hello")]]
    assert master.queue.waited[0][3] == 0


async def test_an_ended_job_has_its_last_news_at_once(master: Master) -> None:
    log = [[(1, (7, 0), "message", "a"), (2, (8, 0), "message", "b")]]
    master.queue.archived = [job(5, JobStatus.ERROR, log=log)]
    args = (5, ["status"], ["error"])
    assert await result(master, "WaitForJobChange", *args, 1, 60) == [["error"], [log[0][1]]]
    assert await result(master, "WaitForJobChange", *args, 2, 60) == [["error"], []]
    assert master.queue.waited == []


async def test_end_of_a_silent_job_needs_no_task(master: Master) -> None:
    line = (1, (7, 0), "message", "a")
    master.queue.live = [job(5), job(6, JobStatus.RUNNING), job(7, log=[[line]])]

    def at_once(job_id: int, *fields: str) -> Any:
        request = Request("WaitForJobChange", [job_id, list(fields), None, None, 60])
        found = master.methods().answer_at_once(request, CALLER)
        return None if found is None else found.result

    assert at_once(5, "status", "id") == [["success", 5], []]
    assert at_once(5, "status") == await result(
        master, "WaitForJobChange", 5, ["status"], None, None, 60
    )
    for asked in ((6, "status"), (7, "status"), (8, "status"), (5, "status", "opresult")):
        assert at_once(*asked) is None


async def test_a_job_that_is_not_there_is_lost(master: Master) -> None:
    answer = await ask(master, "WaitForJobChange", 99, ["status"], None, None, 60)
    assert answer.result[0] == "JobLost"
    assert (await ask(master, "CancelJob", 99, False)).result[0] == "JobLost"


async def test_jobs_are_cancelled_archived_and_made_urgent(master: Master) -> None:
    master.queue.live = [job(5)]
    assert await result(master, "CancelJob", 5, False) == [True, "Job 5 canceled"]
    assert await result(master, "CancelJob", "5") == [True, "Job 5 canceled"]
    assert await result(master, "CancelJob", 5, True) == [True, "Job 5 killed"]
    assert await result(master, "ArchiveJob", 5) is True
    assert await result(master, "ArchiveJob", 6) is False
    assert await result(master, "AutoArchiveJobs", 21600, 89) == [21600, 89]
    assert (await result(master, "ChangeJobPriority", 5, -10))[0] is True


async def test_unknown_jobs_are_rows_of_nulls(master: Master) -> None:
    master.queue.live = [job(5)]
    found = await result(master, "QueryJobs", [99999, 5], ["id", "status", "opstatus"])
    assert found == [[99999, None, None], [5, "success", ["success"]]]


async def test_queries_have_the_form_of_the_original(master: Master) -> None:
    master.nodes.instances = {"node1": [running(1)]}
    found = await result(master, "Query", "instance", ["name", "status"], ["=", "name", "web1"])
    assert found["data"] == [[[0, "web1.example.com"], [0, "running"]]]
    assert found["fields"][0] == {
        "name": "name",
        "title": "Instance",
        "kind": "text",
        "doc": "Name of the instance",
    }
    assert await result(master, "Query", "job", ["id"]) == {
        "fields": [{"name": "id", "title": "ID", "kind": "number", "doc": "Number of the job"}],
        "data": [],
    }
    fields = await result(master, "QueryFields", "node", ["name", "nosuch"])
    assert [one["kind"] for one in fields["fields"]] == ["text", "unknown"]
    assert len((await result(master, "QueryFields", "node", None))["fields"]) > 40


async def test_the_old_queries_answer(master: Master) -> None:
    assert await result(master, "QueryInstances", ["web2"], ["name"], False) == [
        ["web2.example.com"]
    ]
    assert await result(master, "QueryGroups", [], ["name"], False) == [["default"], ["spare"]]
    assert await result(master, "QueryNodes", ["node1"], ["name", "powered"], False) == [
        ["node1.example.com", None]
    ]
    assert await result(master, "QueryNetworks", [], ["name"], False) == []
    assert await result(master, "QueryExports", ["node1"], False) == {
        "node1.example.com": ["web1.example.com"]
    }
    answer = await ask(master, "QueryInstances", ["nosuch"], ["name"], False)
    assert answer.result[0] == "OpPrereqError"
    assert answer.result[1][1] == "unknown_entity"


async def test_config_values_that_are_unknown_are_null(master: Master) -> None:
    names = ["cluster_name", "master_node", "watcher_pause", "nosuch"]
    found = await result(master, "QueryConfigValues", names)
    assert found == ["cluster.example.com", "node1.example.com", None, None]


async def test_the_watcher_can_be_paused(master: Master) -> None:
    assert await result(master, "SetWatcherPause", 5e9) == 5e9
    assert await result(master, "QueryConfigValues", ["watcher_pause"]) == [5e9]
    assert await result(master, "SetWatcherPause", None) is None


async def test_the_watcher_leaves_something_to_its_next_run(master: Master) -> None:
    assert await result(master, "QueryWatcherMemory") == ""
    assert await result(master, "SetWatcherMemory", '{"starts":{}}') is None
    assert await result(master, "QueryWatcherMemory") == '{"starts":{}}'
    for wrong in ("x" * (luxi_methods.WATCHER_MEMORY_LIMIT + 1), None, 7):
        answer = await ask(master, "SetWatcherMemory", wrong)
        assert not answer.success
    assert await result(master, "QueryWatcherMemory") == '{"starts":{}}'


async def test_cluster_info_has_what_the_h_tools_read(master: Master) -> None:
    found = await result(master, "QueryClusterInfo")
    assert found["name"] == "cluster.example.com"
    assert found["master"] == "node1.example.com"
    assert found["tags"] == ["lab"]
    assert found["uuid"] != NODE_UUIDS[0]
    assert set(found["ipolicy"]) == {
        "minmax", "std", "disk-templates", "vcpu-ratio", "spindle-ratio"
    }  # fmt: skip
    assert found["beparams"]["default"]["maxmem"] == 128
    assert found["hvparams"]["fake"] == {"migration_mode": "live"}
    assert found["degraded"] is False


@pytest.mark.parametrize(
    ("kind", "name", "tags"),
    [
        ("cluster", "", ["lab"]),
        ("cluster", None, ["lab"]),
        ("node", "node2", ["fast"]),
        ("instance", "web1", ["a"]),
        ("group", "default", []),
    ],
)
async def test_tags_are_returned(
    master: Master, kind: str, name: str | None, tags: list[str]
) -> None:
    assert await result(master, "QueryTags", kind, name) == tags


async def test_every_answer_reports_a_degraded_state(master: Master) -> None:
    master.config.degraded = True
    assert (await ask(master, "QueryClusterInfo")).degraded
    assert (await ask(master, "NoSuch")).degraded


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("NoSuch", []),
        ("__class__", []),
        ("SubmitJob", []),
        ("SubmitJob", [[], []]),
        ("CancelJob", [True]),
        ("CancelJob", [-1]),
        ("CancelJob", ["x"]),
        ("CancelJob", [2**70]),
        ("WaitForJobChange", [1, "status", None, None, 60]),
        ("WaitForJobChange", [1, ["status"], "x", None, 60]),
        ("WaitForJobChange", [1, ["status"], None, "x", 60]),
        ("Query", [7, [], None]),
        ("Query", ["node", [7], None]),
        ("QueryJobs", [{}, []]),
        ("SetDrainFlag", ["yes"]),
        ("AutoArchiveJobs", ["all", 1]),
    ],
)
async def test_wrong_arguments_are_answered_in_a_sentence(
    master: Master, method: str, args: list[Any]
) -> None:
    answer = await ask(master, method, *args)
    assert not answer.success
    assert answer.result.startswith("Failed to parse request: ")


async def test_a_backup_goes_to_an_absolute_path_and_only_for_root() -> None:
    master = Master()
    methods = master.methods()
    root = Caller(uid=0, gid=0, pid=1)
    answer = await methods.answer(Request("BackupState", ["/root/b"]), root)
    assert (answer.success, answer.result) == (True, Position(2, 7).as_int())
    assert master.backups.written == [Path("/root/b")]
    stranger = Caller(uid=os.geteuid() + 4711, gid=0, pid=1)
    for caller, path in ((stranger, "/root/b"), (root, "b"), (root, "/a\0b"), (root, 3)):
        assert not (await methods.answer(Request("BackupState", [path]), caller)).success
    assert len(master.backups.written) == 1
    assert methods.is_abandonable("BackupState")


@pytest.mark.requirement("G23")
async def test_backup_key_is_read_only_by_root_and_never_by_rest() -> None:
    master = Master()
    methods = master.methods()
    for uid, why in ((0, "no backup key is active"), (os.geteuid() + 4711, "only root")):
        caller = Caller(uid=uid, gid=0, pid=1)
        answer = await methods.answer(Request("ReadBackupKey", [None]), caller)
        assert not answer.success
        assert why in str(answer.result)
    assert "ReadBackupKey" in luxi_methods.AUDITED
    assert "ReadBackupKey" not in MAY


async def test_pending_undo_is_listed_and_abandoned(master: Master) -> None:
    master.queue.undo.pending.append(
        PendingStep(
            7, "TEST", UndoStep("x", {}), "why", ident="x-1", what="a disk", next_try_s=3.04
        )
    )
    assert await result(master, "QueryPendingUndo") == [
        {
            "job": 7,
            "summary": "TEST",
            "step": "x-1",
            "what": "a disk",
            "why": "why",
            "next_try_s": 3.0,
        }
    ]
    assert await result(master, "AbandonUndo", 7, "x-1") == "a disk"
    assert master.queue.undo.abandoned == [(7, "x-1")]


async def test_login_link_is_redeemed_once_and_never_made_by_the_rest_server() -> None:
    master = Master()
    secret = await result(master, "MakeLoginLink", "", "read", 60)
    assert await result(master, "RedeemLoginLink", secret) == {"user": "", "role": "read"}
    assert not (await ask(master, "RedeemLoginLink", secret)).success
    for wrong in (["", "", 60], ["anna", "read", 60], ["", "root", 60], ["", "read", "x"]):
        assert not (await ask(master, "MakeLoginLink", *wrong)).success
    methods = master.methods(rest_uid=CALLER.uid)
    refused = await methods.answer(Request("MakeLoginLink", ["", "write", 60]), CALLER)
    assert not refused.success


async def test_number_of_login_links_is_bounded() -> None:
    master = Master()
    first = master.links.make("anna", "", 60)
    for _ in range(LINKS_LIMIT):
        master.links.make("anna", "", 60)
    assert not (await ask(master, "RedeemLoginLink", first)).success


async def test_sessions_are_stored_and_bounded() -> None:
    master = Master()
    await result(master, "KeepSessions", "[]")
    assert await result(master, "QuerySessions") == "[]"
    assert not (await ask(master, "KeepSessions", "x" * (SESSIONS_LIMIT + 1))).success
