"""An edit that began on an older state is refused, and the decision is made under the lock of the object."""

import asyncio
from typing import Any

import msgspec
import pytest

from ganeti.model.opcode_table import OPCODES
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.group import OpGroupSetParams
from ganeti.model.opcodes.network import OpNetworkAdd, OpNetworkSetParams
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.opcodes.tags import OpTagsDel, OpTagsSet
from ganeti.units.expected import EDITED
from tests.support.units_cluster import Master, failed, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = pytest.mark.virtual_time

EDITS: list[OpCode] = [
    modify(beparams={"vcpus": 2}),
    OpNodeSetParams(node_name="node2", ndparams={"ssh_port": 2222}),
    OpGroupSetParams(group_name="default", alloc_policy="last_resort"),
    OpNetworkSetParams(network_name="net1", gateway="192.0.2.1"),
    OpClusterSetParams(candidate_pool_size=9),
    OpTagsSet(kind="instance", name=NAME, tags=["b"]),
    OpTagsDel(kind="instance", name=NAME, tags=["a"]),
]


async def with_objects(master: Master) -> None:
    succeeded(await master.run(create(disk_template="diskless", disks=[], tags=["a"])))
    succeeded(await master.run(OpNetworkAdd(network_name="net1", network="192.0.2.0/24")))


def serial_of(master: Master, op: OpCode) -> int:
    return EDITED[type(op)](master.snapshot, op).serial_no


def expecting(op: OpCode, serial: int) -> Any:
    return msgspec.structs.replace(op, expected_serial=serial)


def test_every_opcode_with_the_field_has_its_object() -> None:
    having = {kind for kind in OPCODES.values() if "expected_serial" in kind.__struct_fields__}
    assert having == set(EDITED) == {type(op) for op in EDITS}


@pytest.mark.parametrize("op", EDITS, ids=lambda op: op.op_id())
async def test_edit_of_the_present_state_is_done(master: Master, op: OpCode) -> None:
    await with_objects(master)
    before = serial_of(master, op)
    succeeded(await master.run(expecting(op, before)))
    assert serial_of(master, op) > before


@pytest.mark.parametrize("op", EDITS, ids=lambda op: op.op_id())
async def test_edit_of_an_older_state_is_refused(master: Master, op: OpCode) -> None:
    await with_objects(master)
    now = serial_of(master, op)
    before = list(master.snapshot.objects())
    _, (text, code) = failed(await master.run(expecting(op, now - 1)))
    assert code == "wrong_state"
    assert f"its serial_no is {now}, and the request expects {now - 1}" in text
    assert list(master.snapshot.objects()) == before


async def test_of_two_edits_that_wait_for_the_lock_only_the_first_is_done(master: Master) -> None:
    """Both knew the present state when they were submitted; the lock decides."""
    await with_objects(master)
    now = serial_of(master, EDITS[0])
    edits = [expecting(modify(beparams={"vcpus": count}), now) for count in (2, 3, 4)]
    ids = [await master.submit(one) for one in edits]
    jobs = await asyncio.gather(*(master.final(one) for one in ids))
    assert [str(job.status) for job in jobs] == ["success", "error", "error"]
    assert master.instance(NAME).beparams["vcpus"] == 2
    for job in jobs[1:]:
        assert "has changed since it was read" in failed(job)[1][0]
