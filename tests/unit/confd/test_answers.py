"""Each query's answer, in the forms of Ganeti, and what is never answered."""

from typing import Any

import msgspec
import pytest

from ganeti.confd.answers import ANSWERS
from ganeti.confd.facts import ClusterCopy
from ganeti.config.transaction import put_row
from ganeti.model.objects import NetworkUuid, Nic
from ganeti.protocols.confd import NodeRole, Query, QueryType, Status
from tests.unit.confd.cluster import POSITION, SECRET, ask, facts_of, mirrored, objects
from tests.unit.config.sample import (
    NODES,
    sample_cluster,
    sample_group,
    sample_instance,
    sample_node,
)

OK, ERROR = Status.OK, Status.ERROR
UNKNOWN, ARGUMENT = (ERROR, 0), (ERROR, 2)


@pytest.fixture
def facts() -> ClusterCopy:
    return facts_of(objects())


@pytest.mark.requirement("S56", "S61")
@pytest.mark.parametrize(
    ("kind", "query", "wanted"),
    [
        (QueryType.PING, None, (OK, 3000000)),
        (QueryType.NODE_ROLE_BY_NAME, "node1.example.com", (OK, NodeRole.MASTER)),
        (QueryType.NODE_ROLE_BY_NAME, "node2.example.com", (OK, NodeRole.OFFLINE)),
        (QueryType.NODE_ROLE_BY_NAME, "node3.example.com", (OK, NodeRole.DRAINED)),
        (QueryType.NODE_ROLE_BY_NAME, "node4.example.com", (OK, NodeRole.CANDIDATE)),
        (QueryType.NODE_ROLE_BY_NAME, "node5.example.com", (OK, NodeRole.REGULAR)),
        (QueryType.NODE_ROLE_BY_NAME, "none", (ERROR, "Unknown node none")),
        (QueryType.NODE_IP_BY_INSTANCE_IP, "10.9.0.1", (OK, "192.0.2.1")),
        (QueryType.NODE_IP_BY_INSTANCE_IP, "10.9.0.2", UNKNOWN),
        (QueryType.NODE_IP_BY_INSTANCE_IP, {"0": "br7", "1": "10.9.0.2"}, (OK, "192.0.2.1")),
        (QueryType.NODE_IP_BY_INSTANCE_IP, {"0": "br1", "1": "10.9.0.3"}, (OK, "192.0.2.1")),
        (QueryType.NODE_IP_BY_INSTANCE_IP, {"1": "10.9.0.3"}, (OK, "192.0.2.1")),
        (
            QueryType.NODE_IP_BY_INSTANCE_IP,
            {"0": None, "2": ["10.9.0.1", "1.1.1.1"]},
            (OK, [[0, "192.0.2.1", POSITION], [1, 0, POSITION]]),
        ),
        (QueryType.NODE_IP_BY_INSTANCE_IP, {"2": None}, (OK, [])),
        (QueryType.NODE_IP_BY_INSTANCE_IP, None, ARGUMENT),
        (QueryType.NODE_IP_BY_INSTANCE_IP, {}, ARGUMENT),
        (QueryType.MASTER, None, (OK, "node1.example.com")),
        (
            QueryType.MASTER,
            {"3": [0, 1, 2]},
            (OK, ["node1.example.com", "192.0.2.100", "192.0.2.1"]),
        ),
        (QueryType.MASTER, {"3": ["2", "0"]}, (OK, ["192.0.2.1", "node1.example.com"])),
        (QueryType.MASTER, {"3": [9]}, ARGUMENT),
        (QueryType.MASTER, {"3": "name"}, ARGUMENT),
        (QueryType.MASTER, "name", ARGUMENT),
        (QueryType.NODE_IPS, None, (OK, [f"192.0.2.{number}" for number in range(1, 6)])),
        (QueryType.CANDIDATE_IPS, None, (OK, ["192.0.2.1", "192.0.2.4"])),
        (QueryType.INSTANCE_IPS, None, (OK, ["10.9.0.1", "10.9.0.3"])),
        (QueryType.INSTANCE_IPS, "br1", (OK, ["10.9.0.1", "10.9.0.3"])),
        (QueryType.INSTANCE_IPS, "br7", (OK, ["10.9.0.2"])),
        (QueryType.INSTANCE_IPS, "br8", (OK, [])),
        (QueryType.INSTANCE_IPS, {"0": "br7"}, ARGUMENT),
        (
            QueryType.NODE_DRBD,
            "node1.example.com",
            (OK, [["node1.example.com", 0, "web2.example.com", "disk/0", "primary", "node2.example.com"]]),
        ),
        (
            QueryType.NODE_DRBD,
            NODES[1],
            (OK, [["node2.example.com", 4, "web2.example.com", "disk/0", "secondary", "node1.example.com"]]),
        ),
        (QueryType.NODE_DRBD, "none", UNKNOWN),
        (QueryType.NODE_INSTANCES, "none", UNKNOWN),
        (QueryType.NODE_INSTANCES, "node3.example.com", (OK, [[], []])),
        (QueryType.INSTANCE_DISKS, "none", UNKNOWN),
        (QueryType.INSTANCE_DISKS, {"1": "x"}, (ERROR, "a query of type 9 needs a text as its search key")),
        (QueryType.CONFIG_VALUE, "/cluster/cluster_name", (OK, "cluster.example.com")),
        (QueryType.CANDIDATES, None, (OK, ["node1.example.com", "node4.example.com"])),
        (QueryType.OFFLINE_NODES, None, (OK, ["node2.example.com"])),
        (QueryType.INSTANCES, None, (OK, ["web1.example.com", "web2.example.com"])),
        (QueryType.INSTANCES, "web1.example.com", (OK, ["web2.example.com"])),
        (QueryType.INSTANCE_PRIMARY_NODE, "web1.example.com", (OK, "node1.example.com")),
        (QueryType.INSTANCE_PRIMARY_NODE, "none", UNKNOWN),
    ],
)  # fmt: skip
def test_each_query_has_its_answer(
    facts: ClusterCopy, kind: QueryType, query: Any, wanted: Any
) -> None:
    assert ask(facts, kind, query) == wanted


