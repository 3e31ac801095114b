"""What a candidate knows of the other nodes."""

from ganeti.daemons.candidates import NodeDirectory
from tests.unit.config.sample import NODES, sample_node


def test_an_administrator_reads_names_where_the_store_says_uuids() -> None:
    directory = NodeDirectory()
    directory.take([sample_node(1), sample_node(2)])
    said = directory.with_names(f"{NODES[0]} and {NODES[2]} do not follow {NODES[1]}")
    assert said == f"node1.example.com and {NODES[2]} do not follow node2.example.com"
