"""The process behind a simulation by REST: what it accepts, tells and refuses, and that it ends with its input."""

import json
import subprocess
import sys
from typing import Any

import pytest

from ganeti.protocols.simulation_requests import Line
from ganeti.simulation.durations import Durations
from ganeti.whatif import requested
from ganeti.whatif.durations import Model
from ganeti.whatif.report import json_report
from ganeti.whatif.runs import reported
from ganeti.whatif.scenario import Scenario, Step, events
from tests.support.patience import patience
from tests.unit.whatif.small_cluster import small_source

LOSS: dict[str, Any] = {"name": "Lose it", "steps": [{"at": "1m", "fail-node": "node3"}]}


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requested, "read_source", lambda _name, _size: small_source())
    model = Model(cluster="c", durations={"boot_s": 33.0})
    monkeypatch.setattr(requested, "measured_model", lambda: model)


def told(**request: Any) -> list[Line]:
    lines: list[Line] = []
    requested.answer(json.dumps(request).encode(), lines.append)
    return lines


def test_report_is_that_of_the_command() -> None:
    first, *runs, last = told(scenario=LOSS, seed=3, seeds=2)
    assert first == Line()
    assert [one.done for one in runs] == [1, 2]
    scenario = Scenario(name="Lose it", steps=[Step(at="1m", fail_node="node3")])
    report = reported(
        small_source(),
        scenario,
        lambda source, seed: events(scenario.steps, source, seed),
        durations=Durations(),
        seeds=range(3, 5),
    )
    assert last.report == json_report(report)
    assert "<h1>Lose it</h1>" in last.html


def test_measured_durations_give_way_to_given_ones() -> None:
    found = json.loads(told(scenario=LOSS, measured=True, durations={"stop_s": 7})[-1].report)
    durations = found["durations"]
    assert (durations["boot_s"], durations["stop_s"]) == (33.0, 7.0)
    assert durations["start_s"] == Durations().start_s


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"scenario": LOSS, "seeds": 0}, "seeds: must be from 1 to 1000"),
        ({"scenario": {"steps": [{"fail-node": "node1"}, {}]}}, "step 2: has no action"),
        ({"scenario": {"steps": [{"fail-node": "node9"}]}}, "step 1: there is no node 'node9'"),
        ({"scenario": {"steps": [{"add-nodes": "two"}]}}, "step 1: add-nodes: must be a whole number"),
        ({"scenario": {"steps": [{"fail-nodes": "x"}]}}, "step 1: there is no field 'fail-nodes'; did you mean"),
        ({"scenario": {"stepps": []}}, "scenario: there is no field 'stepps'; did you mean"),
        ({"scenario": {"watch": "soon", "steps": []}}, "'soon' is not a time"),
        ({"scenario": LOSS, "node_size": "big"}, "'big' is not MEMORY,DISK,CPUS"),
        ({"scenario": LOSS, "durations": {"boot": 1}}, "durations.boot does not exist"),
        ({}, "scenario"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_is_refused_before_anything_runs(request_: Any, why: str) -> None:
    (line,) = told(**request_)
    assert why in line.refused


@pytest.mark.requirement("A10")
def test_lack_of_memory_is_a_failure_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_args: Any, **_words: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(requested, "reported", greedy)
    assert "run 'gnt-whatif' on a host" in told(scenario=LOSS)[-1].failed


@pytest.mark.requirement("G11")
def test_process_ends_with_its_input() -> None:
    words = [sys.executable, "-m", "ganeti.whatif.requested"]
    code = "import ganeti.whatif.requested as r, time; r.answer = lambda *a: time.sleep(1000); r.main()"
    for program in (words, [sys.executable, "-c", code]):
        with subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            process.stdin.write("{}\n")
            process.stdin.close()
            assert process.wait(30 * patience()) is not None