@pytest.mark.requirement("S56")
def test_the_default_link_is_that_of_a_new_cluster_where_none_is_set(facts: ClusterCopy) -> None:
    row = put_row(sample_cluster())
    facts.put(row.kind, row.key, row.value)
    assert ask(facts, QueryType.INSTANCE_IPS, "br0") == (OK, ["10.9.0.1", "10.9.0.3"])


@pytest.mark.requirement("S56")
def test_an_interface_in_a_network_is_at_the_link_of_its_nodes_group(facts: ClusterCopy) -> None:
    east, west = NetworkUuid("east"), NetworkUuid("west")
    links = {east: {"link": "br8", "mode": "bridged"}, west: {"link": "br9"}}
    own = {"link": "br7"}  # as an older version may have left it; the network counts
    one, other = (
        sample_instance(
            number,
            nics=(Nic(uuid=f"n{number}", mac="", ip="10.8.0.5", network=network, nicparams=own),),
        )
        for number, network in ((3, east), (4, west))
    )
    there = msgspec.structs.replace(other, primary_node=NODES[2])
    for thing in (sample_group(networks=links), one, there):
        row = put_row(thing)
        facts.put(row.kind, row.key, row.value)
    by_ip = QueryType.NODE_IP_BY_INSTANCE_IP
    assert ask(facts, by_ip, {"0": "br8", "1": "10.8.0.5"}) == (OK, "192.0.2.1")
    assert ask(facts, by_ip, {"0": "br9", "1": "10.8.0.5"}) == (OK, "192.0.2.3")
    assert ask(facts, by_ip, {"0": "br7", "1": "10.8.0.5"}) == UNKNOWN
    assert ask(facts, QueryType.INSTANCE_IPS, "br9") == (OK, ["10.8.0.5"])
    # The group's connection changes, and the answers with it.
    row = put_row(sample_group(networks={east: {"link": "br10"}}))
    facts.put(row.kind, row.key, row.value)
    assert ask(facts, by_ip, {"0": "br10", "1": "10.8.0.5"}) == (OK, "192.0.2.1")
    assert ask(facts, by_ip, "10.8.0.5") == (OK, "192.0.2.3"), "at the default link now"
    facts.delete("instance", one.uuid)
    assert ask(facts, by_ip, {"0": "br10", "1": "10.8.0.5"}) == UNKNOWN
    assert ask(facts, by_ip, "10.8.0.5") == (OK, "192.0.2.3")


@pytest.mark.requirement("S60")
def test_a_type_that_is_not_known_is_not_implemented(facts: ClusterCopy) -> None:
    status, text = ask(facts, 77)  # type: ignore[arg-type] # as a newer client would
    assert (status, text) == (Status.NOT_IMPLEMENTED, "unknown query type 77")


