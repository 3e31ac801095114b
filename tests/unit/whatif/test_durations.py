"""The model file: durations measured from the logs of jobs."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import InputError
from ganeti.simulation.durations import Durations
from ganeti.whatif.command import table
from ganeti.whatif.durations import durations_of, measured, model_text, parse_model, shown
from tests.unit.cli.conftest import master, run, surroundings
from tests.unit.cli.fake_master import FakeMaster, Run

__all__ = ["master", "run", "surroundings"]


def entry(at: float, text: str) -> list[Any]:
    return [1, [int(at), round(at % 1 * 1e6)], "message", text]


def creation(number: int, *, status: str = "success") -> dict[str, Any]:
    log = [
        entry(100, "* creating instance disks..."),
        entry(102, "* waiting for the copies to be the same..."),
        entry(103, " - INFO: disk 0: 37.0% (1136 of 3072 MiB), 85 MiB/s, 23s left"),
        entry(130, "* running the instance OS create scripts..."),
        entry(160 + number, "* starting instance..."),
    ]
    return {
        "id": number,
        "ops": [{"OP_ID": "OP_INSTANCE_CREATE"}],
        "opstatus": [status],
        "oplog": [log],
        "opend": [[163 + number, 500000]],
    }


def test_steps_last_until_the_next_one_and_rates_are_read() -> None:
    model = measured("c", [creation(number) for number in range(3)])
    assert model.durations == {
        "disk_create_s": 2.0,
        "install_s": 31.0,
        "resync_mib_s": 85.0,
        "start_s": 3.5,
    }
    assert model.measured["install_s"].count == 3
    assert parse_model(model_text(model), "m.json").start_s == 3.5
    assert parse_model(model_text(model), "m.json").boot_s == Durations().boot_s
    assert any("31  (3 measurements, 30 to 32)" in line for line in shown(model))


def test_works_vary_as_they_were_measured() -> None:
    model = measured("c", [creation(number) for number in (0, 1, 9)])
    deciles = [30.0, 30.2, 30.4, 30.6, 30.8, 31.0, 32.6, 34.2, 35.8, 37.4, 39.0]
    assert list(model.measured["install_s"].deciles) == deciles
    durations, dice = parse_model(model_text(model), "m.json"), random.Random(1)
    drawn = sorted(durations.drawn("install_s", dice) for _ in range(1000))
    assert 30 <= drawn[0] < 30.1
    assert 38.9 < drawn[-1] <= 39
    assert drawn[500] == pytest.approx(31, abs=0.5)
    assert durations.drawn("boot_s", dice) == Durations().boot_s
    assert "resync_mib_s" in model.measured
    assert "resync_mib_s" not in durations.spread, "rates do not vary"
    fixed = measured("c", [creation(1)] * 3)
    assert parse_model(model_text(fixed), "m.json").drawn("install_s", dice) == 31
    other = durations_of({"install_s": 62.0}, "body", model.measured)
    assert 60 <= other.drawn("install_s", dice) <= 78


def moved(number: int, kind: str, *log: list[Any], end: float) -> dict[str, Any]:
    ends = [int(end), round(end % 1 * 1e6)]
    return {"id": number, "ops": [{"OP_ID": kind}], "opstatus": ["success"], "oplog": [log],
            "opend": [ends]}  # fmt: skip


def test_job_without_steps_is_no_obstacle() -> None:
    jobs = [moved(one, "OP_CLUSTER_SET_PARAMS", end=5.0) for one in range(3)]
    notes = [moved(one, "OP_TAGS_SET", entry(1, " - INFO: done"), end=5.0) for one in range(3)]
    assert measured("c", [*jobs, *notes]).durations == {}


def test_moves_tell_the_time_of_a_stop_a_start_and_a_migration() -> None:
    failovers = [
        moved(
            number,
            "OP_INSTANCE_FAILOVER",
            entry(10, "* shutting down the instance on n1 (at most 120 s)..."),
            entry(14, "* starting the instance on n2..."),
            end=16.5,
        )
        for number in range(3)
    ]
    migrations = [
        moved(
            number,
            "OP_INSTANCE_MIGRATE",
            entry(19, "Migrating instance web1 from n1 to n2"),
            entry(20, "* preparing n2 to accept the instance..."),
            entry(21, "* migrating the memory of the guest..."),
            entry(29, " - INFO: web1 runs on n2: 4096 KiB in 6500 ms, with a downtime of 3 ms"),
            end=30,
        )
        for number in range(3)
    ]
    durations = measured("c", [*failovers, *migrations]).durations
    assert durations == {"stop_s": 4.0, "start_s": 2.5, "migration_s": 2.5}


def test_few_measurements_and_failed_jobs_keep_the_defaults() -> None:
    assert measured("c", [creation(1), creation(2)]).durations == {}
    assert measured("c", [creation(one, status="error") for one in range(5)]).durations == {}
    assert measured("c", [{"id": 1}, {"id": 2, "ops": None}]).durations == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "m.json: "),
        (
            '{"cluster":"c","durations":{"boot":1}}',
            "durations.boot does not exist; did you mean boot_s?",
        ),
        ('{"cluster":"c","durations":{"boot_s":1e99}}', "durations.boot_s: 1e+99 must be above 0"),
        ('{"cluster":"c","durations":{"boot_s":0}}', "durations.boot_s: 0 must be above 0"),
        ('{"cluster":"c","durations":{"boot_s":"x"}}', "Expected `float`"),
        ('{"cluster":"c","durations":{},"more":1}', "unknown field `more`"),
        ('{"cluster":"c","durations":{},"format":9}', "has format 9; this version reads format 1"),
    ],
)
def test_wrong_model_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_model(text, "m.json")
    assert message in str(refused.value)


def test_learn_writes_the_model_and_only_asks(master: FakeMaster, run: Run, tmp_path: Path) -> None:
    master.replies["QueryClusterInfo"] = {"name": "cluster.example.com"}
    master.replies["Query"] = lambda _kind, fields, _filter: {
        "fields": [],
        "data": [[[0, creation(number)[name]] for name in fields] for number in range(3)],
    }
    file = tmp_path / "model.json"
    code, out, err = run(table, "learn", "-o", str(file))
    assert (code, err) == (0, "")
    assert "Durations of cluster.example.com:" in out
    assert json.loads(file.read_text())["durations"]["start_s"] == 3.5
    assert set(master.methods()) == {"QueryClusterInfo", "Query"}


@pytest.mark.parametrize(
    ("value", "deciles"),
    [(1, [2, 1]), (1, [0, 1]), (0, [1, 2]), (1, [1, 1e99]), (1, [1] * 12)],
)
def test_wrong_deciles_are_refused(value: float, deciles: list[float]) -> None:
    measurement = {"value": value, "count": 3, "deciles": deciles}
    model = {"cluster": "c", "durations": {"boot_s": 1}, "measured": {"boot_s": measurement}}
    with pytest.raises(InputError, match=r"m.json: measured\.boot_s\.deciles: must be at most 11"):
        parse_model(json.dumps(model), "m.json")
