"""`hsqueeze`, and `htools` that chooses among the placement commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from ganeti.cli import htools, manual
from ganeti.cli.hsqueeze import main
from ganeti.placement.load.text import format_cluster, parse
from tests.unit.cli.fake_master import FakeMaster
from tests.unit.placement.test_squeeze import POLICY, a_cluster

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def idle(tmp_path: Path) -> str:
    path = tmp_path / "idle.data"
    path.write_text(format_cluster(a_cluster([2, 1])))
    return str(path)


def test_the_nodes_their_commands_and_the_state_afterwards(
    idle: str, tmp_path: Path, capsys: Printed
) -> None:
    assert main(["-t", idle, "-v", "-C", f"-S{tmp_path / 'saved'}"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:4] == [
        "Offline candidates: node1",
        "Online candidates: ",
        "'Nodes to offline'",
        "node1",
    ]
    assert [line.strip() for line in out if "gnt-" in line] == [
        "gnt-instance migrate -f -n node0 inst1-0",
        "gnt-node add-tags node1 htools:standby:auto",
        "gnt-node modify --offline=yes node1",
        "gnt-node power -f off node1",
    ]
    squeezed = parse((tmp_path / "saved.squeezed").read_text())
    assert {one.primary for one in squeezed.instances} == {"node0"}
    assert main(["-t", idle, "--no-headers", "--target-resources=14"]) == 0
    assert capsys.readouterr().out == ""


def test_too_little_room_is_reported(tmp_path: Path, capsys: Printed) -> None:
    path = tmp_path / "full.data"
    path.write_text(format_cluster(a_cluster([7, 7, 0], offline=1)))
    script = tmp_path / "commands"
    assert main(["-t", str(path), "--minimal-resources=12", f"-C{script}"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == ["'Nodes to online'", "node2"]
    assert "not yield enough" in err
    power, back = (line.strip() for line in script.read_text().splitlines() if "gnt-node" in line)
    assert power == "gnt-node power -f on node2"
    assert back == "gnt-node modify --offline=no node2"


def test_too_little_room_is_part_of_the_output_with_verbose(
    tmp_path: Path, capsys: Printed
) -> None:
    path = tmp_path / "full.data"
    path.write_text(format_cluster(a_cluster([7, 7, 0], offline=1)))
    assert main(["-t", str(path), "--minimal-resources=12", "-v"]) == 0
    assert "Onlining all nodes will not yield enough capacity" in capsys.readouterr().out


def luxi_answers(master: FakeMaster) -> None:
    cluster = a_cluster([2, 1])
    rows: dict[str, list[dict[str, Any]]] = {
        "group": [{"name": "default", "uuid": cluster.groups[0].uuid, "ipolicy": POLICY}],
        "node": [
            {"name": one.name, "group.uuid": one.group, "mtotal": one.total_memory, "mnode": 0,
             "mfree": one.free_memory, "dtotal": one.total_disk, "dfree": one.free_disk,
             "ctotal": one.total_cpus} for one in cluster.nodes
        ],
        "instance": [
            {"name": one.name, "be/maxmem": one.memory, "be/vcpus": one.vcpus, "disk_usage": 0,
             "pnode": one.primary, "disk_template": one.template, "status": "running"}
            for one in cluster.instances
        ],
    }  # fmt: skip

    def query(kind: str, fields: list[str], _filter: object) -> dict[str, object]:
        table = [[[0, row[f]] if f in row else [1, None] for f in fields] for row in rows[kind]]
        return {"fields": [], "data": table}

    master.replies["Query"] = query
    master.replies["QueryClusterInfo"] = {"tags": [], "master": "node0", "ipolicy": POLICY}


def submitted(master: FakeMaster) -> list[list[list[str]]]:
    return [
        [[op["OP_ID"] for op in job] for job in args[0]]
        for method, args in master.requests
        if method == "SubmitManyJobs"
    ]


def test_instances_leave_before_the_node_is_tagged_and_marked_offline(master: FakeMaster) -> None:
    luxi_answers(master)
    master.job()
    assert main(["-L", "-X"]) == 0
    assert submitted(master) == [
        [["OP_INSTANCE_MIGRATE"]],
        [["OP_TAGS_SET"]],
        [["OP_NODE_SET_PARAMS"]],
    ]


def test_a_node_whose_instances_did_not_leave_is_not_marked_offline(
    master: FakeMaster, capsys: Printed
) -> None:
    luxi_answers(master)
    master.job(status="error")
    assert main(["-L", "-X"]) == 1
    assert submitted(master) == [[["OP_INSTANCE_MIGRATE"]]]
    assert "moving instances: job 7: error" in capsys.readouterr().err


def test_jobs_need_a_master(idle: str, capsys: Printed) -> None:
    assert main(["-t", idle, "-X"]) == 1
    assert "-L" in capsys.readouterr().err


def test_htools_is_the_command_that_it_is_called_by_or_that_a_variable_names(
    idle: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HTOOLS", raising=False)
    assert htools.main(["/usr/bin/hsqueeze", "-t", idle]) == 0
    assert "'Nodes to offline'" in capsys.readouterr().out
    monkeypatch.setenv("HTOOLS", "hinfo")
    assert htools.main(["/usr/bin/hsqueeze", "-t", idle]) == 0
    assert "Loaded 2 nodes, 3 instances" in capsys.readouterr().out
    for role in ("htools", "", "../hinfo"):
        monkeypatch.setenv("HTOOLS", role)
        assert htools.main(["htools"]) == 1
        assert f"Unrecognised personality {role!r}" in capsys.readouterr().err


def test_htools_knows_all_placement_commands() -> None:
    assert set(manual.TOOLS) == set(htools.ROLES)


@pytest.mark.parametrize("name", sorted(htools.ROLES))
def test_completion_gets_every_option_with_its_kind(name: str, capsys: Printed) -> None:
    tool = manual.tool_of(name)
    with pytest.raises(SystemExit) as end:
        tool.run(["--help-completion"])
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(tool.options) + 3 + len(tool.arguments)
    kinds = dict(line.split(" ", 1) for line in lines[: len(tool.options)])
    assert all(kinds[",".join(one.flags)] for one in tool.options)


def test_kinds_are_the_words_that_ganeti_s_completion_knows(capsys: Printed) -> None:
    kinds: dict[str, str] = {}
    for name in ("hbal", "hail"):
        with pytest.raises(SystemExit):
            manual.tool_of(name).run(["--help-completion"])
        lines = capsys.readouterr().out.splitlines()
        kinds |= dict(line.split(" ", 1) for line in lines)
    wanted = {
        "-t,--text-data": "file", "-X,--exec": "none", "-p,--print-nodes": "none",
        "-l,--max-length": "integer", "--min-disk": "float", "-O,--offline": "onenode",
        "-G,--group": "onegroup", "--mond": "choices=yes,no", "-L,--luxi": "file",
        "--exclusion-tags": "string", "-h,--help": "none",
    }  # fmt: skip
    assert {flags: kinds.get(flags) for flags in wanted} == wanted, json.dumps(kinds, indent=1)
