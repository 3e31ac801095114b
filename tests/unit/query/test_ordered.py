"""The order of lists, and objects found by name, as filters by name mean them."""

from typing import Any

import pytest

from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Instance, Node
from ganeti.query.execute import QueryExecutor
from ganeti.query.live import LiveSource
from ganeti.query.ordered import OrderedTables
from ganeti.simulation.virtual_time import LoopClock
from tests.unit.config.sample import sample_instance, sample_snapshot
from tests.unit.query.cluster import FakeJobs, FakeNodes, locks

NAMES = ["web10.example.com", "web2.example.com", "web2.example.com.lan", "web2x.example.com", "db"]


def shown() -> Snapshot:
    things = [sample_instance(number, name=name) for number, name in enumerate(NAMES, 1)]
    base = sample_snapshot()
    return Snapshot.of(
        1,
        base.cluster,
        nodes=base.nodes.values(),
        groups=base.groups.values(),
        instances=things,
    )


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["web2"], ["web2.example.com", "web2.example.com.lan"]),
        (["web2.example.com"], ["web2.example.com", "web2.example.com.lan"]),
        (["web10", "db", "db"], ["db", "web10.example.com"]),
        (["web"], []),
        (["WEB2"], []),
        ([7, ""], []),
    ],
)
def test_names_and_beginnings_of_names_find_objects(asked: list[Any], found: list[str]) -> None:
    ordered = OrderedTables()
    assert [one.name for one in ordered.named(shown(), Instance, asked)] == found


def test_the_order_is_worked_out_again_only_where_a_table_has_changed() -> None:
    ordered, first = OrderedTables(), shown()
    before = ordered.all(first, Instance)
    assert [one.name for one in before][:2] == ["db", "web2.example.com"]
    assert ordered.all(first, Instance) is before
    assert ordered.all(shown(), Instance) is not before
    assert next(one.name for one in ordered.all(first, Node)) == "node1.example.com"


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "raw",
    [
        ["=", "name", "web2"],
        ["|", ["=", "name", "db"], ["=", "name", "web10.example.com"]],
        ["&", ["=", "name", "web2.example.com"], ["!", ["=", "name", "web2.example.com.lan"]]],
        ["|", ["=", "name", "db"], ["=~", "name", "lan$"]],
        ["!", ["=", "name", "db"]],
    ],
)
async def test_looking_up_names_gives_what_looking_at_every_row_gives(raw: list[Any]) -> None:
    snapshot = shown()
    executor = QueryExecutor(
        lambda: snapshot, FakeJobs(), locks, LiveSource(FakeNodes(), LoopClock())
    )
    found = (await executor.query("instance", ["name"], raw)).data
    # Twice negated, a filter names nothing that could be looked up.
    assert (await executor.query("instance", ["name"], ["!", ["!", raw]])).data == found
    assert found
    at_once = executor.query_at_once("instance", ["name"], raw)
    assert at_once is None or at_once.data == found


@pytest.mark.virtual_time
@pytest.mark.parametrize("fields", [["name", "pnode", "nosuch"], ["tags", "admin_state", "snodes"]])
async def test_a_few_names_are_answered_at_once_as_otherwise(fields: list[str]) -> None:
    snapshot = shown()
    executor = QueryExecutor(
        lambda: snapshot, FakeJobs(), locks, LiveSource(FakeNodes(), LoopClock())
    )
    for raw in (["=", "name", "web2"], ["|", ["=", "name", "db"], ["=", "name", "web10"]]):
        assert executor.query_at_once("instance", fields, raw) == await executor.query(
            "instance", fields, raw
        )


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("kind", "fields", "raw"),
    [
        ("instance", ["status"], ["=", "name", "db"]),
        ("instance", ["name"], None),
        ("instance", ["name"], ["=", "pnode", "node1"]),
        ("instance", ["name"], ["&", ["=", "name", "db"], ["=", "status", "running"]]),
        ("instance", ["name"], ["|", *[["=", "name", name] for name in NAMES]]),
        ("job", ["id"], ["=", "id", 1]),
        ("nosuch", ["id"], ["=", "id", 1]),
    ],
)
async def test_what_takes_nodes_jobs_or_many_rows_is_not_answered_at_once(
    kind: str, fields: list[str], raw: Any
) -> None:
    snapshot = shown()
    executor = QueryExecutor(
        lambda: snapshot, FakeJobs(), locks, LiveSource(FakeNodes(), LoopClock())
    )
    assert executor.query_at_once(kind, fields, raw) is None
