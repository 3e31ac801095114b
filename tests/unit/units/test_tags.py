"""Tags: limits, concurrent changes, searching."""

from typing import Any

import pytest

from ganeti.model.opcodes.tags import OpTagsDel, OpTagsGet, OpTagsSearch, OpTagsSet
from tests.support.units_cluster import Master, failed, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time

TARGETS = [
    ("cluster", None),
    ("node", "node2"),
    ("nodegroup", "default"),
    ("instance", NAME),
]


@pytest.mark.parametrize(("kind", "name"), TARGETS)
async def test_tags_are_added_shown_and_removed(
    master: Master, kind: str, name: str | None
) -> None:
    succeeded(await master.run(create(disk_template="diskless", disks=[])))
    assert succeeded(await master.run(OpTagsSet(kind=kind, name=name, tags=["b", "a"]))) is None
    succeeded(await master.run(OpTagsSet(kind=kind, name=name, tags=["a", "c"])))
    got = OpTagsGet(kind=kind, name=name, use_locking=True)
    assert succeeded(await master.run(got)) == ["a", "b", "c"]
    succeeded(await master.run(OpTagsDel(kind=kind, name=name, tags=["b"])))
    assert succeeded(await master.run(got)) == ["a", "c"]
    master.check()


@pytest.mark.requirement("A22")
@pytest.mark.parametrize(
    ("op", "code", "text"),
    [
        (OpTagsSet(kind="disk", name="x", tags=["a"]), "wrong_input", "kind: 'disk' must be one"),
        (OpTagsSet(kind="node", tags=["a"]), "wrong_input", "must be the name of the node"),
        (OpTagsSet(kind="node", name="nosuch", tags=["a"]), "unknown_entity", "nosuch"),
        (OpTagsSet(kind="cluster", tags=[]), "wrong_input", "tags: must name at least one"),
        (OpTagsSet(kind="cluster", tags=["a b"]), "wrong_input", "is not a tag"),
        (OpTagsSet(kind="cluster", tags=["x" * 129]), "wrong_input", "is not a tag"),
        (OpTagsSet(kind="cluster", tags=[str(n) for n in range(4097)]), "wrong_input", "4096"),
        (OpTagsDel(kind="cluster", tags=["nosuch"]), "unknown_entity", "nosuch"),
        (OpTagsSearch(pattern="("), "wrong_input", "pattern"),
    ],
)
async def test_a_wrong_request_changes_nothing(
    master: Master, op: Any, code: str, text: str
) -> None:
    before = list(master.snapshot.objects())
    name, (message, got) = failed(await master.run(op))
    assert (name, got) == ("OpPrereqError", code)
    assert text in message
    assert list(master.snapshot.objects()) == before


async def test_an_object_has_as_many_tags_as_the_limit_allows(master: Master) -> None:
    many = [f"tag{number}" for number in range(4096)]
    succeeded(await master.run(OpTagsSet(kind="cluster", tags=[*many, "x" * 128][:4096])))
    _, (text, code) = failed(await master.run(OpTagsSet(kind="cluster", tags=["more"])))
    assert (code, "4097 tags: at most 4096" in text) == ("wrong_input", True)


async def test_jobs_that_change_the_same_tags_lose_nothing(master: Master) -> None:
    ids = [
        await master.submit(OpTagsSet(kind="cluster", tags=[f"tag{number}"]))
        for number in range(20)
    ]
    for job_id in ids:
        succeeded(await master.final(job_id))
    assert len(master.snapshot.cluster.tags) == 20


async def test_a_search_names_every_object_with_a_matching_tag(master: Master) -> None:
    succeeded(await master.run(create(disk_template="diskless", disks=[])))
    for kind, name in TARGETS:
        succeeded(await master.run(OpTagsSet(kind=kind, name=name, tags=["web:1", "other"])))
    assert succeeded(await master.run(OpTagsSearch(pattern="^web:"))) == [
        ["/cluster", "web:1"],
        ["/nodegroup/default", "web:1"],
        ["/nodes/node2.example.com", "web:1"],
        [f"/instances/{NAME}", "web:1"],
    ]


@pytest.mark.requirement("A23")
async def test_an_evil_pattern_ends_soon(master: Master) -> None:
    succeeded(await master.run(OpTagsSet(kind="cluster", tags=["a" * 128])))
    assert succeeded(await master.run(OpTagsSearch(pattern="(a+)+$!"))) == []
