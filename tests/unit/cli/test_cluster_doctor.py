"""gnt-cluster doctor: before there is a cluster, and in one."""

import json
from pathlib import Path
from typing import Any

import pytest

from ganeti import ssconf
from ganeti.base.paths import Paths
from ganeti.cli.gnt_cluster import table
from ganeti.doctor.judge import AREAS
from tests.unit.cli.fake_master import FakeMaster, Run


def finding(host: str, level: str, text: str, command: str = "") -> dict[str, Any]:
    return {
        "host": host, "area": "time", "level": level, "code": "c", "text": text, "command": command,
    }  # fmt: skip


FOUND = [
    finding("node1", "ok", "the clock is right"),
    finding("node2", "error", "no program keeps the clock\x1b[2J right", "apt-get install chrony"),
    finding("", "warning", "they differ"),
]


@pytest.fixture
def member(tmp_path: Path) -> None:
    """This host is in a cluster."""
    ssconf.write_set(Paths(tmp_path), 1, {"cluster_name": "c"})


@pytest.mark.usefixtures("member")
def test_findings_of_a_cluster_are_grouped_by_host(master: FakeMaster, run: Run) -> None:
    master.job(result=FOUND)
    code, out, _err = run(table, "doctor", "node1", "node2")
    assert code == 1
    assert out == (
        "node1\n"
        "  ok      time  the clock is right\n"
        "\n"
        "node2\n"
        "  error   time  no program keeps the clock\\x1b[2J right\n"
        "                run: apt-get install chrony\n"
        "\n"
        "Nodes compared with each other\n"
        "  warning time  they differ\n"
        "\n"
        "1 error, 1 warning\n"
    )
    (ops, *_key) = master.args_of("SubmitJob")
    assert (ops[0]["OP_ID"], ops[0]["nodes"]) == ("OP_CLUSTER_DOCTOR", ["node1", "node2"])


@pytest.mark.usefixtures("member")
def test_cluster_without_errors_succeeds(master: FakeMaster, run: Run) -> None:
    master.job(result=[FOUND[0], FOUND[2]])
    code, out, _err = run(table, "doctor", "--json")
    assert (code, json.loads(out)) == (0, [FOUND[0], FOUND[2]])


@pytest.mark.parametrize("words", [[], ["--local"]])
def test_host_outside_of_a_cluster_is_examined_without_a_master(run: Run, words: list[str]) -> None:
    code, out, _err = run(table, "doctor", "--json", *words)
    found = json.loads(out)
    assert {one["area"] for one in found} == set(AREAS)
    assert {one["host"] for one in found} == {"node1.example.com"}
    assert code == int(any(one["level"] == "error" for one in found))
    assert run(table, "doctor")[1].startswith("This host is not in a cluster.\nnode1.example.com\n")


@pytest.mark.usefixtures("member")
def test_member_is_examined_alone_on_request(run: Run) -> None:
    """There is no master: the command would fail if it asked one."""
    code, out, _err = run(table, "doctor", "--local")
    assert code in {0, 1}
    assert out.startswith("node1.example.com\n")
