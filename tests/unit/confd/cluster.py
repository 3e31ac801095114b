"""A small cluster as confd sees it: rows of real objects, one with secrets."""

from typing import Any

import msgspec

from ganeti.confd.facts import ClusterCopy
from ganeti.config.transaction import put_row
from ganeti.model.objects import Disk, Instance, Nic, NodeUuid
from ganeti.model.stored import Stored
from ganeti.protocols.confd import Query, QueryType, Request
from tests.unit.config.sample import (
    NODES,
    sample_cluster,
    sample_group,
    sample_instance,
    sample_node,
)

SECRET = "hunter2"
POSITION = 5 << 32 | 7


def request(kind: int, query: Query = None) -> Request:
    return Request(1, kind, "salt", query)


def ask(facts: ClusterCopy, kind: QueryType, query: Query = None) -> tuple[int, Any]:
    from ganeti.confd.answers import answer

    status, content = answer(facts, request(kind, query))
    return int(status), msgspec.json.decode(msgspec.json.encode(content))


def mirrored() -> Instance:
    """On two nodes, with what must never be told."""
    leaf = Disk(uuid="leaf", size=10, template="plain", logical_id=("xenvg", "name"))
    disk = Disk(
        uuid="disk",
        size=10,
        template="drbd",
        logical_id=(11000, SECRET),
        parts={NODES[0]: (0, "10.0.0.1", SECRET), NODES[1]: (4, "10.0.0.2", SECRET)},
        children=(leaf,),
        params={"password": SECRET},
    )
    return sample_instance(
        2,
        disk_template="drbd",
        disks=(disk,),
        secondary_nodes=(NODES[1],),
        nics=(
            Nic(uuid="n", mac="aa:00:00:00:00:02", ip="10.9.0.2", nicparams={"link": "br7"}),
            Nic(uuid="m", mac="aa:00:00:00:00:03", ip="10.9.0.3"),
        ),
        osparams_private={"root_password": SECRET},
        osparams={"shown": "yes"},
    )


def objects() -> list[Stored]:
    return [
        sample_cluster(
            master_ip="192.0.2.100",
            nicparams={"default": {"link": "br1"}},
            data_collector_interval={"lv": 7},
        ),
        sample_group(),
        sample_node(1, fence_secret=SECRET),
        sample_node(2, offline=True, master_candidate=False),
        sample_node(3, drained=True, master_candidate=False),
        sample_node(1, uuid=NodeUuid("u4"), name="node4.example.com", primary_ip="192.0.2.4"),
        sample_node(
            *(1,),
            uuid=NodeUuid("u5"),
            name="node5.example.com",
            primary_ip="192.0.2.5",
            master_candidate=False,
        ),
        sample_instance(1, nics=(Nic(uuid="o", mac="aa:00:00:00:00:01", ip="10.9.0.1"),)),
        mirrored(),
    ]


def facts_of(things: list[Stored]) -> ClusterCopy:
    facts = ClusterCopy()
    for thing in things:
        row = put_row(thing)
        facts.put(row.kind, row.key, row.value)
    facts.position = POSITION
    return facts