def test_every_type_has_an_answer() -> None:
    assert ANSWERS.keys() == set(QueryType)


def test_instances_and_disks_are_whole_objects(facts: ClusterCopy) -> None:
    status, (primaries, secondaries) = ask(facts, QueryType.NODE_INSTANCES, "node2.example.com")
    assert (status, primaries) == (OK, [])
    [shown] = secondaries
    assert shown["name"] == "web2.example.com"
    assert shown["disks"] == ["disk"]
    assert shown["osparams"] == {"shown": "yes"}
    _, disks = ask(facts, QueryType.INSTANCE_DISKS, "web2.example.com")
    [disk] = disks
    assert (disk["iv_name"], disk["dev_type"], disk["size"]) == ("disk/0", "drbd", 10)
    assert disk["logical_id"] == [11000]
    assert disk["nodes"] == list(NODES[:2])  # burnin asks for them
    assert disk["minors"] == {NODES[0]: 0, NODES[1]: 4}
    assert disk["children"][0]["logical_id"] == ["xenvg", "name"]
    _, collectors = ask(facts, QueryType.DATA_COLLECTORS)
    assert collectors["lv"] == {"active": True, "interval": 7}


@pytest.mark.requirement("G25", "G23", "A37")
def test_no_answer_holds_a_secret(facts: ClusterCopy) -> None:
    assert SECRET in msgspec.json.encode(mirrored()).decode()
    names = ["web2.example.com", "node1.example.com", "node2.example.com", *NODES]
    paths = ["/", "", "/cluster", "/instances", f"/instances/{mirrored().uuid}/disks/0", "~0~1"]
    paths += [
        "/cluster/../instances",
        "/" + "x" * 10_000,
        f"/instances/{mirrored().uuid}/osparams_private",
    ]
    for kind in QueryType:
        given: list[Query] = [None, *names, *paths, {"1": "10.9.0.2", "0": "br7"}]
        for query in given:
            content = ask(facts, kind, query)[1]
            assert SECRET not in repr(content)
    assert all(ask(facts, QueryType.CONFIG_VALUE, path) == UNKNOWN for path in paths)


@pytest.mark.requirement("S53")
def test_changed_rows_change_the_answers_and_leave_nothing_behind(facts: ClusterCopy) -> None:
    moved = msgspec.structs.replace(mirrored(), primary_node=NODES[2], secondary_nodes=())
    renamed = sample_instance(
        1, name="mail.example.com", nics=(Nic(uuid="o", mac="", ip="10.9.9.9"),)
    )
    for thing, kind in ((moved, "instance"), (renamed, "instance")):
        facts.put(kind, thing.uuid, msgspec.json.encode(thing))
    facts.put("node", NODES[2], msgspec.json.encode(sample_node(3, name="new.example.com")))
    assert ask(facts, QueryType.NODE_INSTANCES, "node2.example.com") == (OK, [[], []])
    assert ask(facts, QueryType.INSTANCE_PRIMARY_NODE, "web2.example.com") == (
        OK,
        "new.example.com",
    )
    assert ask(facts, QueryType.INSTANCES) == (OK, ["mail.example.com", "web2.example.com"])
    assert ask(facts, QueryType.INSTANCE_IPS) == (OK, ["10.9.0.3", "10.9.9.9"])
    facts.delete("instance", moved.uuid)
    facts.delete("instance", moved.uuid)
    facts.delete("node", NODES[2])
    assert ask(facts, QueryType.INSTANCE_IPS, "br7") == (OK, [])
    assert ask(facts, QueryType.NODE_ROLE_BY_NAME, "new.example.com")[0] == ERROR


@pytest.mark.requirement("S56", "A37")
def test_names_come_in_parts_that_fit(facts: ClusterCopy) -> None:
    for number in range(2000):
        thing = sample_instance(100 + number, name=f"{number:04}.{'x' * 40}.example.com", nics=())
        facts.put("instance", thing.uuid, msgspec.json.encode(thing))
    found: list[str] = []
    while part := ask(facts, QueryType.INSTANCES, found[-1] if found else None)[1]:
        assert len(msgspec.json.encode(part)) < 50_000
        found += part
    assert found == sorted(facts.instance_names)
    assert len(found) == 2002


@pytest.mark.requirement("S60")
def test_without_a_cluster_it_is_an_error_of_the_server() -> None:
    assert ask(ClusterCopy(), QueryType.PING) == (ERROR, 1)
