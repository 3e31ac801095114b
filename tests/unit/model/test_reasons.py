"""Reasons of many nodes, said once each."""

from ganeti.model.reasons import grouped, summary, table


def test_nodes_with_the_same_reason_share_it_and_figures_become_ranges() -> None:
    reasons = [
        ("node1", "score 15.5 against 12.0"),
        ("node2", "drained"),
        ("node3", "score 9.25 against 12.0"),
        ("node4", "score 110.0 against 12.0"),
    ]
    first, second = grouped(reasons)
    assert first.reason == "score 9.25 to 110.0 against 12.0"
    assert first.nodes == ("node1", "node3", "node4")
    assert second == ("drained", ("node2",))


def test_digits_in_names_are_no_figures() -> None:
    reasons = [
        ("a", "the instances of node1 could not be recovered"),
        ("b", "the instances of node2 could not be recovered"),
        ("c", "group rack-1.example.com is last_resort"),
        ("d", "group rack-2.example.com is last_resort"),
    ]
    assert [one.reason for one in grouped(reasons)] == [reason for _node, reason in reasons]


def test_few_nodes_are_all_named_and_many_are_counted() -> None:
    few = [(f"node{number}", "drained") for number in range(5)]
    assert summary(few) == "node0, node1, node2, node3, node4: drained"
    many = [(f"node{number}", "drained") for number in range(1000)]
    assert summary(many) == "node0, node1, node2, node3 and 996 more: drained"
    assert len(table(many, names_all=True)[1].split(", ")) == 1000


def test_a_refusal_stays_short_where_every_node_has_a_reason_of_its_own() -> None:
    words = [f"policy {chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(600)]
    reasons = [(f"node{number}", word) for number, word in enumerate(words)]
    assert len(summary(reasons)) < 1000
    assert summary(reasons).endswith("590 nodes have other reasons")


def test_a_table_has_a_heading_only_where_it_has_rows() -> None:
    assert table([]) == []
    heading, row = table([("node1", "drained")])
    assert heading.split("  ")[0] == "Reason"
    assert row.split() == ["drained", "node1"]
