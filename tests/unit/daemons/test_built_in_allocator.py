"""The process of the built-in allocator: started once, restarted, and replaced by another program of its name."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import placement_clusters as clusters
import pytest

from ganeti.base.errors import PrereqError
from ganeti.base.paths import Paths
from ganeti.cli import hail
from ganeti.daemons import built_in_allocator
from ganeti.daemons.allocation_worker import settings_of
from ganeti.daemons.built_in_allocator import BuiltInAllocator
from ganeti.placement.answers import Settings, answer
from ganeti.placement.places import Excluded, Rules


@pytest.fixture
async def allocator(tmp_path: Path) -> AsyncIterator[BuiltInAllocator]:
    one = BuiltInAllocator(Paths(root=tmp_path))
    yield one
    await one.close()


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even small questions go to the process."""
    monkeypatch.setattr(built_in_allocator, "SMALL_NODES", 0)


def message() -> dict[str, Any]:
    found: dict[str, Any] = clusters.message(clusters.cluster(4), clusters.allocation("plain"))
    return found


@pytest.mark.usefixtures("in_process")
@pytest.mark.leaks_allowed("the transports of a child end with their loop")
async def test_one_process_answers_all_and_another_one_when_it_has_died(
    allocator: BuiltInAllocator,
) -> None:
    wanted = answer(message())
    first = await asyncio.gather(*(allocator.answer(message(), {}) for _ in range(3)))
    process = allocator._process
    assert process is not None
    assert first == [wanted] * 3
    assert allocator._process is process
    process.kill()
    await process.wait()
    assert await allocator.answer(message(), {}) == wanted
    why = await allocator.explain(message(), wanted["result"], {})
    assert len(why) == len(message()["nodes"]) - len(wanted["result"])


@pytest.mark.usefixtures("in_process")
@pytest.mark.leaks_allowed("the transports of a child end with their loop")
async def test_a_question_that_kills_the_process_is_an_error_and_the_next_one_is_answered(
    allocator: BuiltInAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(built_in_allocator, "SLOWEST_S", 0.0)
    with pytest.raises(PrereqError, match="its process ended or took more"):
        await allocator.answer(message(), {})
    monkeypatch.setattr(built_in_allocator, "SLOWEST_S", 60.0)
    assert await allocator.answer(message(), {}) == answer(message())


@pytest.mark.requirement("S158", "S183")
async def test_another_program_of_its_name_is_asked_instead(
    allocator: BuiltInAllocator, tmp_path: Path
) -> None:
    directory = Paths(root=tmp_path).iallocator_search_path[0]
    directory.mkdir(parents=True)
    script = directory / "hail"
    script.symlink_to(Path(sys.executable).parent / "hail")
    assert await allocator.answer(message(), {}) is not None
    script.unlink()
    script.write_text("#!/bin/sh\n")
    assert await allocator.answer(message(), {}) is None


def test_options_of_the_cluster_are_those_of_hail() -> None:
    assert settings_of({}) == Settings(rules=Rules(excluded=Excluded(lone_nodes=True)))
    given = settings_of({"no-capacity-checks": True, "ignore-dynu": True, "for-others": "x"})
    assert (given.rules.capacity, given.ignore_load) == (False, True)


@pytest.mark.requirement("S181")
@pytest.mark.leaks_allowed("the transports of a child end with their loop")
async def test_the_reports_of_monitoring_daemons_decide_as_they_do_for_the_program(
    allocator: BuiltInAllocator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = message()
    without = await allocator.answer(given, {})
    assert without is not None
    reports = [
        {
            "node": name,
            "reports": [{"name": "cpu-avg-load", "data": {"cpu_total": 60.0 * number}}],
        }
        for number, name in enumerate(given["nodes"])
    ]
    path = tmp_path / "reports"
    path.write_text(json.dumps(reports))
    found = await allocator.answer(given, {"mond-data": str(path)})
    assert found is not None
    assert found["info"] != without["info"]
    (tmp_path / "message").write_bytes(clusters.encoded(given))
    assert hail.main([str(tmp_path / "message"), f"--mond-data={path}"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    why = dict(await allocator.explain(given, found["result"], {"mond-data": str(path)}))
    assert not any("did not follow these rules" in reason for reason in why.values())


@pytest.mark.requirement("S181")
@pytest.mark.leaks_allowed("the transports of a child end with their loop")
async def test_reports_that_cannot_be_read_refuse_the_allocation(
    allocator: BuiltInAllocator,
) -> None:
    found = await allocator.answer(message(), {"mond-data": "/nonexistent"})
    assert found is not None
    assert not found["success"]
    assert "/nonexistent: does not exist" in found["info"]
