"""Changing the user-id pool: what comes of it, and what the nodes have against it."""

from typing import Any

import pytest

from ganeti.config.ssconf_writer import ssconf_values
from ganeti.model.opcodes.cluster import OpClusterSetParams
from tests.support.units_cluster import Master, failed, node_name, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


def modify(**fields: Any) -> OpClusterSetParams:
    return OpClusterSetParams(**fields)


@pytest.mark.requirement("S103", "S106", "S108")
async def test_the_pool_is_overwritten_enlarged_and_reduced(master: Master) -> None:
    steps: list[tuple[dict[str, Any], tuple[tuple[int, int], ...]]] = [
        ({"uid_pool": [(61000, 61009)]}, ((61000, 61009),)),
        ({"add_uids": [(62000, 62000)]}, ((61000, 61009), (62000, 62000))),
        ({"remove_uids": [(61003, 61004)]}, ((61000, 61002), (61005, 61009), (62000, 62000))),
        ({"uid_pool": [(70000, 70001)]}, ((70000, 70001),)),
        ({"uid_pool": []}, ()),
    ]
    for fields, pool in steps:
        succeeded(await master.run(modify(**fields)))
        assert master.snapshot.cluster.uid_pool == pool


@pytest.mark.requirement("S104", "S108")
async def test_the_facts_for_the_nodes_have_a_range_a_line(master: Master) -> None:
    succeeded(await master.run(modify(uid_pool=[(62000, 62000), (61000, 61009)])))
    assert ssconf_values(master.snapshot)["uid_pool"] == "61000-61009\n62000"


@pytest.mark.requirement("S106", "S107")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"uid_pool": [(5, 1)]}, "uid_pool"),
        ({"uid_pool": [(0, 1)]}, "uid_pool"),
        ({"uid_pool": [(1000, 1002), (1001, 1001)]}, "uid_pool"),
        ({"add_uids": [(61009, 61010)]}, "uid_pool"),
        ({"remove_uids": [(60999, 61000)]}, "remove_uids"),
        ({"remove_uids": [(5, 5)]}, "remove_uids"),
        ({"uid_pool": [(1, 2**32 - 1)]}, "uid_pool"),
        ({"uid_pool": [(1, 2**31)]}, "uid_pool"),
    ],
)
async def test_a_pool_that_cannot_be_is_refused(
    master: Master, fields: dict[str, Any], field: str
) -> None:
    succeeded(await master.run(modify(uid_pool=[(61000, 61009)])))
    name, [text, _code] = failed(await master.run(modify(**fields)))
    assert name == "OpPrereqError"
    assert field in text
    assert master.snapshot.cluster.uid_pool == ((61000, 61009),)


@pytest.mark.requirement("S107", "A65")
async def test_the_id_of_a_user_on_some_node_is_refused_unless_forced(master: Master) -> None:
    master.world.node(2).uid_conflicts = ["user id 1000 belongs to anna"]
    _, [text, _code] = failed(await master.run(modify(uid_pool=[(1000, 1000)])))
    assert "node2.example.com user id 1000 belongs to anna" in text
    assert not master.snapshot.cluster.uid_pool
    view = await master.run(modify(uid_pool=[(1000, 1000)], force=True))
    succeeded(view)
    assert "belongs to anna" in said(view)
    assert master.snapshot.cluster.uid_pool == ((1000, 1000),)


async def test_a_node_that_does_not_answer_keeps_the_pool_from_changing(master: Master) -> None:
    del master.rpc.nodes[node_name(3)]
    _, [text, _code] = failed(await master.run(modify(uid_pool=[(61000, 61009)])))
    assert "cannot ask for the owners of the user ids" in text
    assert master.snapshot.cluster.uid_pool == ()


@pytest.mark.requirement("S106")
async def test_ids_in_use_are_removed_with_a_warning_that_reports_where(master: Master) -> None:
    succeeded(await master.run(modify(uid_pool=[(61000, 61009)])))
    master.world.node(3).uids_in_use = [61003, 61004, 61008]
    view = await master.run(modify(remove_uids=[(61000, 61005)]))
    succeeded(view)
    assert "61003-61004 is still used on node node3.example.com" in said(view)
    assert "61008" not in said(view)
    view = await master.run(modify(add_uids=[(61004, 61004)]))
    assert "processes run with 61004 on node node3.example.com" in said(view)


@pytest.mark.requirement("S105", "S230")
async def test_who_needs_a_pool_that_is_not_there_is_named(master: Master) -> None:
    instance = create(hypervisor="kvm", hvparams={"security_model": "pool"}, start=False)
    succeeded(await master.run(modify(uid_pool=[(61000, 61009)])))
    succeeded(await master.run(instance))
    view = await master.run(modify(uid_pool=[]))
    assert f"1 instances have security_model=pool, the first is {NAME}" in said(view)
    view = await master.run(modify(uid_pool=[(61000, 61009)], hvparams={"kvm": {"acpi": True}}))
    assert "security_model" not in said(view)
