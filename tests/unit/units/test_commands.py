"""Out-of-band management, restricted commands, lines of shell and copies of files, as jobs."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.job import Submitter
from ganeti.model.opcodes.cluster import OpClusterSetParams, OpClusterVerifyConfig
from ganeti.model.opcodes.commands import (
    OpClusterCommand,
    OpClusterCopyFile,
    OpOobCommand,
    OpRestrictedCommand,
)
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.model.outofband import OobCommand, parse_answer
from ganeti.rpc.procedures.commands import CommandOutput, OobArgs
from ganeti.rpc.procedures.files import NodeFile
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded

pytestmark = pytest.mark.virtual_time

PROGRAM = "/usr/local/sbin/oob"
NAME2 = "node2.example.com"


def answering(**answers: str) -> Callable[[OobArgs], CommandOutput]:
    """An out-of-band program: what it says, by command (with `_` for `-`)."""

    def run(args: OobArgs) -> CommandOutput:
        said = answers.get(args.command.replace("-", "_"), "")
        return (
            CommandOutput(status=1, stderr="no")
            if said == "FAIL"
            else CommandOutput(status=0, stdout=said)
        )

    return run


async def with_program(master: Master, world: World, **answers: str) -> None:
    world.node(1).oob_programs[PROGRAM] = answering(**answers)
    succeeded(await master.run(OpClusterSetParams(ndparams={"oob_program": PROGRAM})))


def oob(command: str, *names: str, **fields: Any) -> OpOobCommand:
    return OpOobCommand(command=command, node_names=list(names), **fields)


async def offline(master: Master, number: int) -> None:
    def change(draft: Any) -> None:
        draft.put(replace(draft.nodes[NODES[number - 1]], offline=True))

    await master.change(change)


async def test_a_node_is_switched_off_and_on_and_that_is_recorded(
    master: Master, world: World
) -> None:
    await with_program(master, world)
    await offline(master, 2)
    assert succeeded(await master.run(oob("power-off", "node2"))) == [[[0, NAME2], [0, None]]]
    assert not master.node(2).powered
    succeeded(await master.run(oob("power-on", "node2")))
    assert master.node(2).powered
    assert world.node(1).oob_ran == [("power-off", NAME2), ("power-on", NAME2)]


async def test_what_must_not_be_switched_off(master: Master, world: World) -> None:
    await with_program(master, world)
    assert "not marked offline" in failed(await master.run(oob("power-off", "node2")))[1][0]
    assert "is the master" in failed(await master.run(oob("power-off", "node1")))[1][0]
    assert "is the master" in failed(await master.run(oob("power-cycle", "node1")))[1][0]
    assert world.node(1).oob_ran == []
    succeeded(await master.run(oob("power-off", "node2", ignore_status=True)))


async def test_all_nodes_are_all_but_the_master(master: Master, world: World) -> None:
    await with_program(master, world)
    succeeded(await master.run(oob("power-off", ignore_status=True)))
    assert [name for _command, name in world.node(1).oob_ran] == [NAME2, "node3.example.com"]


async def test_a_node_without_a_program_is_reported(master: Master) -> None:
    assert (
        "nor an out-of-band program" in failed(await master.run(oob("power-status", "node2")))[1][0]
    )
    result = succeeded(await master.run(oob("power-status")))
    assert [status for _name, (status, _data) in result] == [3, 3, 3]


async def test_the_power_status_that_the_cluster_did_not_know_is_recorded(
    master: Master, world: World
) -> None:
    await with_program(master, world, power_status='{"powered": false}')
    view = await master.run(oob("power-status", "node2"))
    assert succeeded(view) == [[[0, NAME2], [0, {"powered": False}]]]
    assert "is switched off; the recorded state was different" in said(view)
    assert not master.node(2).powered


@pytest.mark.parametrize("answer", ["FAIL", "", "yes", '{"powered": 1}', "[]", "[" * 100_000])
async def test_an_answer_that_is_none_changes_nothing(
    master: Master, world: World, answer: str
) -> None:
    await with_program(master, world, power_status=answer)
    view = await master.run(oob("power-status", "node2"))
    assert succeeded(view) == [[[0, NAME2], [2, None]]]
    assert "power-status of node2.example.com" in said(view)
    assert master.node(2).powered


async def test_health_is_a_list_of_items(master: Master, world: World) -> None:
    items = [["fan", "OK"], ["disk", "CRITICAL"]]
    await with_program(master, world, health=json.dumps(items))
    assert succeeded(await master.run(oob("health", "node2"))) == [[[0, NAME2], [0, items]]]
    with pytest.raises(ValueError, match="must be a list"):
        parse_answer(OobCommand.HEALTH, '[["fan", "GREAT"]]')
    with pytest.raises(ValueError, match="must print nothing"):
        parse_answer(OobCommand.POWER_ON, "done")


@pytest.mark.requirement("A44")
async def test_remote_users_cannot_choose_a_program(master: Master) -> None:
    for params in (
        {"oob_program": "/bin/true"},
        {"fence_agent": "fence_ipmilan"},
        {"fence_options": "ipmitool_path=/bin/true"},
    ):
        for op in (
            OpNodeSetParams(node_name="node2", ndparams=params),
            OpClusterSetParams(ndparams=params),
        ):
            job_id = await master.queue.submit([op], submitter=Submitter("rapi:someone"))
            assert "can be set only on the master" in failed(await master.final(job_id))[1][0]
    job_id = await master.queue.submit(
        [OpClusterCommand(command="id", node_names=[])], submitter=Submitter("rapi:someone")
    )
    assert "only on the master" in failed(await master.final(job_id))[1][0]


async def test_a_program_that_candidates_cannot_run_is_found_by_verify(
    master: Master, world: World
) -> None:
    await with_program(master, world)
    view = await master.run(OpClusterVerifyConfig(error_codes=True))
    assert "ENODEOOBPATH" not in said(view)
    world.node(1).oob_programs.clear()
    view = await master.run(OpClusterVerifyConfig(error_codes=True))
    assert succeeded(view) is False
    assert f"ERROR:ENODEOOBPATH:node:node1.example.com:out-of-band program {PROGRAM}" in said(view)


async def test_the_power_of_a_node_can_be_recorded_by_hand(master: Master, world: World) -> None:
    op = OpNodeSetParams(node_name="node2", powered=False)
    assert "nor an out-of-band program" in failed(await master.run(op))[1][0]
    await with_program(master, world)
    assert succeeded(await master.run(op)) == [["powered", False]]
    assert not master.node(2).powered


@pytest.mark.requirement("A31")
async def test_a_restricted_command_is_run_on_nodes_that_have_it(
    master: Master, world: World
) -> None:
    world.node(2).restricted_commands["show"] = CommandOutput(status=0, stdout="shown")
    world.node(3).restricted_commands["show"] = CommandOutput(status=1)
    op = OpRestrictedCommand(nodes=["node2", "node3", "node1"], command="show")
    assert succeeded(await master.run(op)) == [
        [True, "shown"],
        [False, "exit status 1"],
        [False, "this node does not run that command; the reason is in its log"],
    ]
    for name in ("../show", "show arg", ""):
        view = await master.run(OpRestrictedCommand(nodes=["node2"], command=name))
        assert failed(view)[1][1] == "wrong_input"


async def test_a_line_of_shell_is_run_where_that_is_allowed(master: Master, world: World) -> None:
    world.node(2).runs_shell = True
    result = succeeded(await master.run(OpClusterCommand(command="uptime", node_names=[])))
    assert [[name, status] for name, status, _output in result] == [
        ["node1.example.com", -1],
        [NAME2, 0],
        ["node3.example.com", -1],
    ]
    assert (
        failed(await master.run(OpClusterCommand(command=" ", node_names=[])))[1][1]
        == "wrong_input"
    )


async def test_a_file_of_the_master_is_copied_to_nodes_that_take_it(
    master: Master, world: World
) -> None:
    file = NodeFile(path="/etc/motd", content=b"welcome", mode=0o644)
    world.node(1).shared_files = [file]
    world.node(3).forbidden_files.add("/etc/motd")
    master.rpc.reset()
    view = await master.run(OpClusterCopyFile(path="/etc/motd", node_names=[]))
    [[two, fine], [three, why]] = succeeded(view)
    assert (two, fine, three) == (NAME2, "", "node3.example.com")
    assert why
    assert world.node(2).files["/etc/motd"].content == b"welcome"
    assert "welcome" not in repr(view), "the content is in no job"
    missing = await master.run(OpClusterCopyFile(path="/etc/none", node_names=[]))
    assert "cannot be copied" in failed(missing)[1][0]
