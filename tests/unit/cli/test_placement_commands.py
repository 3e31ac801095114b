import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import placement_clusters as clusters
import pytest

from ganeti.cli import hbal, hcheck, hinfo, hroller, hscan, hspace
from ganeti.placement.capacity import fill
from ganeti.placement.description import Instance
from ganeti.placement.load.text import format_cluster, parse
from ganeti.placement.places import Rules
from ganeti.placement.score import score
from ganeti.placement.state import State
from tests.unit.cli.fake_master import FakeMaster

Printed = pytest.CaptureFixture[str]
SMALL = Instance("small", 512, 1024, 1, template="plain", disks=(1024,))


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "cluster.data"
    path.write_text(format_cluster(clusters.cluster(5)))
    return str(path)


def test_hbal_shows_moves_commands_and_tables_and_saves(
    data: str, tmp_path: Path, capsys: Printed
) -> None:
    saved = tmp_path / "saved"
    assert hbal.main(["-t", data, "-l", "2", "-C", "-p", "--print-instances", f"-S{saved}"]) == 0
    out, err = capsys.readouterr()
    assert "Loaded 5 nodes, 50 instances" in out
    assert "Solution length=2" in out
    assert "  echo jobset 1, " in out
    assert "gnt-instance " in out
    assert "Final cluster status:" in err
    assert "Initial instance map:" in err
    balanced = State(parse(Path(f"{saved}.balanced").read_text()))
    assert f"to {score(balanced):.8f}" in out


def test_hbal_writes_its_commands_to_a_file(data: str, tmp_path: Path) -> None:
    path = tmp_path / "commands"
    assert hbal.main(["-t", data, "-l", "1", f"-C{path}"]) == 0
    assert "gnt-instance" in path.read_text()


def luxi_answers(master: FakeMaster, **more: Any) -> None:
    """The cluster of the benchmarks, as a master tells it; its instances have `more`."""
    cluster = clusters.cluster(5)
    rows: dict[str, list[dict[str, Any]]] = {
        "group": [{"name": "default", "uuid": clusters.GROUP}],
        "node": [
            {"name": node.name, "group.uuid": node.group, "mtotal": node.total_memory, "mnode": 0,
             "mfree": node.free_memory, "dtotal": node.total_disk, "dfree": node.free_disk,
             "ctotal": node.total_cpus, "ndp/spindle_count": 8}
            for node in cluster.nodes
        ],
        "instance": [
            {"name": one.name, "be/maxmem": one.memory, "be/vcpus": one.vcpus, "disk_usage": one.disk,
             "pnode": one.primary, "snodes": [one.secondary] if one.secondary else [],
             "disk_template": one.template, "status": "running", **more}
            for one in cluster.instances
        ],
    }  # fmt: skip

    def query(kind: str, fields: list[str], _filter: object) -> dict[str, object]:
        table = [[[0, row[f]] if f in row else [1, None] for f in fields] for row in rows[kind]]
        return {"fields": [], "data": table}

    master.replies["Query"] = query
    master.replies["QueryClusterInfo"] = {"tags": [], "master": "node0000"}


def test_hbal_submits_its_moves_as_jobs_that_wait_for_each_other(
    master: FakeMaster, capsys: Printed
) -> None:
    luxi_answers(master)
    master.job()
    assert hbal.main(["-L", "-X", "-l", "3", "--reason", "even"]) == 0
    jobs, key = master.args_of("SubmitManyJobs")
    assert key
    assert len(jobs) == 3
    assert {op["OP_ID"] for job in jobs for op in job} <= {
        *("OP_INSTANCE_MIGRATE", "OP_INSTANCE_REPLACE_DISKS"),
    }
    assert all(-3 < one[0] < 0 for job in jobs for one in job[0].get("depends") or [])
    assert jobs[0][0]["reason"][0][:2] == ["hbal", "even"]
    assert capsys.readouterr().out.count(": success") == 3


def test_a_failed_job_makes_hbal_fail(master: FakeMaster) -> None:
    luxi_answers(master)
    master.job(status="error")
    assert hbal.main(["-L", "-X", "-l", "1"]) == 1


