from typing import Any

import placement_clusters as clusters
import pytest

from ganeti.base.errors import InputError, PrereqError
from ganeti.placement.load.rows import cluster_of
from ganeti.placement.load.simulated import simulated
from ganeti.placement.load.text import format_cluster, parse
from ganeti.placement.score import score
from ganeti.placement.state import State

GOOD = """\
default|g1|preferred|a,b|

n1|1000|10|900|5000|4000|8|M|g1|2|t1,t2|N|0|1|1.0
n2|?|0|900|5000|4000|8|N|g1|1

i1|100|500|1|running|Y|n1|n2|drbd|x|1|-

htools:iextags:x

|128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|drbd,plain|4.0|32.0
"""


def test_every_column_is_read() -> None:
    cluster = parse(GOOD)
    [group], [first, second], [one] = cluster.groups, cluster.nodes, cluster.instances
    assert (group.tags, group.policy["vcpu-ratio"]) == (("a", "b"), 4.0)
    assert (first.is_master, first.tags, first.total_spindles) == (True, ("t1", "t2"), 2)
    assert second.offline
    assert (one.template, one.secondary, one.spindles, one.tags) == ("drbd", "n2", None, ("x",))
    assert cluster.tags == ["htools:iextags:x"]


def test_a_cluster_survives_being_written_and_read() -> None:
    cluster = clusters.cluster(4)
    again = parse(format_cluster(cluster))
    assert format_cluster(again) == format_cluster(cluster)
    assert score(State(again)) == score(State(cluster))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a|b|preferred",
        GOOD.replace("preferred", "whenever"),
        GOOD.replace("n1|1000", "n1|many"),
        GOOD.replace("n1|1000", "n1|nan"),
        GOOD.replace("n1|1000", "n1|1e300"),
        GOOD.replace("running|Y", "running|maybe"),
        GOOD.replace("|drbd|x", "|moon|x"),
        GOOD.replace("128,1,1024,1,1,1|", "128,1|"),
        GOOD.replace(";32768,8,1048576,16,8,12", ""),
        GOOD.replace("i1|100|500|1", "i1|100"),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(PrereqError):
        parse(text)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("n1|n2|drbd", "n9|n2|drbd", "Unknown node 'n9' for instance i1"),
        ("|M|g1|", "|M|g7|", "Unknown group 'g7' for node n1"),
        ("n1|n2|drbd", "||drbd", "no primary node"),
    ],
)
def test_names_must_be_known(old: str, new: str, said: str) -> None:
    with pytest.raises(PrereqError, match=said):
        State(parse(GOOD.replace(old, new)))


def test_rows_become_a_cluster_and_silent_nodes_are_offline() -> None:
    nodes: list[dict[str, Any]] = [
        {
            "name": "n1",
            "group.uuid": "g",
            "mtotal": 100,
            "mfree": 50,
            "ndparams": {"spindle_count": 3},
        },
        {"name": "n2", "group.uuid": "g", "mtotal": None},
        {"name": "n3", "group.uuid": "g", "mtotal": 1, "drained": True},
    ]
    instances = [
        {"name": "i", "pnode": "n1", "snodes": ["n2"], "disk_template": "drbd",
         "beparams": {"maxmem": 10, "vcpus": 2, "auto_balance": False}, "disk.sizes": [5, 6],
         "disk_usage": 267, "status": "ADMIN_down"},
    ]  # fmt: skip
    cluster = cluster_of([{"name": "default", "uuid": "g"}], nodes, instances, {"master": "n1"})
    assert [node.why_offline if node.offline else "" for node in cluster.nodes] == [
        "",
        "silent",
        "drained",
    ]
    assert (cluster.nodes[0].total_spindles, cluster.nodes[0].is_master) == (3, True)
    [one] = cluster.instances
    assert (one.memory, one.disk, one.disks, one.auto_balance) == (10, 267, (5, 6), False)
    State(cluster)


def test_rows_without_what_is_needed_are_refused() -> None:
    with pytest.raises(InputError, match=r"group\.uuid"):
        cluster_of([], [{"name": "n1"}], [], {})


def test_clusters_are_simulated() -> None:
    cluster = simulated(["u,1,10,5,1", "p,2,100,50,4,3"], float)
    assert [node.group for node in cluster.nodes] == ["fake-uuid-01"] * 2 + ["fake-uuid-02"]
    assert cluster.groups[1].alloc_policy == "unallocable"
    for wrong in ("p,2", "z,1,1,1,1", "p,x,1,1,1"):
        with pytest.raises(InputError):
            simulated([wrong], float)
