import io
from typing import Any

import pytest

from ganeti.base.errors import JobLost, JobQueueDrained, NotMaster
from ganeti.cli import jobs as cli_jobs
from ganeti.cli.gnt_debug import table as gnt_debug
from ganeti.cli.gnt_instance.table import table as gnt_instance
from ganeti.cli.gnt_job import table as gnt_job
from ganeti.clients import luxi
from tests.unit.cli.fake_master import FakeMaster, Run, rows_of


def test_a_job_is_submitted_followed_and_its_log_shown(master: FakeMaster, run: Run) -> None:
    master.job("* one", " - INFO: two")
    code, out, err = run(gnt_debug, "delay", "0.01")
    assert (code, err) == (0, "")
    assert out == "Tue Nov 14 22:13:21 2023 * one\nTue Nov 14 22:13:22 2023  - INFO: two\n"
    [op] = master.args_of("SubmitJob")[0]
    reason = op.pop("reason")
    assert op == {
        "OP_ID": "OP_TEST_DELAY",
        "duration": 0.01,
        "on_master": True,
        "on_nodes": [],
        "on_node_uuids": None,
        "repeat": 0,
        "interruptible": False,
        "no_locks": False,
        "dry_run": False,
        "debug_level": 0,
        "priority": 0,
        "depends": None,
        "comment": None,
    }
    assert [entry[:2] for entry in reason] == [["gnt:client:gnt-debug", "delay"]]
    first = next(args for method, args in master.requests if method == "WaitForJobChange")
    assert first == [7, ["status"], None, None, 60]


def test_common_options_reach_the_opcode(master: FakeMaster, run: Run) -> None:
    master.job()
    run(gnt_debug, "delay", "0", "--priority=high", "--dry-run", "--reason", "rate-limit:2:x", "-d")
    [op] = master.args_of("SubmitJob")[0]
    assert (op["priority"], op["dry_run"], op["debug_level"]) == (-10, True, 1)
    assert [entry[:2] for entry in op["reason"]] == [
        ["gnt:user", "rate-limit:2:x"],
        ["gnt:client:gnt-debug", "delay"],
    ]


@pytest.mark.requirement("F16")
def test_a_submission_whose_line_broke_is_repeated_with_its_key(
    master: FakeMaster, run: Run
) -> None:
    master.job()
    answers = iter([ConnectionResetError(), NotMaster("the master daemon stops"), 7])

    def answer(*_args: Any) -> Any:
        said = next(answers)
        if isinstance(said, OSError):
            raise said  # the fake hangs up
        return said

    master.replies["SubmitJob"] = answer
    assert run(gnt_debug, "delay", "1", "--submit") == (0, "JobID: 7\n", "")
    asked = [args for method, args in master.requests if method == "SubmitJob"]
    assert len(asked) == 3
    assert asked[0] == asked[1] == asked[2]
    master.replies["SubmitJob"] = 8
    run(gnt_debug, "delay", "1", "--submit")
    keys = {args[1] for method, args in master.requests if method == "SubmitJob"}
    assert len(keys) == 2


@pytest.mark.requirement("F16")
def test_a_submission_without_a_key_reports_an_unknown_outcome(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_jobs, "RETRY_LIMIT_S", 0.0)

    def answer(*_args: Any) -> Any:
        if len(asked()) > 1:
            return NotMaster("the master daemon stops")
        raise ConnectionResetError

    def asked() -> list[str]:
        return [method for method in master.methods() if method == "SubmitJob"]

    master.replies["SubmitJob"] = answer
    code, out, err = run(gnt_debug, "delay", "1", "--submit")
    assert (code, out) == (1, "")
    assert "during SubmitJob" in err
    assert "the outcome is unknown" in err
    assert len(asked()) == 2


def test_a_submission_that_is_refused_is_not_repeated(master: FakeMaster, run: Run) -> None:
    master.replies["SubmitJob"] = JobQueueDrained("the queue is drained")
    assert run(gnt_debug, "delay", "1", "--submit")[0] == 1
    assert master.methods() == ["SubmitJob"]


def test_submit_prints_the_id_and_does_not_wait(master: FakeMaster, run: Run) -> None:
    master.job(job_id=42)
    assert run(gnt_debug, "delay", "1", "--submit") == (0, "JobID: 42\n", "")
    assert master.methods() == ["SubmitJob"]


def test_print_jobid_prints_it_first(master: FakeMaster, run: Run) -> None:
    master.job("hello")
    assert run(gnt_debug, "delay", "1", "--print-jobid")[1].startswith("7\nTue Nov 14")


