"""gnt-group, and the commands that ask allocators about the whole cluster: what they submit and print."""

import json
from pathlib import Path
from typing import Any

import pytest

from ganeti.cli.gnt_cluster import table as gnt_cluster
from ganeti.cli.gnt_group import table as gnt_group
from ganeti.cli.gnt_instance import table as gnt_instance
from ganeti.cli.output import tree_lines
from ganeti.cli.policy_options import policy_tree
from tests.unit.cli.fake_master import FakeMaster, Run


def submitted(master: FakeMaster) -> dict[str, Any]:
    """The only opcode of the only job."""
    [op] = master.args_of("SubmitJob")[0]
    assert isinstance(op, dict)
    return op


@pytest.mark.requirement("S235")
def test_a_group_is_made_with_its_policy(master: FakeMaster, run: Run) -> None:
    master.job()
    words = [
        "--alloc-policy=last_resort", "--node-parameters=spindle_count=3", "-D", "file:a=1",
        "--ipolicy-std-specs=memory-size=1g,cpu-count=2", "--ipolicy-vcpu-ratio=8",
        "--ipolicy-disk-templates=file,sharedfile", "--ipolicy-spindle-ratio=default",
    ]  # fmt: skip
    assert run(gnt_group, "add", *words, "rack2")[0] == 0
    op = submitted(master)
    assert (op["OP_ID"], op["group_name"], op["alloc_policy"]) == (
        "OP_GROUP_ADD", "rack2", "last_resort",
    )  # fmt: skip
    assert op["ipolicy"] == {
        "std": {"memory-size": 1024, "cpu-count": 2},
        "vcpu-ratio": 8.0,
        "disk-templates": ["file", "sharedfile"],
        "spindle-ratio": None,
    }
    assert op["diskparams"] == {"file": {"a": "1"}}


SPEC = {"memory-size": 128, "cpu-count": 1}
SIZES = "cpu-count=1,memory-size=128"


@pytest.mark.requirement("S235")
def test_the_command_that_would_set_a_policy_again_is_shown(master: FakeMaster, run: Run) -> None:
    own = {"minmax": [{"min": SPEC, "max": SPEC}], "vcpu-ratio": 2.0}
    master.replies["QueryGroups"] = [["default", {}], ["rack2", own]]
    code, out, _err = run(gnt_group, "show-ispecs-cmd")
    bounds = f"min:{SIZES}/max:{SIZES}"
    assert (code, out.splitlines()) == (
        0,
        ["gnt-group add default", f"gnt-group add --ipolicy-bounds-specs {bounds} rack2"],
    )
    policy = {**own, "std": SPEC}
    master.replies["QueryClusterInfo"] = {"name": "c1.example.com", "ipolicy": policy}
    code, out, _err = run(gnt_cluster, "show-ispecs-cmd")
    words = f"--ipolicy-std-specs {SIZES} --ipolicy-bounds-specs {bounds} c1.example.com"
    assert (code, out) == (0, f"gnt-cluster init {words}\n")
    _code, out, _err = run(gnt_cluster, "show-ispecs-cmd", "--json")
    assert json.loads(out) == {"name": "c1.example.com", "ipolicy": policy}
    _code, out, _err = run(gnt_group, "show-ispecs-cmd", "--json")
    assert json.loads(out)[1] == {"name": "rack2", "custom_ipolicy": own}


@pytest.mark.requirement("S235")
def test_a_policy_is_shown_in_the_form_that_scripts_read() -> None:
    actual = {
        "minmax": [{"min": SPEC, "max": SPEC}, {"min": SPEC, "max": {"cpu-count": 4}}],
        "std": SPEC,
        "disk-templates": ["drbd", "plain"],
        "vcpu-ratio": 4.0,
        "spindle-ratio": 32.5,
    }
    assert tree_lines(policy_tree(actual)) == [
        "bounds specs: ",
        "  - max/0: ",
        "      cpu-count: 1",
        "      memory-size: 128",
        "    min/0: ",
        "      cpu-count: 1",
        "      memory-size: 128",
        "  - max/1: ",
        "      cpu-count: 4",
        "    min/1: ",
        "      cpu-count: 1",
        "      memory-size: 128",
        "std: ",
        "  cpu-count: 1",
        "  memory-size: 128",
        "allowed disk templates: drbd, plain",
        "vcpu-ratio: 4",
        "spindle-ratio: 32.5",
    ]
    own = {"disk-templates": ["drbd", "plain"], "minmax": actual["minmax"]}
    shown = tree_lines(policy_tree(actual, own))
    assert shown[1:3] == ["  - max/0: ", "      cpu-count: 1"]
    assert shown[-4:] == [
        "  memory-size: default (128)",
        "allowed disk templates: drbd, plain",
        "vcpu-ratio: default (4)",
        "spindle-ratio: default (32.5)",
    ]


def test_modify_shows_what_changed(master: FakeMaster, run: Run) -> None:
    master.job(result=[["alloc_policy", "unallocable"]])
    code, out, _err = run(gnt_group, "modify", "--alloc-policy=unallocable", "rack2")
    assert (code, out) == (0, "Modified group rack2\n - alloc_policy -> unallocable\n")
    assert submitted(master)["ipolicy"] is None


