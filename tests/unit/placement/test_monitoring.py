"""Reports of monitoring daemons in a file."""

import json
from typing import Any

import placement_clusters as clusters
import pytest

from ganeti.base.errors import InputError
from ganeti.placement.load.monitoring import (
    domain_loads,
    node_loads,
    reports_by_node,
    with_domain_loads,
    with_loads,
)
from ganeti.placement.score import components
from ganeti.placement.state import State


def report(node: str, total: Any) -> dict[str, Any]:
    return {"node": node, "reports": [{"name": "cpu-avg-load", "data": {"cpu_total": total}}]}


@pytest.mark.requirement("S181")
def test_a_nodes_load_is_spread_over_its_instances_and_itself_by_processors() -> None:
    cluster = clusters.cluster(3)
    text = json.dumps([report("node0001", 60.0), {"node": "node0002", "reports": []}]).encode()
    loaded = with_loads(cluster, node_loads(reports_by_node(text)))
    mine = [one for one in cluster.instances if one.primary == "node0001"]
    assert set(loaded.utilisation) == {one.name for one in mine}
    total = sum(one.vcpus for one in mine)
    spread = sum(loaded.utilisation[one.name][0] for one in mine)
    assert spread == pytest.approx(60.0 * total / (total + 1))
    first, second = mine[:2]
    ratio = loaded.utilisation[first.name][0] / loaded.utilisation[second.name][0]
    assert ratio == pytest.approx(first.vcpus / second.vcpus)
    before, after = (
        {one.name: one.value for one in components(State(each))} for each in (cluster, loaded)
    )
    assert before["cpu_load_cv"] != after["cpu_load_cv"]
    assert before["net_load_cv"] == after["net_load_cv"]


@pytest.mark.requirement("S181")
@pytest.mark.parametrize(
    "value",
    [
        {},
        [1],
        [{"node": 1}],
        [{"node": "a", "reports": 1}],
        [{"node": "a", "reports": [1]}],
        [report("a", None)],
        [report("a", True)],
        [report("a", -1)],
        [{"node": "a", "reports": [{"name": "cpu-avg-load"}]}],
    ],
)
def test_reports_of_another_form_are_refused(value: Any) -> None:
    with pytest.raises(InputError, match="mond-data"):
        node_loads(reports_by_node(json.dumps(value).encode()))


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(InputError, match="is not JSON"):
        reports_by_node(b"[")


@pytest.mark.requirement("S181")
def test_xen_reports_the_load_of_each_instance() -> None:
    cluster = clusters.cluster(3)
    one, other = (
        next(each for each in cluster.instances if each.primary == node)
        for node in ("node0001", "node0002")
    )
    data = {one.name: 0.25, other.name: 3.0}
    text = json.dumps(
        [{"node": "node0001", "reports": [{"name": "xen-cpu-avg-load", "data": data}]}]
    )
    loaded = with_domain_loads(cluster, domain_loads(reports_by_node(text.encode())))
    assert loaded.utilisation == {one.name: (0.25, 1.0, 1.0, 1.0)}


def test_a_collector_with_an_error_has_no_data() -> None:
    text = b'[{"node": "a", "reports": [{"name": "cpu-avg-load", "data": {"error": "too early"}}]}]'
    assert node_loads(reports_by_node(text)) == {}
