"""Nodes are switched off by their devices, and believed to be off only when the devices say so."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.api.audit import MasterAudit
from ganeti.base.clock import SystemClock
from ganeti.base.ids import RandomIds
from ganeti.base.paths import Paths
from ganeti.config.config import Config
from ganeti.daemons.fencing import PowerFencing
from tests.support.fake_agent import AGENT, FakeAgent, programs_of
from tests.support.fake_rpc import FakeRpc, Fault
from tests.unit.config.sample import NODES, sample_config

pytestmark = pytest.mark.requirement("D7")

PASSWORD = "hunter2 of the BMC"
PROGRAM = "/usr/local/sbin/oob"


@dataclass
class Bench:
    """A master with three nodes; the second one has a fence agent."""

    config: Config
    rpc: FakeRpc
    power: PowerFencing
    agent: FakeAgent
    paths: Paths

    async def set(self, number: int = 2, secret: str = "", **params: object) -> None:
        def change(draft: Any) -> None:
            node = draft.nodes[NODES[number - 1]]
            draft.put(replace(node, ndparams={**node.ndparams, **params}, fence_secret=secret))

        await self.config.change(change)

    @property
    def audit(self) -> list[dict[str, Any]]:
        lines = (self.paths.root / "audit").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    tmp_path.chmod(0o755)
    paths = Paths(tmp_path)
    agent = FakeAgent(paths, tmp_path / "machine")
    store, config = await sample_config()
    rpc = FakeRpc({"node1.example.com": programs_of(paths)}, lambda: (1, "master"))
    clock = SystemClock()
    audit = MasterAudit(tmp_path / "audit", clock)
    power = PowerFencing(config, rpc, NODES[0], ids=RandomIds(), clock=clock, audit=audit)
    bench = Bench(config, rpc, power, agent, paths)
    await bench.set(fence_agent=AGENT, fence_options="ip=192.0.2.99 username=admin")
    yield bench
    await power.close()
    await config.close()
    await store.close()


async def test_node_is_off_when_its_agent_confirms_it(bench: Bench) -> None:
    result = await bench.power.cut(NODES[1])
    assert (result.is_fenced, result.detail) == (
        True, "fence_fake confirms that the power is off",
    )  # fmt: skip
    assert not bench.agent.is_on
    assert bench.agent.got("actions") == "off\nstatus\n"
    assert bench.agent.got("options") == "ip=192.0.2.99\nusername=admin\n" * 2
    [record] = bench.audit
    assert record["seconds"] > 0
    del record["seconds"], record["time"]
    assert record == {
        "user": "master", "method": "power off", "path": "node node2.example.com", "status": "done",
        "jobs": [], "device": "fence_fake", "why": "fence_fake confirms that the power is off",
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["slow", "fails-after-off", "hangs-after-off"])
async def test_device_is_asked_until_it_says_off(bench: Bench, mode: str) -> None:
    """The answer to the order is not what counts."""
    bench.agent.set("mode", mode)
    await bench.set(fence_timeout=3)
    assert (await bench.power.cut(NODES[1])).is_fenced
    assert bench.agent.got("actions").endswith("status\n")


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("lies", "its status is on"),
        ("loses-status", "status: exit status 1"),
        ("hangs", "did not end within"),
    ],
)
async def test_unconfirmed_off_is_not_believed(bench: Bench, mode: str, why: str) -> None:
    bench.agent.set("mode", mode)
    await bench.set(fence_timeout=1)
    began = asyncio.get_running_loop().time()
    result = await bench.power.cut(NODES[1])
    assert not result.is_fenced
    assert "has not confirmed it within 1 s" in result.detail
    assert why in result.detail
    assert asyncio.get_running_loop().time() - began < 3
    assert bench.audit[0]["status"] == "failed"


async def test_lost_answer_is_not_believed(bench: Bench) -> None:
    await bench.set(fence_timeout=1)
    for number in (1, 2):
        bench.rpc.fail(number, Fault.LOST_ANSWER)
    result = await bench.power.cut(NODES[1])
    assert not result.is_fenced
    assert "no answer" in result.detail


async def test_lost_answer_is_asked_for_again(bench: Bench) -> None:
    bench.rpc.fail(1, Fault.LOST_ANSWER)
    bench.rpc.fail(2, Fault.NOT_SENT)
    assert (await bench.power.cut(NODES[1])).is_fenced


@pytest.mark.requirement("G23")
async def test_password_reaches_only_the_agent(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bench.agent.set("password", PASSWORD)
    await bench.set(secret=PASSWORD)
    assert (await bench.power.cut(NODES[1])).is_fenced
    await bench.set(secret="wrong1234", fence_timeout=1)
    result = await bench.power.cut(NODES[1])
    assert "Unable to connect/login" in result.detail
    assert "<hidden>" in result.detail
    # The program of the agent has been told neither by arguments nor by its environment.
    shown = bench.agent.got("seen") + bench.agent.got("options") + json.dumps(bench.audit)
    shown += caplog.text + repr(result)
    for secret in (PASSWORD, "wrong1234"):
        assert secret not in shown


async def test_own_node_and_a_node_without_device_are_not_switched_off(bench: Bench) -> None:
    await bench.set(1, fence_agent=AGENT)
    for node, why in ((NODES[0], "its own node"), (NODES[2], "neither a fence agent nor")):
        result = await bench.power.cut(node)
        assert not result.is_fenced
        assert why in result.detail
    assert bench.agent.got("actions") == ""


async def test_agent_that_must_not_run_fails_at_once(bench: Bench) -> None:
    bench.agent.path.chmod(0o777)
    result = await bench.power.cut(NODES[1])
    assert "users other than its owner may write it" in result.detail
    bench.agent.path.unlink()
    result = await bench.power.cut(NODES[1])
    assert not result.is_fenced
    assert "it is not installed; install the Debian package fence-agents" in result.detail


async def test_options_that_are_not_allowed_any_more_are_no_fault_of_the_master(
    bench: Bench,
) -> None:
    """A stored configuration may have them, since nothing checks it again."""
    await bench.set(fence_options="passwd=x")
    result = await bench.power.cut(NODES[1])
    assert not result.is_fenced
    assert "option passwd must not be here" in result.detail


async def test_one_action_for_a_node_at_a_time(bench: Bench) -> None:
    results = await asyncio.gather(*(bench.power.cut(NODES[1]) for _ in range(3)))
    assert all(one.is_fenced for one in results)
    assert bench.agent.got("actions") == "off\nstatus\n" * 3


async def test_cancelled_action_ends_its_agent(bench: Bench) -> None:
    bench.agent.set("mode", "hangs")
    action = asyncio.create_task(bench.power.cut(NODES[1]))
    while not bench.agent.got("actions"):  # noqa: ASYNC110 - the agent is a process
        await asyncio.sleep(0.01)
    action.cancel()
    with pytest.raises(asyncio.CancelledError):
        await action
    await bench.power.close()
    assert [one.procedure for one in bench.rpc.calls] == ["fence_agent_run", "end_stale_work"]
    assert bench.audit[0]["why"] == "cancelled before the device has confirmed it"


async def test_out_of_band_program_confirms_as_an_agent_does(bench: Bench) -> None:
    path = bench.paths.below(PROGRAM)
    path.parent.mkdir(parents=True)
    state = bench.paths.root / "state"
    path.write_text(
        f"#!/bin/sh\n[ $1 = power-off ] && exec touch {state}\n[ -e {state} ] && on=false || on=true\n"
        'echo "{\\"powered\\": $on}"\n'
    )
    for one in (path, path.parent):
        one.chmod(0o755)
    await bench.set(3, oob_program=PROGRAM)
    assert (await bench.power.status(NODES[2], 5)).is_on
    assert (await bench.power.cut(NODES[2])).is_fenced
    assert (await bench.power.status(NODES[2], 5)).is_on is False


async def test_status_changes_nothing(bench: Bench) -> None:
    status = await bench.power.status(NODES[1], 5)
    assert (status.is_on, status.why) == (True, "")
    assert status.seconds > 0
    assert bench.agent.is_on
    bench.agent.set("mode", "hangs")
    status = await bench.power.status(NODES[1], 0.3)
    assert status.is_on is None
    assert "within 0.3 s" in status.why
