"""`harep` against a pretended master that keeps tags."""

from typing import Any

import pytest

from ganeti.cli.harep import main
from ganeti.placement.repair import PREFIX, parse_mark
from tests.unit.cli.fake_master import FakeMaster

Printed = pytest.CaptureFixture[str]
GROUP = "group-uuid"


class Cluster:
    """Two nodes, and an instance on the first; tags change as its jobs say."""

    def __init__(self, master: FakeMaster) -> None:
        self.master = master
        self.tags: dict[str, list[str]] = {"instance": [], "group": [], "cluster": []}
        self.node: dict[str, Any] = {"offline": True}
        self.template = "sharedfile"
        self.jobs: dict[int, list[dict[str, Any]]] = {}
        self.status: dict[int, str] = {}
        self.ends_as = "success"
        master.replies |= {
            "Query": self._query,
            "QueryClusterInfo": lambda: {"tags": self.tags["cluster"], "master": "b"},
            "SubmitJob": self._submit,
            "WaitForJobChange": lambda job, *_rest: [[self.status[job]], []],
            "QueryJobs": self._query_jobs,
        }

    def _query(self, kind: str, fields: list[str], _filter: object) -> dict[str, Any]:
        node = {"mtotal": 4096, "mfree": 4096, "ctotal": 4, "group.uuid": GROUP}
        rows: dict[str, list[dict[str, Any]]] = {
            "group": [{"name": "default", "uuid": GROUP, "tags": self.tags["group"]}],
            "node": [{"name": "a", **node, **self.node}, {"name": "b", **node}],
            "instance": [
                {"name": "web1", "be/maxmem": 128, "be/vcpus": 1, "pnode": "a",
                 "disk_template": self.template, "status": "running", "tags": self.tags["instance"]}
            ],
        }  # fmt: skip
        table = [[[0, row[f]] if f in row else [1, None] for f in fields] for row in rows[kind]]
        return {"fields": [], "data": table}

    def _submit(self, ops: list[dict[str, Any]], _key: object = None) -> int:
        job = len(self.jobs) + 1
        self.jobs[job] = ops
        self.status[job] = "success"
        if ops[0]["OP_ID"] == "OP_TAGS_SET":
            self.tags["instance"] += ops[0]["tags"]
        elif ops[0]["OP_ID"] == "OP_TAGS_DEL":
            self.tags["instance"] = [
                one for one in self.tags["instance"] if one not in ops[0]["tags"]
            ]
        else:
            self.status[job] = self.ends_as
        return job

    def _query_jobs(self, ids: list[int], fields: list[str]) -> list[Any]:
        row = {"opstatus": ["success"], "opresult": [None]}
        return [
            [{**row, "status": self.status[job]}[field] for field in fields]
            if job in self.status else None
            for job in ids
        ]  # fmt: skip

    @property
    def repairs(self) -> list[list[str]]:
        return [
            [op["OP_ID"] for op in ops]
            for ops in self.jobs.values()
            if not ops[0]["OP_ID"].startswith("OP_TAGS")
        ]

    @property
    def marks(self) -> list[tuple[str, str]]:
        found = [mark for mark in map(parse_mark, self.tags["instance"]) if mark is not None]
        return [(one.level.word, str(one.result or "pending")) for one in found]


@pytest.fixture
def cluster(master: FakeMaster) -> Cluster:
    return Cluster(master)


def counts(capsys: Printed) -> dict[str, str]:
    lines = capsys.readouterr().out.partition("Instance status count\n")[2].splitlines()[1:]
    return dict(line.split(": ") for line in lines)


def test_an_instance_is_led_from_broken_through_pending_to_healthy(
    cluster: Cluster, capsys: Printed
) -> None:
    cluster.tags["cluster"] = [f"{PREFIX}failover"]
    cluster.ends_as = "running"
    assert main([]) == 0
    assert counts(capsys) == {"Pending repair": "1"}
    assert cluster.repairs == [["OP_INSTANCE_FAILOVER"]]
    assert cluster.marks == [("failover", "pending")]
    assert main([]) == 0
    assert counts(capsys) == {"Pending repair": "1"}
    cluster.status[1] = "success"
    cluster.node["offline"] = False
    assert main([]) == 0
    assert counts(capsys) == {"Healthy": "1"}
    assert cluster.marks == [("failover", "success")]
    assert len(cluster.repairs) == 1
    before = dict(cluster.jobs)
    assert main([]) == 0
    assert cluster.jobs == before


