"""Simulations by the REST server: each is a process, few at a time, and each end of the process has its reason."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti.model import wire
from ganeti.protocols.simulation_requests import Line
from ganeti.web import simulations
from ganeti.web.refusals import Refusal
from ganeti.web.simulations import KEPT_LIMIT, Simulation, Simulations
from tests.support.patience import patience
from tests.support.predictable import FrozenClock
from tests.support.rest import ADMIN, GUEST, READER, TENANT, RestRig

SCENARIO: dict[str, Any] = {"scenario": {"name": "Lose it", "steps": [{"fail-node": "node1"}]}}
REPORT = Line(done=2, report='{"format": 1}', html="<h1>Lose it</h1>")
Play = Callable[..., Simulations]


@pytest.fixture
async def play(rig: RestRig, tmp_path: Path) -> AsyncIterator[Play]:
    """Return simulations whose process says these lines, when the file `go` lets it, and ends by `end`."""

    def played(*lines: Line, end: str = "exit 0", waits: bool = True) -> Simulations:
        said, go = tmp_path / "said", tmp_path / "go"
        said.write_bytes(b"".join(wire.encode(one) + b"\n" for one in lines))
        wait = f"while [ ! -e {go} ]; do sleep 0.01; done" if waits else "true"
        script = f"read -r request; head -1 {said}; {wait}; tail -n +2 {said}; {end}"
        rig.services.simulations = Simulations(FrozenClock(), ["sh", "-c", script])
        return rig.services.simulations

    yield played
    await rig.services.simulations.close()


async def ended(of: Simulations, user: str = ADMIN) -> Simulation:
    (one,) = of.of(user)
    assert one.task is not None
    await one.task
    return one


async def test_report_is_there_after_the_end(rig: RestRig, play: Play, tmp_path: Path) -> None:
    of = play(Line(), Line(done=1), REPORT)
    begun = await rig.ask("POST", "/2/whatif", {**SCENARIO, "seeds": 2})
    assert begun.status == 200
    path = f"/2/whatif/{begun.json['id']}"
    found = (await rig.ask("GET", path)).json
    assert (found["state"], found["name"], found["report"]) == ("running", "Lose it", None)
    early = await rig.ask("GET", f"{path}/report")
    assert (early.status, "still running" in early.explain) == (409, True)
    (tmp_path / "go").touch()
    await ended(of)
    found = (await rig.ask("GET", path)).json
    assert (found["state"], found["done"], found["seeds"]) == ("done", 2, 2)
    assert found["report"] == {"format": 1}
    page = await rig.ask("GET", f"{path}/report")
    assert page.body == b"<h1>Lose it</h1>"
    assert "script" not in page.headers["content-security-policy"]
    assert "sandbox" in page.headers["content-security-policy"]
    assert [one["id"] for one in (await rig.ask("GET", "/2/whatif")).json] == [begun.json["id"]]
    assert (await rig.ask("DELETE", path)).status == 200
    assert (await rig.ask("GET", path)).status == 404


async def test_refusal_of_the_process_is_that_of_the_request(rig: RestRig, play: Play) -> None:
    of = play(Line(refused="step 1: there is no node 'node9'"), waits=False)
    answer = await rig.ask("POST", "/2/whatif", SCENARIO)
    assert (answer.status, answer.explain) == (400, "step 1: there is no node 'node9'")
    assert of.of(ADMIN) == []


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "scenario"),
        ({"scenario": []}, "scenario"),
        ({"scenario": {}, "seeds": "many"}, "seeds"),
        ({"scenario": {}, "source": "/etc/shadow"}, "source"),
        ({"scenario": {}, "durations": {"boot_s": "x"}}, "durations"),
    ],
)
@pytest.mark.requirement("A11")
async def test_body_of_another_form_starts_no_process(rig: RestRig, body: Any, named: str) -> None:
    rig.services.simulations = Simulations(FrozenClock(), ["/nonexistent"])
    answer = await rig.ask("POST", "/2/whatif", body)
    assert answer.status == 400
    assert named in answer.explain


async def test_process_that_does_not_begin_is_an_error_of_the_server(
    rig: RestRig, play: Play
) -> None:
    rig.services.simulations = Simulations(FrozenClock(), ["/nonexistent"])
    missing = await rig.ask("POST", "/2/whatif", SCENARIO)
    assert (missing.status, "has not begun" in missing.explain) == (500, True)
    of = play(waits=False)
    assert (await rig.ask("POST", "/2/whatif", SCENARIO)).status == 500
    assert of.of(ADMIN) == []


@pytest.mark.parametrize(
    ("lines", "end", "why"),
    [
        ([Line(failed="needs more memory")], "exit 0", "needs more memory"),
        ([Line(done=1)], "exit 3", "its process ended (status 3)"),
        ([Line(done=1)], "kill -XCPU $$", "has used the processor for too long"),
        ([Line(report="x" * 5_000_000)], "exit 0", "its report is larger than 4 MiB"),
        ([Line(done=1)], "echo nonsense", "its process has sent something else"),
    ],
)
async def test_each_end_without_a_report_has_a_reason(
    rig: RestRig, play: Play, lines: list[Line], end: str, why: str
) -> None:
    of = play(Line(), *lines, end=end, waits=False)
    begun = await rig.ask("POST", "/2/whatif", SCENARIO)
    one = await ended(of)
    assert (one.state, why in one.error) == ("failed", True)
    page = await rig.ask("GET", f"/2/whatif/{begun.json['id']}/report")
    assert (page.status, why in page.explain) == (409, True)


async def test_simulation_that_takes_too_long_is_ended(
    rig: RestRig, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulations, "SLOWEST_S", 0.0)
    of = play(Line())
    await rig.ask("POST", "/2/whatif", SCENARIO)
    one = await ended(of)
    assert (one.state, "minutes" in one.error) == ("failed", True)


@pytest.mark.requirement("A10")
async def test_each_user_runs_one_and_all_users_two(rig: RestRig, play: Play) -> None:
    of = play(Line())
    first = await rig.ask("POST", "/2/whatif", SCENARIO)
    again = await rig.ask("POST", "/2/whatif", SCENARIO)
    assert (again.status, first.json["id"] in again.explain) == (429, True)
    assert again.headers["retry-after"] == "10"
    assert (await rig.ask("POST", "/2/whatif", SCENARIO, user=READER)).status == 200
    with pytest.raises(Refusal, match="of other users are running"):
        await of.begin("third", of.of(ADMIN)[0].request)
    assert (await rig.ask("DELETE", f"/2/whatif/{first.json['id']}")).status == 200
    assert (await rig.ask("POST", "/2/whatif", SCENARIO)).status == 200


@pytest.mark.requirement("A10")
async def test_only_the_latest_are_kept(rig: RestRig, play: Play) -> None:
    of = play(Line(), REPORT, waits=False)
    for _ in range(KEPT_LIMIT + 2):
        await rig.ask("POST", "/2/whatif", SCENARIO)
        latest = of.of(ADMIN)[-1]
        assert latest.task is not None
        await latest.task
    assert len(of.of(ADMIN)) == KEPT_LIMIT


@pytest.mark.requirement("A2", "G21")
async def test_users_see_their_own_simulations_and_limited_ones_none(
    rig: RestRig, play: Play
) -> None:
    play(Line(), REPORT, waits=False)
    begun = await rig.ask("POST", "/2/whatif", SCENARIO)
    path = f"/2/whatif/{begun.json['id']}"
    for method, one in (("GET", path), ("GET", f"{path}/report"), ("DELETE", path)):
        assert (await rig.ask(method, one, user=READER)).status == 404
        assert (await rig.ask(method, one, user=TENANT)).status == 403
        assert (await rig.ask(method, one, user=GUEST)).status == 403
    assert (await rig.ask("GET", "/2/whatif", user=READER)).json == []
    assert (await rig.ask("POST", "/2/whatif", SCENARIO, user=TENANT)).status == 403


@pytest.mark.parametrize("how", ["remove", "close"])
async def test_process_ends_with_its_simulation(rig: RestRig, play: Play, how: str) -> None:
    of = play(Line(), end="exec sleep 1000", waits=False)
    await rig.ask("POST", "/2/whatif", SCENARIO)
    (one,) = of.of(ADMIN)
    async with asyncio.timeout(30 * patience()):
        await (of.remove(one) if how == "remove" else of.close())
    assert one.task is not None
    assert one.task.done()
    assert one.state != "running"


async def test_process_gets_the_request_as_one_line(rig: RestRig, tmp_path: Path) -> None:
    got = tmp_path / "got"
    script = f'read -r request; printf %s "$request" > {got}; echo \'{{"refused": "no"}}\''
    rig.services.simulations = Simulations(FrozenClock(), ["sh", "-c", script])
    await rig.ask("POST", "/2/whatif", {**SCENARIO, "seed": 7, "measured": True})
    request = json.loads(got.read_text())
    assert request["scenario"] == SCENARIO["scenario"]
    assert (request["seed"], request["measured"]) == (7, True)