def test_a_script_that_asks_for_the_bare_id_reads_nothing_else(
    master: FakeMaster, run: Run
) -> None:
    master.job()
    both = (0, "7\n", "JobID: 7\n")
    assert run(gnt_debug, "delay", "1", "--print-jobid", "--submit") == both
    assert run(gnt_debug, "delay", "1", "--submit") == (0, "JobID: 7\n", "")


@pytest.mark.requirement("S182", "S237")
def test_a_failed_jobs_error_is_shown_as_if_it_were_ours(master: FakeMaster, run: Run) -> None:
    text = "Can't compute nodes using iallocator 'hail': no node has enough memory"
    master.job(result=["OpPrereqError", [text, "insufficient_resources"]], status="error")
    code, _out, err = run(gnt_instance, "add", "-t", "diskless", "-o", "noop", "web1")
    assert code == 1
    assert err == (
        "Failure: prerequisites not met for this operation:\n"
        f"error type: insufficient_resources, error details:\n{text}\n"
    )


@pytest.mark.requirement("S160")
def test_the_chosen_nodes_are_shown(master: FakeMaster, run: Run) -> None:
    line = " - INFO: Selected nodes for instance web1 via iallocator hail: node2"
    master.job(line, result=["node2"])
    code, out, _err = run(gnt_instance, "add", "-t", "diskless", "-o", "x", "-I", "hail", "web1")
    assert code == 0
    assert line in out


@pytest.mark.parametrize(
    ("result", "status", "text"),
    [
        ("just words", "error", "job 7 failed: just words"),
        (["OpExecError", ["it broke"]], "error", "command execution error:\nit broke"),
        (["SomeError", ["a", 1]], "error", "Failure: a, 1"),
        (None, "canceled", "job 7 was canceled"),
    ],
)
def test_every_end_of_a_job_has_words(
    master: FakeMaster, run: Run, result: Any, status: str, text: str
) -> None:
    master.job(result=result, status=status)
    code, _out, err = run(gnt_debug, "delay", "1")
    assert code == 1
    assert text in err


def test_several_instances_are_started_by_one_submission(master: FakeMaster, run: Run) -> None:
    master.job()
    master.replies["QueryInstances"] = [["a.example.com"], ["b.example.com"]]
    code, out, _err = run(gnt_instance, "start", "a", "b", "-H", "acpi=false")
    assert code == 0
    assert out == (
        "Submitted jobs 7, 8\n"
        "Waiting for job 7 for a.example.com ...\n"
        "Waiting for job 8 for b.example.com ...\n"
        "Instance      Job Result\n"
        "a.example.com 7   success\n"
        "b.example.com 8   success\n"
    )
    [jobs, key] = master.args_of("SubmitManyJobs")
    assert key
    assert [op["instance_name"] for [op] in jobs] == ["a.example.com", "b.example.com"]
    assert jobs[0][0]["OP_ID"] == "OP_INSTANCE_STARTUP"
    assert jobs[0][0]["hvparams"] == {"acpi": "false"}
    assert [entry[:2] for entry in jobs[0][0]["reason"]] == [["gnt:client:gnt-instance", "startup"]]


@pytest.mark.requirement("F16")
def test_a_batch_whose_answer_is_lost_is_submitted_again_with_its_key(
    master: FakeMaster, run: Run
) -> None:
    master.job()
    master.replies["QueryInstances"] = [["a"], ["b"]]
    submit, broken = luxi.LuxiClient.submit_many_jobs, [True, True]

    def lose(self: luxi.LuxiClient, *args: Any) -> Any:
        answer = submit(self, *args)
        if broken:
            broken.pop()
            self.close()
            raise luxi.ConnectionBrokenError("it hung up")
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(luxi.LuxiClient, "submit_many_jobs", lose)
        assert run(gnt_instance, "shutdown", "a", "b")[0] == 0
    given = [args for method, args in master.requests if method == "SubmitManyJobs"]
    assert len(given) == 3
    assert len({args[1] for args in given}) == 1
    assert given[0] == given[2]


def test_one_that_was_refused_does_not_stop_the_others(master: FakeMaster, run: Run) -> None:
    master.job()
    master.replies["QueryInstances"] = [["a"], ["b"]]
    master.replies["SubmitManyJobs"] = [[False, "the queue is full"], [True, 8]]
    code, out, err = run(gnt_instance, "shutdown", "a", "b")
    assert code == 1
    assert "Failed to submit job for a: the queue is full" in err
    assert out == (
        "Waiting for job 8 for b ...\n"
        "Instance Job Result\n"
        "a        -   not submitted\n"
        "b        8   success\n"
    )


