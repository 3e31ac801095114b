"""OS definitions across nodes."""

import pytest

from ganeti.model.opcodes.os import OpOsDiagnose
from tests.support.units_cluster import Master, failed, said, succeeded

pytestmark = pytest.mark.virtual_time


def diagnose(*names: str) -> OpOsDiagnose:
    return OpOsDiagnose(output_fields=["name", "valid", "variants", "node_status"], names=[*names])


async def test_a_definition_is_valid_if_every_node_has_the_same(master: Master) -> None:
    master.world.node(1).oses["half"] = "1"
    master.world.node(2).oses["tiny"] = "2.0"
    rows = succeeded(await master.run(diagnose()))
    assert [row[:2] for row in rows] == [["half", False], ["tiny", False]]
    master.world.node(2).oses["tiny"] = "1.0"
    ((name, valid, _, nodes),) = succeeded(await master.run(diagnose("tiny")))
    assert (name, valid) == ("tiny", True)
    assert sorted(nodes) == [f"node{number}.example.com" for number in (1, 2, 3)]


async def test_a_silent_node_is_warned_about_and_left_out(master: Master) -> None:
    del master.rpc.nodes["node3.example.com"]
    view = await master.run(diagnose())
    assert [row[:2] for row in succeeded(view)] == [["tiny", True]]
    assert "WARNING: node node3.example.com" in said(view)


async def test_an_unknown_field_is_refused(master: Master) -> None:
    _, (text, code) = failed(await master.run(OpOsDiagnose(output_fields=["colour"])))
    assert code == "wrong_input"
    assert text.startswith("output_fields: unknown fields colour; known: ")