def test_modify_without_a_request_asks_for_one(master: FakeMaster, run: Run) -> None:
    code, _out, err = run(gnt_group, "modify", "rack2")
    assert code == 1
    assert "nothing to change: pass at least one option" in err
    assert master.requests == []


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["remove", "g"], {"OP_ID": "OP_GROUP_REMOVE"}),
        (["rename", "g", "h"], {"OP_ID": "OP_GROUP_RENAME", "new_name": "h"}),
        (["assign-nodes", "-f", "g", "a", "b"],
         {"OP_ID": "OP_GROUP_ASSIGN_NODES", "nodes": ["a", "b"], "force": True}),
    ],
)  # fmt: skip
def test_groups_are_changed_by_jobs(
    master: FakeMaster, run: Run, words: list[str], fields: dict[str, Any]
) -> None:
    master.job()
    assert run(gnt_group, *words)[0] == 0
    assert ({"group_name": "g"} | fields).items() <= submitted(master).items()


@pytest.mark.requirement("S174")
def test_a_group_is_evacuated(master: FakeMaster, run: Run) -> None:
    master.job(result={"jobs": []})
    words = ["-f", "-I", "hail", "--to=a", "--to=b", "--sequential"]
    assert run(gnt_group, "evacuate", *words, "g")[0] == 0
    wanted = {"iallocator": "hail", "target_groups": ["a", "b"], "sequential": True}
    assert wanted.items() <= submitted(master).items()


@pytest.mark.requirement("S174")
def test_an_instance_changes_its_group(master: FakeMaster, run: Run) -> None:
    master.job(result={"jobs": []})
    master.replies["QueryInstances"] = [["web1.example.com"]]
    assert run(gnt_instance, "change-group", "-f", "--to=a", "web1")[0] == 0
    op = submitted(master)
    assert (op["OP_ID"], op["target_groups"]) == ("OP_INSTANCE_CHANGE_GROUP", ["a"])


def test_the_moves_of_a_balance_are_a_table(master: FakeMaster, run: Run) -> None:
    moved = [["web1", "default", ["node2"]], ["web2", "default", ["node1"]]]
    master.job(
        result={
            "moved": moved,
            "before": [["node1"], ["node2"]],
            "needs": [[], [0]],
            "info": "2 moves, score 3.0 to 1.0",
        }
    )
    code, out, _err = run(gnt_cluster, "balance", "--dry-run", "-l", "3")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["2", "moves,", "score", "3.0", "to", "1.0"],
        ["Move", "Instance", "Group", "From", "To", "After"],
        ["1", "web1", "default", "node1", "node2"],
        ["2", "web2", "default", "node2", "node1", "1"],
    ]
    assert submitted(master)["max_moves"] == 3


def test_a_balanced_cluster_is_not_touched(master: FakeMaster, run: Run) -> None:
    master.job(result={"moved": [], "jobs": []})
    code, out, _err = run(gnt_cluster, "balance", "-f")
    assert (code, "no move would improve it" in out) == (0, True)


@pytest.mark.requirement("S187")
def test_capacity_is_told_in_words_and_by_node(master: FakeMaster, run: Run) -> None:
    spec = {"memory": 512, "vcpus": 1, "disks": [1024], "disk_template": "file"}
    nodes = [["node1"], ["node2"], ["node1"]]
    master.job(result={"spec": spec, "count": 3, "nodes": nodes})
    code, out, _err = run(gnt_cluster, "capacity", "--memory=512m", "--disk", "0:size=1g")
    assert code == 0
    assert out.startswith(
        "Room for 3 instances, each with 512M of memory, 1 virtual processors, 1024M"
    )
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["Nodes", "Instances"],
        ["node1", "2"],
        ["node2", "1"],
    ]


@pytest.mark.requirement("S175")
def test_a_batch_without_nodes_is_one_request(master: FakeMaster, run: Run, tmp_path: Path) -> None:
    master.job(result={"jobs": [], "failed": ["y"]})
    file = tmp_path / "many.json"
    file.write_text(json.dumps([{"instance_name": "x"}, {"instance_name": "y"}]))
    code, _out, err = run(gnt_instance, "batch-create", "-I", "hail", str(file))
    assert (code, err) == (1, "Instance y cannot be placed on any node\n")
    op = submitted(master)
    assert (op["OP_ID"], op["iallocator"]) == ("OP_INSTANCE_MULTI_ALLOC", "hail")
    assert [one["instance_name"] for one in op["instances"]] == ["x", "y"]
    assert [one["iallocator"] for one in op["instances"]] == [None, None]


@pytest.mark.requirement("S175", "S184")
def test_a_batch_is_also_one_request_to_the_default_allocator(
    master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    master.job(result={"allocatable": ["x"], "failed": [], "nodes": {"x": "node2"}})
    master.replies["QueryClusterInfo"] = {"default_iallocator": "hail"}
    file = tmp_path / "many.json"
    file.write_text(json.dumps([{"instance_name": "x"}]))
    code, out, _err = run(gnt_instance, "batch-create", "--dry-run", str(file))
    assert (code, out.splitlines()[-1]) == (0, "x would be on node2")
    op = submitted(master)
    assert (op["OP_ID"], op["iallocator"]) == ("OP_INSTANCE_MULTI_ALLOC", None)


@pytest.mark.requirement("S184")
def test_a_batch_without_any_allocator_is_a_job_for_each(
    master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    master.replies["QueryClusterInfo"] = {"default_iallocator": ""}
    master.replies["SubmitManyJobs"] = [[False, "no allocator"]]
    file = tmp_path / "many.json"
    file.write_text(json.dumps([{"instance_name": "x"}]))
    assert run(gnt_instance, "batch-create", str(file))[0] == 1
    [[op]] = master.args_of("SubmitManyJobs")[0]
    assert op["OP_ID"] == "OP_INSTANCE_CREATE"