def test_an_interrupt_leaves_the_job_and_reports_how_to_continue(
    master: FakeMaster, run: Run
) -> None:
    master.job()

    def interrupted(*_args: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(luxi.LuxiClient, "wait_for_job", interrupted)
        code, _out, err = run(gnt_debug, "delay", "1")
    assert code == 1
    assert "'gnt-job watch 7'" in err
    assert "CancelJob" not in master.methods()


@pytest.mark.requirement("F2")
def test_a_master_that_dies_meanwhile_leaves_who_waits_with_the_number_of_the_job(
    master: FakeMaster, run: Run
) -> None:
    master.job()

    def broken(*_args: Any) -> Any:
        raise ConnectionResetError

    master.replies["WaitForJobChange"] = broken
    code, _out, err = run(gnt_debug, "delay", "1")
    assert code == 1
    assert "Job 7 was accepted: 'gnt-job watch 7' shows its end" in err
    assert "broke during WaitForJobChange" in err


def test_a_wait_without_news_is_explained_once(master: FakeMaster, run: Run) -> None:
    master.job()
    answers = iter(["nochange", "nochange", [["success"], []]])
    master.replies["WaitForJobChange"] = lambda *_args: next(answers)
    rows = iter([["waiting", "node/u1, held by job 3"], ["success", ["success"], [None]]])
    master.replies["QueryJobs"] = lambda *_args: [next(rows)]
    code, _out, err = run(gnt_debug, "delay", "1")
    assert code == 0
    assert err == "Job 7 is waiting: node/u1, held by job 3\n"


# --- gnt-job ---


def rows_around(*jobs: tuple[Any, ...]) -> dict[str, Any]:
    return {"data": [[[0, value] for value in row] for row in jobs]}


def test_watch_follows_a_job(master: FakeMaster, run: Run) -> None:
    master.job("hello")
    master.replies["Query"] = rows_around()
    code, out, _err = run(gnt_job, "watch", "7")
    assert code == 0
    assert out == (
        "Output from job 7 follows\n--------------------\nTue Nov 14 22:13:21 2023 hello\n"
    )


def test_watch_names_the_jobs_around_it_and_how_far_it_is(master: FakeMaster, run: Run) -> None:
    master.job("hello")
    progress = {"text": "disk 0", "percent": 37.0, "rate": 1.0, "left_s": 23.0}
    answers = iter([
        rows_around(
            (7, "waiting", ["A"], [3, 4], "waiting for lock x, held by job 2", progress),
            (8, "queued", ["B"], [7], None, None),
        ),
        rows_around((4, "running", ["C", "D"], [], None, None)),
    ])  # fmt: skip
    master.replies["Query"] = lambda *_args: next(answers)
    code, out, _err = run(gnt_job, "watch", "7")
    assert code == 0
    assert out.splitlines()[2:7] == [
        "After job 3 (archived)", "After job 4 (running): C, D", "Before job 8 (queued): B",
        "Job 7 is waiting for lock x, held by job 2", "disk 0: 37.0%, 23 s left",
    ]  # fmt: skip


def test_watch_of_a_job_that_is_gone_reports_it(master: FakeMaster, run: Run) -> None:
    master.replies["Query"] = rows_around()
    master.replies["WaitForJobChange"] = JobLost("there is no job 9")
    code, _out, err = run(gnt_job, "watch", "9")
    assert code == 1
    assert "there is no job 9" in err


@pytest.mark.parametrize(("status", "code"), [("success", 0), ("error", 1), ("canceled", 1)])
def test_wait_prints_nothing_and_answers_by_its_exit_code(
    master: FakeMaster, run: Run, status: str, code: int
) -> None:
    master.job("noise", status=status)
    assert run(gnt_job, "wait", "7") == (code, "", "")


def test_cancel_reports_what_became_of_each(master: FakeMaster, run: Run) -> None:
    master.replies["CancelJob"] = lambda job_id, _kill: [job_id == 1, f"about job {job_id}"]
    assert run(gnt_job, "cancel", "1", "2") == (1, "about job 1\nabout job 2\n", "")


def test_a_running_job_is_killed_only_if_that_is_confirmed(master: FakeMaster, run: Run) -> None:
    master.replies["CancelJob"] = lambda job_id, kill: [True, f"job {job_id} {kill}"]
    code, _out, err = run(gnt_job, "cancel", "--kill", "1")
    assert code == 1
    assert "pass --yes-do-it to confirm" in err
    assert master.requests == []
    assert run(gnt_job, "cancel", "--kill", "--yes-do-it", "1") == (0, "job 1 True\n", "")


def test_cancel_by_state_asks_first(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    master.replies["QueryJobs"] = [[1, "queued"], [2, "running"], [3, "waiting"]]
    master.replies["CancelJob"] = lambda job_id, _kill: [True, f"job {job_id}"]
    code, _out, err = run(gnt_job, "cancel", "--pending")
    assert code == 13
    assert "Cancel 2 jobs?" in err
    assert run(gnt_job, "cancel", "--pending", "-f")[1] == "job 1\njob 3\n"


def test_priorities_change_by_number_or_by_state(master: FakeMaster, run: Run) -> None:
    master.replies["QueryJobs"] = [[1, "queued"], [2, "running"], [3, "waiting"]]
    master.replies["ChangeJobPriority"] = lambda job_id, priority: [
        job_id < 9,
        f"{job_id} {priority}",
    ]
    words = ["change-priority", "--priority=high"]
    assert run(gnt_job, *words, "2", "9") == (1, "2 -10\n9 -10\n", "")
    assert run(gnt_job, *words, "--waiting", "-f") == (0, "3 -10\n", "")
    assert run(gnt_job, *words, "--queued", "--waiting", "-f", "1")[1] == "1 -10\n3 -10\n"
    assert run(gnt_job, *words)[0] == 1
    assert run(gnt_job, "change-priority", "1")[0] == 2


def test_archive_and_autoarchive(master: FakeMaster, run: Run) -> None:
    master.replies["ArchiveJob"] = lambda job_id: job_id == 1
    assert run(gnt_job, "archive", "1") == (0, "", "")
    assert run(gnt_job, "archive", "2")[0] == 1
    master.replies["AutoArchiveJobs"] = [5, 0]
    assert run(gnt_job, "autoarchive", "6h")[1] == "Archived 5 jobs, 0 unchecked left\n"
    assert run(gnt_job, "autoarchive", "soon")[0] == 1
    assert master.args_of("AutoArchiveJobs") == [6 * 3600, 3600]


def test_info_shows_opcodes_results_and_logs(master: FakeMaster, run: Run) -> None:
    op = {"OP_ID": "OP_TEST_DELAY", "duration": 1.0}
    log = [[1, [1_700_000_001, 0], "message", "hello"]]
    moment = [1_700_000_000, 5]
    master.replies["QueryPendingUndo"] = []
    job = {
        "id": 7, "status": "success", "priority": 0, "received_ts": moment,
        "start_ts": [1_700_000_001, 500_005], "end_ts": [1_700_000_002, 5], "ops": [op],
        "opstatus": ["success"], "opresult": [None], "oplog": [log], "opstart": [moment],
        "opexec": [None], "opend": [None],
    }  # fmt: skip
    master.replies["QueryJobs"] = rows_of(job, {"id": 9})
    code, out, err = run(gnt_job, "info", "7", "9")
    assert (code, err) == (0, "")
    assert out == (
        "- Job ID: 7\n"
        "  Status: success\n"
        "  Priority: 0\n"
        "  Received:         2023-11-14 22:13:20.000005\n"
        "  Processing start: 2023-11-14 22:13:21.500005 (delta 1.500000s)\n"
        "  Processing end:   2023-11-14 22:13:22.000005 (delta 0.500000s)\n"
        "  Total processing time: 2.000000 seconds\n"
        "  Opcodes: \n"
        "    - Opcode: OP_TEST_DELAY\n"
        "      Status: success\n"
        "      Processing start: 2023-11-14 22:13:20.000005\n"
        "      Execution start:  N/A\n"
        "      Processing end:   N/A\n"
        "      Input fields: \n"
        "        duration: 1\n"
        "      Result: None\n"
        "      Execution log: \n"
        "        - 1:22:13:21:message hello\n"
        "- Job ID 9 not found\n"
    )


PENDING = {
    "job": 7, "summary": "INSTANCE_CREATE(web1)", "step": "remove_disk-12345678",
    "what": "remove disk of web1 on node2 (/srv/x)", "why": "node2 does not answer", "next_try_s": 12.4,
}  # fmt: skip


def test_what_could_not_be_undone_is_listed_shown_and_abandoned(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    master.replies["QueryPendingUndo"] = [PENDING]
    master.replies["AbandonUndo"] = "remove disk of web1 on node2 (/srv/x)"
    _code, out, _err = run(gnt_job, "pending-undo", "--separator", "|")
    assert out.splitlines()[1] == (
        "7|remove_disk-12345678|in 12 s|remove disk of web1 on node2 (/srv/x)|node2 does not answer"
    )
    master.replies["QueryJobs"] = [[7, "error", 0, *[None] * 4, *[[]] * 7]]
    assert "Pending undo: \n    - Step: remove_disk-12345678\n" in run(gnt_job, "info", "7")[1]
    words = ("abandon-undo", "7", "remove_disk-12345678")
    assert run(gnt_job, *words)[0] == 13
    assert "AbandonUndo" not in master.methods()
    code, out, _err = run(gnt_job, *words, "-f")
    assert (code, out) == (
        0,
        "Abandoned; this remains: remove disk of web1 on node2 (/srv/x)\n",
    )
    assert master.args_of("AbandonUndo") == [7, "remove_disk-12345678"]
