"""Incremental backups for clients of the REST interface: what nodes have, and which of them did not answer."""

import dataclasses
from typing import Any

import msgspec
import pytest

from ganeti.model.names import Consistency
from ganeti.model.objects import Node
from ganeti.rpc.procedures.backups import PointDisk, PointInfo
from tests.support.rest import GUEST, READER, TENANT, RestRig

TARGET = "/srv/ganeti/backup"
ALL = "/2/backups"
FIRST, SECOND = "20261127-180500", "20261128-180500"


def point(instance: str, name: str, **more: Any) -> PointInfo:
    given = {"time": 1.5, "consistency": Consistency.CRASH, "stored": 3 << 20,
             "disks": [PointDisk(disk="d", size=1 << 30)], **more}  # fmt: skip
    return PointInfo(target=TARGET, instance=instance, point=name, **given)


@pytest.fixture(autouse=True)
def points(rig: RestRig) -> None:
    rig.master.nodes.points = {
        "node1": [
            point("web1.example.com", FIRST),
            point("web1.example.com", SECOND, parent=FIRST),
        ],
        "node2": [point("web2.example.com", FIRST), point("web1-old.example.com", FIRST)],
    }


async def test_backups_of_all_nodes_are_listed(rig: RestRig) -> None:
    found = (await rig.ask("GET", ALL, user=READER)).json
    assert [(one["node"], one["instance"], one["backup"]) for one in found["points"]] == [
        ("node1.example.com", "web1.example.com", FIRST),
        ("node1.example.com", "web1.example.com", SECOND),
        ("node2.example.com", "web2.example.com", FIRST),
        ("node2.example.com", "web1-old.example.com", FIRST),
    ]
    last = found["points"][1]
    assert (last["target"], last["parent"], last["consistency"]) == (TARGET, FIRST, "crash")
    assert (last["disk_size"], last["stored"], last["problem"], last["ctime"]) == (
        1024,
        3,
        None,
        1.5,
    )
    assert (last["proof"], last["checked"], last["failure"]) == ("unproven", None, None)
    assert found["points"][0]["parent"] is None


async def test_nodes_without_an_answer_are_named_beside_the_backups_of_others(rig: RestRig) -> None:
    rig.master.nodes.silent = {"node1"}
    shown = rig.master.config.snapshot
    offline = {
        uuid: msgspec.structs.replace(one, offline=one.name.startswith("node3"))
        for uuid, one in shown.nodes.items()
    }
    rig.master.config.snapshot = dataclasses.replace(shown, tables={**shown.tables, Node: offline})
    found = (await rig.ask("GET", ALL)).json
    assert found["silent"] == ["node1.example.com"]
    assert found["offline"] == ["node3.example.com"]
    assert {one["node"] for one in found["points"]} == {"node2.example.com"}


async def test_backup_with_an_unusable_manifest_says_why(rig: RestRig) -> None:
    broken = PointInfo(target=TARGET, instance="web1.example.com", point=FIRST, problem="is torn")
    rig.master.nodes.points = {"node1": [broken]}
    [found] = (await rig.ask("GET", ALL)).json["points"]
    assert (found["problem"], found["ctime"], found["stored"]) == ("is torn", None, None)


async def test_backups_of_one_instance_are_listed_also_after_its_removal(rig: RestRig) -> None:
    for name, count in (("web1", 2), ("web1-old", 1), ("unknown", 0)):
        found = (await rig.ask("GET", f"/2/instances/{name}.example.com/backups")).json
        assert len(found["points"]) == count


async def test_limited_user_sees_only_own_backups(rig: RestRig) -> None:
    found = (await rig.ask("GET", ALL, user=TENANT)).json
    assert {one["instance"] for one in found["points"]} == {
        "web1.example.com",
        "web1-old.example.com",
    }
    own = await rig.ask("GET", "/2/instances/web1-old.example.com/backups", user=TENANT)
    assert (own.status, len(own.json["points"])) == (200, 1)
    assert (
        await rig.ask("GET", "/2/instances/web2.example.com/backups", user=TENANT)
    ).status == 404


async def test_user_who_may_only_list_sees_no_backups(rig: RestRig) -> None:
    assert (await rig.ask("GET", ALL, user=GUEST)).status == 403
