"""Scenarios on the engine: the real master, simulated nodes; the command from the source to the report."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.cli.command import run_guarded
from ganeti.model.objects import Instance, Node
from ganeti.simulation.durations import Durations
from ganeti.simulation.example import configuration, instance_name, node_name
from ganeti.whatif.command import table, with_default
from ganeti.whatif.history import History
from ganeti.whatif.report import Run, run_of
from ganeti.whatif.scenario import events
from ganeti.whatif.scenario_options import step_of
from ganeti.whatif.simulate import simulate, sizes_with
from ganeti.whatif.source import NodeSize, Source
from ganeti.whatif.sources import file_source
from tests.unit.whatif.small_cluster import TEXT, small_source
from tests.unit.whatif.test_sources import backup_of

SIZE = NodeSize(memory=8192, disk=200_000, cpus=8)


def source(nodes: int = 5, instances: int = 10, *, recovery: str = "failover") -> Source:
    """Instances on shared storage; odd nodes are in rack:r1, even ones in rack:r2."""
    objects = tuple(
        replace(one, tags=(f"rack:r{1 + index % 2}",)) if isinstance(one, Node) else one
        for index, one in enumerate(configuration(nodes, instances, recovery=recovery))
    )
    sizes = {one.uuid: SIZE for one in objects if isinstance(one, Node)}
    return Source("backup", "cluster.example.com", objects, sizes)


def simulated(
    one: Source, *options: str, watch_s: float | None = None, seed: int = 1
) -> tuple[History, Run]:
    steps = [step_of(*option.split("=", 1)) for option in options]
    happening = events(steps, one, seed)
    history = simulate(one, happening, Durations(), seed=seed, watch_s=watch_s)
    return history, run_of(history, sizes_with(one, happening), seed)


def test_protected_instances_of_a_lost_node_run_elsewhere_with_reasons() -> None:
    _history, run = simulated(source(), f"fail-node={node_name(4)}@1m")
    assert [one.instance for one in run.outages] == [instance_name(4), instance_name(9)]
    for one in run.outages:
        assert one.began == 60.0
        assert one.is_over
        reasons = one.by_reason()
        assert {"detection", "fencing", "start", "boot"} <= reasons.keys()
        assert sum(reasons.values()) == pytest.approx(one.length, abs=0.01)
        assert reasons["boot"] == 20.0
        assert reasons["start"] == 2.0
    assert run.still_down == ()
    assert run.after.nodes == 4


def test_unprotected_instances_wait_for_their_node() -> None:
    _history, run = simulated(source(recovery="none"), f"fail-node={node_name(4)}@1m/10m")
    assert {one.instance for one in run.outages} == {instance_name(4), instance_name(9)}
    for one in run.outages:
        assert one.is_over
        assert one.new_node == node_name(4)
        assert one.by_reason()["its node is down"] == pytest.approx(
            720.0
        )  # ten minutes, and the boot
        assert "waiting for the watcher" in one.by_reason()


def test_lost_rack_leaves_what_does_not_fit_with_the_reason_of_each_node() -> None:
    crowded = source(5, 30)  # six GiB on each node of eight: three nodes cannot hold all
    _history, run = simulated(crowded, "fail-rack=rack:r2@1m")
    assert run.still_down
    assert run.first_misfit is not None
    for one in run.still_down:
        reasons = dict(one.nodes)
        assert reasons[node_name(2)] == "lost"
        assert reasons[node_name(1)].endswith("of memory short")


def test_rolling_upgrade_moves_instances_without_downtime() -> None:
    history, run = simulated(source(4, 4), "drain=all@1m/2m")
    assert run.outages == ()
    assert [one.status for one in history.jobs if one.status != "success"] == []
    rebooted = {one.node for one in history.nodes if one.state == "up"}
    assert rebooted == {node_name(number) for number in range(1, 5)}


def test_evacuated_node_is_empty_and_in_service() -> None:
    history, run = simulated(source(5, 10), "evacuate=node2@1m")
    assert run.outages == ()
    assert run.after.nodes == 5
    names = {node.uuid: node.name for node in history.after if isinstance(node, Node)}
    homes = [names[one.primary_node] for one in history.after if isinstance(one, Instance)]
    assert len(homes) == 10
    assert node_name(2) not in homes
    kinds = [one.ops[0].kind for one in history.jobs]
    assert kinds == ["NODE_EVACUATE", "INSTANCE_MIGRATE", "INSTANCE_MIGRATE"]


def test_evacuation_of_primaries_leaves_the_copies_on_the_node() -> None:
    one = small_source()
    nodes = {node.name: node.uuid for node in one.nodes}

    def roles(objects: Iterable[object]) -> list[tuple[str, bool, bool]]:
        return [
            (web.name, web.primary_node == nodes["node2"], nodes["node2"] in web.secondary_nodes)
            for web in objects
            if isinstance(web, Instance) and web.disk_template == "drbd"
        ]

    assert roles(one.objects) == [("web2", True, False)]
    history, run = simulated(one, "evacuate-primaries=node2@1m")
    assert run.outages == ()
    assert roles(history.after) == [("web2", False, True)]


def test_failures_happen_in_any_moment_between_two_heartbeats() -> None:
    found = [simulated(source(), "fail-node=node4@1m", seed=seed)[1] for seed in range(1, 9)]
    detected = [run.outages[0].by_reason()["detection"] for run in found]
    assert max(detected) - min(detected) > 0.5
    assert max(detected) - min(detected) < 2.5


def test_added_nodes_take_new_instances() -> None:
    one = source(2, 12, recovery="none")
    history, run = simulated(one, "add-nodes=2", "create=4:1g,1g,1,sharedfile@60/h@5m")
    names = {node.uuid: node.name for node in history.after if isinstance(node, Node)}
    new = [
        names[made.primary_node]
        for made in history.after
        if isinstance(made, Instance) and made.name.startswith("new")
    ]
    assert len(new) == 4
    assert set(new) <= {"added1.example.com", "added2.example.com"}
    assert run.after.nodes == 4


def test_instances_that_do_not_fit_are_the_first_misfit() -> None:
    _history, run = simulated(source(2, 2, recovery="none"), "create=20:1g,1g,1,sharedfile@5m")
    assert run.first_misfit is not None
    assert run.first_misfit.what.startswith("INSTANCE_CREATE(")
    assert 0 < run.figures["failed jobs"] < 20


def test_policy_changes_by_a_job() -> None:
    history, run = simulated(
        source(recovery="none"), "set=recovery=failover", "fail-node=node4@10m"
    )
    assert history.jobs[0].ops[0].summary == "CLUSTER_SET_PARAMS"
    assert run.still_down == ()
    assert all(one.by_reason().get("fencing") for one in run.outages)


def test_cut_off_nodes_lose_their_guests_when_their_lease_is_over() -> None:
    history, run = simulated(source(), "fail-rack=rack:r2@1m/20m")
    assert history.down == frozenset()
    assert run.still_down == ()


def test_random_failures_differ_with_the_seed_and_repeat_with_the_same() -> None:
    one = source(4, 8)
    first, second, other = (
        simulated(one, "random=0.03,1h,5m", watch_s=60.0, seed=seed)[1] for seed in (1, 1, 2)
    )
    assert first == second
    assert first.figures != other.figures


def test_mirrored_disks_follow_evacuations_and_new_instances() -> None:
    one = small_source()
    history, run = simulated(one, "create=2:512m,1g,1,drbd@5m", "drain=node2@10m/5m")
    wrong = [
        (op.summary, op.error) for job in history.jobs for op in job.ops if job.status != "success"
    ]
    assert wrong == []
    assert run.outages == ()
    made = [
        one for one in history.after if isinstance(one, Instance) and one.name == "new1.example.com"
    ]
    assert [len(one.all_nodes) for one in made] == [2]
    kinds = [job.ops[0].kind for job in history.jobs]
    assert kinds[kinds.index("NODE_MAINTENANCE_END") - 1] == "INSTANCE_ACTIVATE_DISKS"


@pytest.mark.requirement("D3", "D6")
def test_protected_mirrors_return_after_a_rolling_upgrade() -> None:
    """They do so only once their copies on the rebooted node count as current."""
    one = small_source()
    history, run = simulated(one, "set=recovery=failover", "drain=node2@10m/5m")
    assert [job.ops[0].kind for job in history.jobs if job.status != "success"] == []
    assert run.outages == ()
    nodes = {node.name: node.uuid for node in one.nodes}
    [web] = (
        web for web in history.after if isinstance(web, Instance) and web.disk_template == "drbd"
    )
    assert web.primary_node == nodes["node2"]
    assert [disk.grant and disk.grant.current for disk in web.disks] == [frozenset(web.all_nodes)]


def test_htools_file_is_simulated_with_its_own_sizes() -> None:
    one = file_source(TEXT.encode())
    _history, run = simulated(one, "set=recovery=failover", "fail-node=node1@5m")
    assert [(out.instance, out.is_over) for out in run.outages] == [("web1", False), ("web4", True)]
    [down] = run.still_down
    assert dict(down.nodes)["node2"] == "does not have its disks"
    assert run.before.memory == 4 * 16384


# The command


def run_command(*words: str) -> int:
    return run_guarded(lambda: table.run(with_default(words)))


@pytest.fixture
def backup(tmp_path: Path) -> str:
    file = tmp_path / "state.backup"
    file.write_bytes(backup_of(source(4, 8)))
    return str(file)


def test_command_reports_a_scenario_file_on_a_backup(
    backup: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "name: Lose a node\nwatch: 20m\nsteps:\n  - at: 1m\n    fail-node: node2\n    for: 5m\n"
    )
    page = tmp_path / "report.html"
    words = [backup, str(scenario), "--node-size", "8g,200g,8", "--html", str(page)]
    assert run_command(*words) == 0
    text = capsys.readouterr().out
    assert "Lose a node" in text
    assert "  at 1m: fail-node node2 for 5m" in text
    assert "2 instances were down" in text
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_same_command_gives_the_same_bytes_in_another_process(backup: str, tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):
        page = tmp_path / f"{seed}.html"
        words = [backup, "--fail-node", "node2@1m", "--node-size", "8g,200g,8", "--seeds", "2",
                 "--json", "--html", str(page)]  # fmt: skip
        program = "from ganeti.whatif.command import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        assert done.stderr == b""
        found.append((done.stdout, page.read_bytes()))
    assert found[0] == found[1]
    report = json.loads(found[0][0])
    assert report["seeds"] == [1, 2]
    assert report["version"]
    assert report["distribution"]["instances down"]["max"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fail-node", "node9"], "--fail-node: there is no node 'node9'"),
        (["--create", "x"], "--create: 'x' is not N"),
        (["--seeds", "0"], "seeds: must be from 1 to 1000"),
        (["--watch", "soon"], "watch: 'soon' is not a time"),
        (["--node-size", "1"], "node-size: '1' is not MEMORY,DISK,CPUS"),
        (["missing.yaml"], "missing.yaml: does not exist"),
        (["--durations", "missing.json"], "missing.json: does not exist"),
    ],
)
def test_wrong_command_line_is_refused_before_anything_runs(
    backup: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(backup, "--node-size", "8g,200g,8", *words) == 1
    assert message in capsys.readouterr().err


def test_wrong_step_of_a_file_is_refused_with_its_line(
    backup: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("steps:\n  - fail-node: node2\n  - at: 5m\n    fail-rack: rack:r7\n")
    assert run_command(backup, str(scenario), "--node-size", "8g,200g,8") == 1
    assert "scenario.yaml: line 3: fail-rack: no online node has the tag 'rack:r7'" in (
        capsys.readouterr().err
    )


def test_source_without_sizes_asks_for_them(
    backup: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(backup, "--fail-node", "node2") == 1
    assert "pass --node-size MEMORY,DISK,CPUS" in capsys.readouterr().err


def test_word_run_may_be_left_out() -> None:
    assert with_default(["cluster", "--seed", "2"]) == ["run", "cluster", "--seed", "2"]
    assert with_default(["--seed", "2"]) == ["run", "--seed", "2"]
    for words in (
        ["learn"],
        ["run", "x"],
        ["--help"],
        ["--version"],
        ["--generate-completion"],
        [],
    ):
        assert with_default(words) == words