def test_after_a_failure_nothing_is_done_until_its_tag_is_removed(
    cluster: Cluster, capsys: Printed
) -> None:
    cluster.tags["group"] = [f"{PREFIX}reinstall"]
    cluster.ends_as = "error"
    main([])
    capsys.readouterr()
    main([])
    assert counts(capsys) == {"Failure": "1"}
    assert cluster.marks == [("failover", "failure")]
    main([])
    assert len(cluster.repairs) == 1
    cluster.tags["instance"] = []
    cluster.ends_as = "success"
    main([])
    assert len(cluster.repairs) == 2


def test_what_is_not_allowed_is_remembered_once(cluster: Cluster, capsys: Printed) -> None:
    cluster.tags["instance"] = [f"{PREFIX}migrate"]
    assert main([]) == 0
    assert "only repairs up to migrate" in (out := capsys.readouterr().out)
    assert "Needs repair: 1" in out
    assert cluster.marks == [("failover", "enoperm")]
    before = dict(cluster.jobs)
    main([])
    assert (cluster.jobs, cluster.repairs) == (before, [])
    cluster.tags["instance"][0] = f"{PREFIX}failover"
    main([])
    assert cluster.marks == [("failover", "pending")]


@pytest.mark.parametrize("tags", [[], [f"{PREFIX}suspend"]])
def test_without_permission_nothing_is_done_or_written(
    cluster: Cluster, capsys: Printed, tags: list[str]
) -> None:
    cluster.tags["instance"] = tags
    cluster.tags["cluster"] = [f"{PREFIX}reinstall"] if tags else []
    assert main([]) == 0
    assert counts(capsys) == {"Needs repair": "1"}
    assert cluster.jobs == {}


def test_a_suspension_that_has_ended_is_removed(cluster: Cluster) -> None:
    cluster.tags["instance"] = [f"{PREFIX}suspend:1000"]
    main([])
    assert cluster.tags["instance"] == []


def test_an_administrator_may_ask_for_one_repair(cluster: Cluster) -> None:
    cluster.tags["instance"] = [f"{PREFIX}pending:failover:some-id:1700000000:"]
    main([])
    assert cluster.repairs == [["OP_INSTANCE_FAILOVER"]]
    main([])
    assert cluster.marks[0] == ("failover", "success")


def test_a_dry_run_reports_everything_and_does_nothing(cluster: Cluster, capsys: Printed) -> None:
    cluster.tags["cluster"] = [f"{PREFIX}reinstall"]
    assert main(["--dry-run"]) == 0
    assert "would run OP_INSTANCE_FAILOVER" in (out := capsys.readouterr().out)
    assert "Needs repair: 1" in out
    assert cluster.jobs == {}


def test_a_repair_waits_so_that_its_tag_is_written_at_once(cluster: Cluster) -> None:
    cluster.tags["cluster"] = [f"{PREFIX}reinstall"]
    main(["--job-delay=2.5", "--reason", "cron"])
    delay = cluster.jobs[1][0]
    assert (delay["OP_ID"], delay["duration"], delay["no_locks"]) == ("OP_TEST_DELAY", 2.5, True)
    assert cluster.jobs[1][1]["reason"][0][:2] == ["harep", "cron"]


def test_an_instance_with_contradicting_tags_does_not_keep_the_others(
    cluster: Cluster, capsys: Printed
) -> None:
    cluster.tags["instance"] = [f"{PREFIX}pending:failover:{one}:1700000000:7" for one in "xy"]
    assert main([]) == 1
    assert "web1: tags: two repairs are pending" in capsys.readouterr().err
    assert cluster.jobs == {}