def test_hbal_executes_only_over_luxi(data: str, capsys: Printed) -> None:
    assert hbal.main(["-t", data, "-X"]) != 0
    assert "-L" in capsys.readouterr().err


@pytest.mark.parametrize("tool", [hbal.main, hspace.main, hinfo.main, hcheck.main, hroller.main])
def test_exactly_one_source_is_wanted(
    tool: Callable[[list[str]], int], data: str, capsys: Printed
) -> None:
    assert tool([]) != 0
    assert "pass one of -t" in capsys.readouterr().err
    assert tool(["-t", data, "-I", data]) != 0
    assert "Only one of" in capsys.readouterr().err


@pytest.mark.requirement("S187")
def test_hspace_prints_keys_that_a_shell_reads(data: str, capsys: Printed) -> None:
    words = ["--disk-template=plain", "--tiered-alloc=20480m,4096m,2", "-l", "4"]
    assert hspace.main(["-t", data, "--machine-readable", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    keys = dict(line.split("=", 1) for line in lines)
    assert len(keys) == len(lines)
    assert (keys["HTS_OK"], keys["HTS_ALLOC_INSTANCES"], keys["HTS_INI_INST_CNT"]) == (
        "1",
        "4",
        "50",
    )
    assert keys["HTS_TSPEC"] == "'4096,20480,2,1=4'"


@pytest.mark.parametrize("policy", ["none", "failover"])
def test_hspace_counts_protected_instances(
    master: FakeMaster, capsys: Printed, policy: str
) -> None:
    luxi_answers(master, **{"be/recovery": policy, "be/recovery_priority": 50})
    words = ["-L", "--disk-template=plain", "--standard-alloc=1g,1g,1", "-l1"]
    assert hspace.main([*words, "--machine-readable"]) == 0
    keys = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert hspace.main(words) == 0
    out = capsys.readouterr().out
    if policy == "none":
        assert "HTS_PROTECTED_CNT" not in keys
        assert "protected" not in out
        return
    assert keys["HTS_PROTECTED_CNT"] == "50"
    nodes = keys["HTS_PROTECTED_NODES"].strip("'").split()
    assert (not nodes) == (keys["HTS_PROTECTED_UNPLACED"] == "0")
    lines = [line for line in out.splitlines() if "protected instances would" in line]
    assert [node in line for node, line in zip(nodes, lines, strict=True)] == [True] * len(nodes)
    assert nodes


def test_hspace_of_a_simulated_cluster_is_readable(capsys: Printed) -> None:
    words = [
        "--simulate",
        "p,3,1t,16g,8",
        "--disk-template",
        "plain",
        "--standard-alloc",
        "1g,1g,1",
    ]
    assert hspace.main([*words, "-l", "3"]) == 0
    out = capsys.readouterr().out
    assert "The cluster has 3 nodes and the following resources:\n  MEM 49152, DSK 3145728" in out
    assert "  -   3 instances allocated" in out


def test_hinfo_shows_what_the_score_is_made_of(data: str, capsys: Printed) -> None:
    assert hinfo.main(["-t", data, "-pname,pcnt"]) == 0
    out, err = capsys.readouterr()
    assert f"Cluster score: {score(State(clusters.cluster(5))):.8f}" in out
    assert " node0000" in err
    assert hinfo.main(["-t", data, "-pnonsense"]) != 0


def test_hcheck_names_the_fault(data: str, capsys: Printed) -> None:
    assert hcheck.main(["-t", data, "--machine-readable"]) == 0
    assert "HCHECK_INIT_CLUSTER_NEED_REBALANCE=0" in capsys.readouterr().out
    assert hcheck.main(["-t", data, "-O", "node0001", "--no-simulation"]) == 0
    assert "Cluster is not healthy: True" in capsys.readouterr().out
    assert hcheck.main(["-t", data, "-O", "node0001", "--machine-readable"]) == 1
    assert "HCHECK_FINAL_CLUSTER_OFFLINE_SEC=" in capsys.readouterr().out


def test_hroller_refuses_to_take_down_what_finds_no_room(data: str, capsys: Printed) -> None:
    full = Path(data).with_name("full.data")
    state = State(clusters.cluster(5))
    full.write_text(format_cluster(fill(state, SMALL, Rules(capacity=False)).state.described()))
    assert hroller.main(["-t", str(full)]) != 0
    err = capsys.readouterr().err
    assert "Error: Not enough capacity to move non-redundant instances: new-" in err
    assert "MiB of memory short" in err
    assert "--skip-non-redundant" in err
    assert hroller.main(["-t", data, "--ignore-non-redundant", "--no-headers"]) == 0
    names = capsys.readouterr().out.replace("\n", ",").strip(",").split(",")
    assert sorted(names) == [f"node{number:04}" for number in range(5)]


def test_hroller_shows_where_instances_are_meanwhile(data: str, capsys: Printed) -> None:
    assert hroller.main(["-t", data, "--print-moves", "--no-headers", "--one-step-only"]) == 0
    lines = capsys.readouterr().out.splitlines()
    down = {line for line in lines if not line.startswith(" ")}
    moves = [line for line in lines if line.startswith(" ")]
    places = dict(line.split() for line in moves)
    alone = {
        one.name for one in clusters.cluster(5).instances
        if one.template == "plain" and one.primary in down
    }  # fmt: skip
    assert set(places) == alone
    assert not down & set(places.values())


def test_hscan_saves_what_the_others_read(
    master: FakeMaster, tmp_path: Path, capsys: Printed
) -> None:
    luxi_answers(master)
    assert hscan.main(["-L", "-d", str(tmp_path)]) == 0
    assert "LOCAL" in capsys.readouterr().out
    assert hinfo.main(["-t", str(tmp_path / "LOCAL.data")]) == 0


def test_rapi_is_asked_by_https_only(capsys: Printed) -> None:
    assert hinfo.main(["-m", "http://127.0.0.1:1"]) != 0
    assert "RAPI requires https" in capsys.readouterr().err


def test_hscan_reports_a_cluster_that_does_not_answer(tmp_path: Path, capsys: Printed) -> None:
    assert hscan.main(["-d", str(tmp_path), "https://127.0.0.1:1"]) == 1
    assert "ERROR: cannot query 127.0.0.1:1" in capsys.readouterr().out


@pytest.mark.requirement("S181")
def test_hbal_takes_loads_from_a_file_of_reports(
    data: str, tmp_path: Path, capsys: Printed
) -> None:
    reports = tmp_path / "reports.json"
    load = {"name": "cpu-avg-load", "data": {"cpu_total": 50}}
    every = [{"node": f"node{number:04}", "reports": [load]} for number in range(5)]
    reports.write_text(json.dumps(every))
    assert hbal.main(["-t", data, "-l", "0"]) == 0
    before = capsys.readouterr().out
    assert hbal.main(["-t", data, "-l", "0", "--mond-data", str(reports)]) == 0
    assert capsys.readouterr().out != before


def test_a_static_node_memory_replaces_what_nodes_report(
    master: FakeMaster, capsys: Printed
) -> None:
    luxi_answers(master)
    memory = []
    for words in ((), ("--static-kvm-node-memory=700",), ("--static-kvm-node-memory=0",)):
        assert hinfo.main([f"-L{master.path}", "-pnmem", *words]) == 0
        rows = capsys.readouterr().err.split("Cluster status:")[1].split("\n\n")[0]
        memory.append(set(rows.split()[1:]))
    assert memory == [{"0"}, {"700"}, {"0"}]
    assert "FORCE_LUXI_SOCKET" not in os.environ


def test_hspace_equals_the_peer_without_countable_nodes(tmp_path: Path, capsys: Printed) -> None:
    path = tmp_path / "off.data"
    cluster = clusters.cluster(3)
    nodes = [msgspec.structs.replace(one, offline=True) for one in cluster.nodes]
    path.write_text(format_cluster(msgspec.structs.replace(cluster, nodes=nodes)))
    assert hspace.main(["-t", str(path), "--machine-readable"]) == 1
    out, err = capsys.readouterr()
    assert "HTS_ALLOC" not in out
    assert "Error: failure during allocation: No online nodes" in err
