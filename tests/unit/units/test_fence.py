"""Tests of devices that switch nodes off, their passwords, and the findings of verify about them."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.changes import HIDDEN
from ganeti.daemons.fencing import PowerFencing
from ganeti.model.job import LOCAL_SOURCE, remote_source
from ganeti.model.objects import Maintenance
from ganeti.model.opcodes.cluster import OpClusterSetParams, OpClusterVerifyConfig
from ganeti.model.opcodes.commands import OpOobCommand
from ganeti.model.opcodes.fencing import OpNodeFencePassword, OpNodeFenceTest
from ganeti.model.opcodes.node import OpNodeSetParams
from ganeti.rpc.procedures.commands import CommandOutput, FenceAgentArgs
from ganeti.simulation.virtual_time import LoopClock
from ganeti.units.cluster.fence_findings import DeviceAnswers, fence_findings
from tests.support.fake_agent import NoAudit
from tests.support.units_cluster import NODES, Master, World, failed, said, succeeded
from tests.unit.units.opcodes import create
from tests.unit.units.test_job_source import run_as

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("D7")]

AGENT = "fence_model"
PASSWORD = "hunter2-of-the-bmc"
NAME2 = "node2.example.com"


class Device:
    """A management controller with a password."""

    def __init__(self) -> None:
        self.is_on = True
        self.password = ""
        self.actions: list[str] = []

    def run(self, args: FenceAgentArgs) -> CommandOutput:
        self.actions.append(args.action)
        if args.password != self.password:
            return CommandOutput(status=1, stderr="Failed: Unable to connect/login")
        if args.action == "status":
            return CommandOutput(status=0 if self.is_on else 2)
        self.is_on = args.action != "off"
        return CommandOutput(status=0)


@pytest.fixture
async def device(master: Master, world: World) -> Device:
    """The device of node2, which every candidate can use."""
    power = PowerFencing(
        master.config, master.rpc, NODES[0], ids=world.ids, clock=LoopClock(), audit=NoAudit()
    )
    object.__setattr__(master.services, "power", power)
    device = Device()
    world.node(1).fence_agents[AGENT] = device.run
    params = {"fence_agent": AGENT, "fence_options": "ip=192.0.2.99"}
    succeeded(await master.run(OpNodeSetParams(node_name="node2", ndparams=params)))
    return device


async def change_node(master: Master, number: int, **fields: Any) -> None:
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[number - 1]], **fields)))


async def test_harmless_test_shows_what_recovery_would_do(master: Master, device: Device) -> None:
    result = succeeded(await master.run(OpNodeFenceTest(node_name="node2")))
    seconds = result.pop("seconds")
    assert seconds >= 0
    assert result == {
        "node": NAME2, "device": AGENT, "kind": "agent", "has_password": False, "timeout_s": 60.0,
        "methods": ["power", "watchdog"], "is_on": True, "storage": {}, "notes": [],
        "plan": f"If {NAME2} is lost: {AGENT} switches {NAME2} off, at most 60 s, until its answer to a"
        " status question is off.",
    }  # fmt: skip
    assert device.actions == ["status"]
    master.check_nothing_is_held()


async def test_test_names_what_is_missing(master: Master, world: World, device: Device) -> None:
    error = failed(await master.run(OpNodeFenceTest(node_name="node3")))[1][0]
    assert "neither a fence agent nor an out-of-band program" in error
    await change_node(master, 3, master_candidate=True)
    params = {"fence_methods": "watchdog"}
    succeeded(await master.run(OpNodeSetParams(node_name="node2", ndparams=params)))
    result = succeeded(await master.run(OpNodeFenceTest(node_name="node2")))
    assert "fence_methods has no power" in result["notes"][0]
    assert "node3.example.com cannot run fence_model: it is not installed" in result["notes"][1]
    device.password = "other"
    error = failed(await master.run(OpNodeFenceTest(node_name="node2")))[1][0]
    assert "Unable to connect/login" in error
    assert f"gnt-node fence-password {NAME2}" in error
    world.node(1).fence_agents.clear()
    error = failed(await master.run(OpNodeFenceTest(node_name="node2")))[1][0]
    assert "it is not installed" in error


async def test_power_commands_use_the_agent_of_a_node_without_a_program(
    master: Master, device: Device
) -> None:
    def oob(command: str, **fields: Any) -> OpOobCommand:
        return OpOobCommand(command=command, node_names=["node2"], **fields)

    assert "not marked offline" in failed(await master.run(oob("power-off")))[1][0]
    succeeded(await master.run(oob("power-off", ignore_status=True)))
    assert not master.node(2).powered
    result = succeeded(await master.run(oob("power-status")))
    assert result == [[[0, NAME2], [0, {"powered": False}]]]
    assert succeeded(await master.run(oob("power-on"))) == [[[0, NAME2], [0, None]]]
    succeeded(await master.run(oob("power-cycle")))
    assert device.actions == ["off", "status", "on", "reboot"]
    assert master.node(2).powered
    assert "for its health" in failed(await master.run(oob("health")))[1][0]
    device.password = "other"
    view = await master.run(oob("power-status"))
    assert succeeded(view) == [[[0, NAME2], [2, None]]]
    assert "Unable to connect/login" in said(view)
    assert (
        "neither a fence agent nor"
        in failed(await master.run(OpOobCommand(command="power-status", node_names=["node3"])))[1][
            0
        ]
    )


async def test_out_of_band_program_is_used_before_the_agent(
    master: Master, world: World, device: Device
) -> None:
    program = "/usr/local/sbin/oob"
    world.node(1).oob_programs[program] = lambda _args: CommandOutput(status=0, stdout="")
    params = {"oob_program": program}
    succeeded(await master.run(OpNodeSetParams(node_name="node2", ndparams=params)))
    succeeded(await master.run(OpOobCommand(command="power-on", node_names=["node2"])))
    assert device.actions == []


def test_missing_device_that_is_part_of_a_greater_problem_is_not_named_again(
    master: Master,
) -> None:
    found = [one.name for one in fence_findings(master.snapshot, DeviceAnswers())]
    assert len(found) == 3
    named = fence_findings(master.snapshot, DeviceAnswers(), found[:1])
    assert [one.name for one in named] == found[1:]


async def test_node_in_use_is_not_switched_off(master: Master, device: Device) -> None:
    off = OpNodeFenceTest(node_name="node2", off=True)
    assert "gnt-node maintenance on" in failed(await master.run(off))[1][0]
    await change_node(master, 2, maintenance=Maintenance(0.0))
    succeeded(await master.run(create(pnode="node2")))
    assert "runs 1 instances" in failed(await master.run(off))[1][0]
    assert device.actions == []
    own = OpNodeFenceTest(node_name="node1", off=True)
    params = {"fence_agent": AGENT}
    succeeded(await master.run(OpNodeSetParams(node_name="node1", ndparams=params)))
    assert "is the master" in failed(await master.run(own))[1][0]
    assert device.is_on


@pytest.mark.parametrize("fields", [{"offline": True}, {"maintenance": Maintenance(0.0)}])
async def test_idle_node_is_switched_off(
    master: Master, device: Device, fields: dict[str, Any]
) -> None:
    await change_node(master, 2, **fields)
    result = succeeded(await master.run(OpNodeFenceTest(node_name="node2", off=True)))
    assert (result["is_on"], result["plan"]) == (False, f"{NAME2} is off.")
    assert device.actions == ["off", "status", "status"]


async def test_off_that_is_not_confirmed_fails_the_job(master: Master, device: Device) -> None:
    device.password = "other"
    await change_node(master, 2, offline=True)
    error = failed(await master.run(OpNodeFenceTest(node_name="node2", off=True)))[1][0]
    assert "is not known to be off" in error


@pytest.mark.requirement("G23", "F38")
async def test_password_is_in_no_job_and_no_answer(master: Master, device: Device) -> None:
    device.password = PASSWORD
    changes: list[Any] = []
    master.config.on_changed = lambda _job, objects: changes.extend(
        one.differences() for one in objects
    )
    view = await master.run(OpNodeFencePassword(node_name="node2", password=PASSWORD))
    assert succeeded(view) == f"The password for the fence agent of {NAME2} is stored"
    assert master.node(2).fence_secret == PASSWORD
    assert changes == [{"fence_secret": [None, HIDDEN]}]
    tested = await master.run(OpNodeFenceTest(node_name="node2"))
    assert succeeded(tested)["has_password"]
    verified = await master.run(OpClusterVerifyConfig())
    jobs = [row for row in master.world.disk.rows.values() if b"OP_NODE_FENCE" in row]
    assert jobs
    shown = [*map(repr, (view, tested, verified)), *map(said, (view, tested, verified))]
    assert all(PASSWORD not in text for text in shown)
    assert all(PASSWORD.encode() not in row for row in jobs)
    view = await master.run(OpNodeFencePassword(node_name="node2"))
    assert "is removed" in succeeded(view)
    assert master.node(2).fence_secret == ""


@pytest.mark.requirement("A44")
async def test_password_is_set_only_on_the_master(master: Master) -> None:
    op = OpNodeFencePassword(node_name="node2", password=PASSWORD)
    assert "only on the master" in failed(await run_as(master, remote_source("ann"), op))[1][0]
    wrong = replace(op, password="a\nip=192.0.2.1")
    error = failed(await run_as(master, LOCAL_SOURCE, wrong))[1][0]
    assert "no line feed" in error
    assert "192.0.2.1" not in error


async def findings(master: Master) -> list[str]:
    view = await master.run(OpClusterVerifyConfig(error_codes=True))
    assert succeeded(view) is True
    return [line for line in said(view).splitlines() if "ENODEFENCE" in line]


async def protect(master: Master) -> None:
    succeeded(await master.run(create()))
    params = {"recovery": "failover"}
    succeeded(await master.run(OpClusterSetParams(beparams=params)))


async def test_verify_warns_only_where_an_instance_is_protected(
    master: Master, device: Device
) -> None:
    assert await findings(master) == []
    assert device.actions == []
    await protect(master)
    first, third = await findings(master)
    assert "WARNING:ENODEFENCE:node:node1.example.com:cannot be fenced by power" in first
    assert "node3.example.com" in third
    assert device.actions == ["status"]


async def test_verify_warns_about_devices_that_do_not_work(
    master: Master, world: World, device: Device
) -> None:
    await protect(master)
    for number in (1, 3):
        op = OpNodeSetParams(node_name=f"node{number}", ndparams={"fence_methods": "watchdog"})
        succeeded(await master.run(op))
    assert await findings(master) == []
    device.is_on = False
    [text] = await findings(master)
    assert "says that its power is off" in text
    device.password = "other"
    [text] = await findings(master)
    assert "does not tell its power status: Failed: Unable to connect/login" in text
    world.node(1).fence_agents.clear()
    status, agent = await findings(master)
    assert "it is not installed" in status
    assert "as the master it could fence no node by fence_model" in agent
