"""The domain that all names share is not shown."""

import pytest
from msgspec.structs import replace

from ganeti.placement.moves import Move, MoveKind, commands, steps_text
from ganeti.placement.names import common_suffix
from ganeti.placement.report import node_table
from ganeti.placement.score import everywhere
from ganeti.placement.state import State
from tests.unit.placement.test_squeeze import a_cluster


@pytest.mark.parametrize(
    ("names", "suffix"),
    [
        ([], ""),
        (["node1", "node2"], ""),
        (["node1.example.com", "web.example.com"], ".example.com"),
        (["node1.a.example.com", "web.b.example.com"], ".example.com"),
        (["node1.example.com", "node2.example.org"], ""),
        (["node1.example.com", "example.com"], ".com"),
        (["node1.example.com"], ".example.com"),
        ([".com", "a.com"], ""),
    ],
)
def test_the_longest_common_end_that_leaves_something(names: list[str], suffix: str) -> None:
    assert common_suffix(names) == suffix


def test_nodes_moves_and_commands_are_shown_without_it() -> None:
    cluster = a_cluster([1, 0])
    domain = ".example.com"
    long = replace(
        cluster,
        nodes=[replace(one, name=one.name + domain) for one in cluster.nodes],
        instances=[
            replace(one, name=one.name + domain, primary=one.primary + domain)
            for one in cluster.instances
        ],
    )
    state, move = State(long), Move(0, MoveKind.FAILOVER_TO_ANY, 1)
    assert steps_text(state, move) == "fa:node1"
    assert commands(state, move) == ["migrate -f -n node1 inst0-0"]
    assert node_table(state, "name,fqdn", everywhere(state))[1].split() == [
        "node0",
        "node0.example.com",
    ]
