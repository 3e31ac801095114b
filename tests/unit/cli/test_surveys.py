"""gnt-cluster overview and gnt-node impact."""

import json
from typing import Any

from ganeti.cli.gnt_cluster import table as gnt_cluster
from ganeti.cli.gnt_node import table as gnt_node
from tests.unit.cli.fake_master import FakeMaster, Run


def answer(**standard: Any) -> dict[str, Any]:
    one = {"memory": 1024, "disk": 10240, "vcpus": 1, "template": "drbd", "fits": 7, "is_limit": False,
           "limited_by": "FailMem", "closed_groups": []}  # fmt: skip
    return {
        "nodes": {"total": 3, "offline": 1, "drained": 0},
        "instances": {"total": 5, "running_wanted": 4, "down_wanted": 1},
        "memory": {"total": 3072, "free": 2048, "available": 1024, "reserved": 1024},
        "disk": {"total": 30720, "free": 20480, "available": 10240},
        "cpus": {"total": 12, "virtual": 48, "used": 5},
        "groups": [{"name": "default", "uuid": "u", "nodes": 3, "n1_violations": []}],
        "standard": {**one, **standard},
        "verify": None,
    }


def test_overview_is_a_few_sentences(master: FakeMaster, run: Run) -> None:
    master.replies["QueryOverview"] = answer()
    code, out, _ = run(gnt_cluster, "overview")
    assert code == 0
    assert (
        out
        == """\
Nodes: 3; 1 offline, 0 drained
Instances: 5; 4 should run
Memory: 1.0G available of 3.0G; 1.0G reserved for failovers
Disk: 10.0G available of 30.0G
Processors: 5 virtual ones in use of 48 allowed
N+1: holds in every group
Room for 7 more instances (1.0G, 1 processors, 10.0G drbd); the next one lacks: FailMem
Verified: never, as far as the queue shows; run gnt-cluster verify
"""
    )
    _, out, _ = run(gnt_cluster, "overview", "--json")
    assert json.loads(out) == answer()


def test_overview_names_nodes_that_cannot_be_lost(master: FakeMaster, run: Run) -> None:
    found = answer(fits=1000, is_limit=True)
    found["groups"][0]["n1_violations"] = ["node1", "node2"]
    master.replies["QueryOverview"] = found
    _, out, _ = run(gnt_cluster, "overview")
    assert "N+1: group default cannot lose node1, node2\n" in out
    assert "Room for 1000 more instances (1.0G, 1 processors, 10.0G drbd) or more\n" in out


def test_overview_lists_the_findings_of_the_last_verify(master: FakeMaster, run: Run) -> None:
    one = {
        "severity": "error",
        "kind": "node",
        "name": "node1",
        "text": "does not answer",
        "job": 7,
    }
    verify = {"ended": 0.0, "errors": 1, "warnings": 0, "findings": [one]}
    master.replies["QueryOverview"] = {**answer(), "verify": verify}
    _, out, _ = run(gnt_cluster, "overview")
    assert "; 1 errors, 0 warnings\n  error: node node1: does not answer\n" in out


def test_impact_is_a_table(master: FakeMaster, run: Run) -> None:
    rows = [
        {"name": "web1", "role": "primary", "to": "node2", "how": "failover", "why": ""},
        {"name": "db1", "role": "primary", "to": None, "how": "lost", "why": "only here"},
    ]
    master.replies["QueryImpact"] = {"node": "node1", "instances": rows}
    code, out, _ = run(gnt_node, "impact", "node1", "--no-headers", "--separator=|")
    assert (code, out) == (0, "web1|primary|failover|node2|\ndb1|primary|lost|-|only here\n")
    assert master.args_of("QueryImpact") == ["node1"]
    _, out, _ = run(gnt_node, "impact", "node1", "--json")
    assert json.loads(out)["instances"] == rows


def test_impact_without_a_node_counts_outcomes_of_all_nodes(master: FakeMaster, run: Run) -> None:
    counts = {"failover": None, "restart": None, "degraded": 1, "unplaced": None, "lost": 2}
    master.replies["QueryImpact"] = {"nodes": [{"name": "node1", **counts}]}
    code, out, _ = run(gnt_node, "impact", "--separator=|")
    assert (code, out) == (0, "Node|Failover|Restart|Degraded|Unplaced|Lost\nnode1|?|?|1|?|2\n")
    assert master.args_of("QueryImpact") == []
    _, out, _ = run(gnt_node, "impact", "--json")
    assert json.loads(out)["nodes"][0]["lost"] == 2
