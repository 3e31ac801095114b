"""The collectors of a node: what is kept, what is active, what fails."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Completed
from ganeti.model.data_collectors import MICROSECONDS, NAMES, Collecting, collecting
from ganeti.monitoring.collectors import DESCRIPTIONS, Collectors, Host, keep_sampling
from ganeti.monitoring.report import Code, brief
from tests.support.predictable import FrozenClock


class Node:
    """A node whose files and programs are pretended; `wanted` is what the cluster says."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.proc.mkdir()
        self.clock = FrozenClock()
        self.wanted = collecting({}, {})
        self.output: bytes | None = b""
        self.runs: list[str] = []
        host = Host(Paths(root), self.proc, self._run, self.clock)
        self.collectors = Collectors(host, lambda: self.wanted)

    async def _run(self, argv: Sequence[str], **_how: Any) -> Completed:
        self.runs.append(argv[0])
        done = Completed(tuple(argv), 0, self.output or b"", b"")
        if self.output is None:
            raise CommandFailed(done, "cannot be started")
        return done

    async def data(self, name: str) -> Any:
        return (await self.collectors.report(DESCRIPTIONS[name]))["data"]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_every_collector_that_can_be_switched_has_a_description() -> None:
    assert set(DESCRIPTIONS) == set(NAMES)


async def test_a_report_is_kept_for_the_collector_s_interval(node: Node) -> None:
    node.wanted["lv"] = Collecting(interval_us=30 * MICROSECONDS)
    await asyncio.gather(*(node.data("lv") for _ in range(5)))
    node.clock.advance(29)
    await node.data("lv")
    assert node.runs == ["lvs"]
    node.clock.advance(1)
    await node.data("lv")
    assert node.runs == ["lvs", "lvs"]


async def test_failed_collector_reports_the_reason_and_affects_no_other(node: Node) -> None:
    node.output = None
    assert "cannot be started" in (await node.data("lv"))["error"]
    status = (await node.data("drbd"))["status"]
    assert status["code"] == Code.UNKNOWN
    assert "cannot be read" in status["message"]
    assert await node.data("kvm-inst-rss") == {}


async def test_loads_need_two_samples(node: Node) -> None:
    stat = node.proc / "stat"
    stat.write_text("cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\n")
    await node.collectors.sample("cpu-avg-load")
    assert "not sufficient" in (await node.data("cpu-avg-load"))["error"]
    node.clock.advance(10)
    stat.write_text("cpu  500 0 0 900 0 0 0 0\ncpu0 500 0 0 900 0 0 0 0\n")
    await node.collectors.sample("cpu-avg-load")
    found = await node.data("cpu-avg-load")
    assert (found["cpu_number"], found["cpu_total"]) == (1, pytest.approx(0.5, rel=0.5))
    stat.unlink()
    await node.collectors.sample("cpu-avg-load")


async def test_a_collector_that_is_switched_off_is_not_asked(node: Node) -> None:
    node.wanted["lv"] = Collecting(active=False)
    assert "lv" not in {one.name for one in node.collectors.active()}
    assert len(node.collectors.active()) == len(NAMES) - 1


@pytest.mark.virtual_time
async def test_samples_are_taken_at_the_interval_while_the_collector_is_active(node: Node) -> None:
    name = "xen-cpu-avg-load"
    node.wanted[name] = Collecting(interval_us=60 * MICROSECONDS)
    sampling = asyncio.create_task(keep_sampling(node.collectors, lambda: node.wanted, name))
    await asyncio.sleep(121)
    assert node.runs == ["xentop"] * 3
    node.wanted[name] = Collecting(active=False, interval_us=60 * MICROSECONDS)
    await asyncio.sleep(600)
    assert node.runs == ["xentop"] * 3
    sampling.cancel()
    await asyncio.gather(sampling, return_exceptions=True)


def test_the_brief_form_has_only_the_judgement() -> None:
    drbd, disks = DESCRIPTIONS["drbd"], DESCRIPTIONS["diskstats"]
    data = {"status": {"code": 0, "message": ""}, "deviceInfos": []}
    assert brief(drbd.report(data, 7))["data"] == {"status": data["status"]}
    assert brief(disks.report([1], 7))["data"] == [1]
    assert disks.report([1], 7) == {
        "name": "diskstats", "version": "B", "format_version": 1, "timestamp": 7,
        "category": "storage", "kind": 0, "data": [1],
    }  # fmt: skip
