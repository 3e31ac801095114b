"""Fence agents on a node: which run, what they get, and what is shown of their answers."""

from pathlib import Path

import pytest

from ganeti.base.errors import GanetiError, HostError, InputError
from ganeti.base.paths import Paths
from ganeti.model.fencing import check_password, parse_options, stored_options
from ganeti.node.fence_agents import NodeFenceAgents
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.commands import CommandOutput, FenceAgentArgs, FenceAgentsArgs
from tests.support.fake_agent import AGENT, FakeAgent

PASSWORD = "correct horse"


@pytest.fixture
def agent(tmp_path: Path) -> FakeAgent:
    tmp_path.chmod(0o755)
    return FakeAgent(Paths(tmp_path), tmp_path / "machine")


async def run(tmp_path: Path, **fields: object) -> CommandOutput:
    given = {"agent": AGENT, "action": "status", "timeout_s": 5.0, **fields}
    args = FenceAgentArgs(**given)  # type: ignore[arg-type]  # by the caller
    return await NodeFenceAgents(Paths(tmp_path)).run(args, Call())


@pytest.mark.requirement("A31")
@pytest.mark.parametrize(
    "fields",
    [
        {"agent": "../fence_fake"},
        {"agent": "sh"},
        {"agent": "fence_none"},
        {"action": "diag"},
        {"action": "off\npassword=x"},
        {"options": {"ip": "192.0.2.1\npassword=x"}},
        {"options": {"ip": "a b"}},
        {"options": {"ip=a port": "1"}},
        {"options": {"action": "on"}},
        {"options": {"passwd_script": "/bin/true"}},
        {"password": "a\nip=192.0.2.1"},
    ],
)
async def test_nothing_else_reaches_an_agent(
    tmp_path: Path, agent: FakeAgent, fields: dict[str, object]
) -> None:
    with pytest.raises(GanetiError):
        await run(tmp_path, **fields)
    assert agent.got("actions") == ""


@pytest.mark.requirement("G23")
async def test_agent_gets_its_password_on_standard_input(tmp_path: Path, agent: FakeAgent) -> None:
    agent.set("password", PASSWORD)
    assert (await run(tmp_path, password=PASSWORD)).status == 0
    said = await run(tmp_path, password="battery")
    assert (said.status, said.stderr) == (
        1, "Failed: Unable to connect/login to fencing device with <hidden>",
    )  # fmt: skip
    assert PASSWORD not in agent.got("seen")


async def test_hanging_agent_is_killed(tmp_path: Path, agent: FakeAgent) -> None:
    agent.set("mode", "hangs")
    said = await run(tmp_path, timeout_s=0.3)
    assert (said.status, said.stderr) == (-1, "did not end within 0.3 s and was killed")


async def test_agents_that_would_not_run_are_reported(tmp_path: Path, agent: FakeAgent) -> None:
    wanted = FenceAgentsArgs(agents=[AGENT, "fence_none", "fence_link"])
    agent.path.with_name("fence_link").symlink_to(agent.path)
    found = await NodeFenceAgents(Paths(tmp_path)).problems(wanted, Call())
    assert sorted(found) == ["fence_link", "fence_none"]
    assert "links are not followed" in found["fence_link"]
    assert "fence-agents" in found["fence_none"]
    agent.path.parent.chmod(0o777)
    with pytest.raises(HostError, match="may write it"):
        await run(tmp_path)


def test_options_are_words_without_passwords() -> None:
    assert parse_options(" ip=192.0.2.1  lanplus=1 ") == {"ip": "192.0.2.1", "lanplus": "1"}
    assert stored_options(" ip=192.0.2.1  lanplus=1 ", "x") == "ip=192.0.2.1 lanplus=1"
    for wrong in (
        "ip",
        "IP=1",
        "ip=",
        "passwd=x",
        "snmp_priv_passwd=x",
        "action=on",
        "a=1 a=2",
        "ip=\x00",
    ):
        with pytest.raises(InputError):
            parse_options(wrong)


@pytest.mark.parametrize("wrong", ["", " abcd", "abcd ", '"abcd"', "a\nb", "ä", "a" * 257])
def test_password_that_an_agent_cannot_read_is_refused_unseen(wrong: str) -> None:
    with pytest.raises(InputError) as caught:
        check_password(wrong)
    assert len(wrong) < 2 or wrong not in caught.value.message
