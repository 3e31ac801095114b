"""gnt-cluster ha-status."""

import json
from typing import Any

import pytest

from ganeti.api.ha_status import HaStatus
from ganeti.cli.gnt_cluster import table as gnt_cluster
from ganeti.recovery.status import RecoveryStatus
from tests.support.recovery_status import ALARM, instance_status, node_status, stuck_status
from tests.unit.cli.fake_master import FakeMaster, Run
from tests.unit.query.cluster import snapshot


def answer(status: RecoveryStatus) -> dict[str, Any]:
    return HaStatus(snapshot, lambda: status, elects_master=False).answer()


def test_cluster_without_protected_instances_says_how_to_protect_one(
    master: FakeMaster, run: Run
) -> None:
    master.replies["QueryHaStatus"] = answer(RecoveryStatus())
    code, out, _ = run(gnt_cluster, "ha-status")
    assert code == 0
    assert out == (
        "No instance is protected. To let the cluster recover an instance automatically, run:"
        " gnt-instance modify -B recovery=failover INSTANCE\n"
    )


@pytest.mark.requirement("D7", "D13")
def test_status_shows_nodes_instances_and_alarms(master: FakeMaster, run: Run) -> None:
    found = {**answer(stuck_status()), "limits": ["a limit"]}
    found["nodes"][0] |= {"master": True, "fence_methods": []}
    master.replies["QueryHaStatus"] = found
    code, out, _ = run(gnt_cluster, "ha-status")
    assert code == 1
    assert (
        out
        == f"""\
Node              State   For Silent Fencing        Watchdog  Why
node1.example.com healthy 2h  1s     (master)       armed
node2.example.com stuck   4m  4m     none           not armed no fencing method is configured
node3.example.com healthy 2h  1s     power,watchdog armed

Instance         Node              Recovery Priority State     For Attempts Why
db1.example.com  node1.example.com failover 50       given up  30s 3        3 attempts within 3600 s; the last: its guest has crashed
web1.example.com node1.example.com failover 50       protected 2h  0

Alarms:
- {ALARM}

Needs an administrator:
- a limit
"""
    )


def test_unarmed_watchdogs_say_why_once(master: FakeMaster, run: Run) -> None:
    nodes = (
        node_status(2, is_armed=False, why_unarmed="no watchdog device", in_maintenance=True),
        node_status(3, is_armed=False, why_unarmed="no watchdog device"),
        node_status(4, is_armed=False, why_unarmed="no watchdog device", methods=()),
        node_status(5, is_armed=False, why_unarmed="it is in use"),
    )
    master.replies["QueryHaStatus"] = answer(RecoveryStatus(nodes, (instance_status(),)))
    code, out, _ = run(gnt_cluster, "ha-status", "--no-headers", "--separator=|")
    assert code == 0
    assert out.splitlines() == [
        "node2.example.com|maintenance|2h|1s|power,watchdog|not armed|",
        "node3.example.com|healthy|2h|1s|power,watchdog|not armed|",
        "node4.example.com|healthy|2h|1s|none|not armed|",
        "node5.example.com|healthy|2h|1s|power,watchdog|not armed|",
        "",
        "web1.example.com|node1.example.com|failover|50|protected|2h|0|",
        "",
        "Watchdogs that are not armed:",
        "- node2.example.com, node3.example.com: no watchdog device",
        "- node5.example.com: it is in use",
    ]


def test_json_has_the_answer_and_the_same_exit_code(master: FakeMaster, run: Run) -> None:
    master.replies["QueryHaStatus"] = found = answer(stuck_status())
    code, out, _ = run(gnt_cluster, "ha-status", "--json")
    assert (code, json.loads(out)) == (1, found)
    assert found["nodes"][1] == {
        "name": "node2.example.com",
        "state": "stuck",
        "maintenance": False,
        "state_s": 215.0,
        "silent_s": 250.0,
        "fence_methods": [],
        "watchdog_armed": False,
        "why_unarmed": "no watchdog device",
        "why": "no fencing method is configured",
        "master": False,
    }
