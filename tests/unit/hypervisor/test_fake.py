"""The pretended hypervisor."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.hypervisor.registry import hypervisors
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.rpc.procedures.migration import IncomingArgs, MigrateArgs, MigrationEnd, MigrationInfo
from tests.support.predictable import FrozenClock

INSTANCE = InstanceSpec(
    name="web1", uuid="u1", hypervisor="fake", os="o", memory=128, vcpus=2, hvparams={}
)

SENT = MigrateArgs(instance=INSTANCE, address="10.0.0.2", port=8102)


def incoming_args(info: MigrationInfo) -> IncomingArgs:
    return IncomingArgs(instance=INSTANCE, address="10.0.0.2", info=info)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


@pytest.fixture
def fake(paths: Paths) -> FakeHypervisor:
    return FakeHypervisor(paths)


async def states(fake: FakeHypervisor) -> dict[str, str]:
    return {one.name: one.state for one in await fake.running()}


async def test_a_guest_is_started_listed_and_stopped_each_as_often_as_one_likes(
    paths: Paths,
) -> None:
    clock = FrozenClock()
    fake = FakeHypervisor(paths, clock=clock)
    assert await fake.running() == []
    await fake.start(INSTANCE, [])
    await fake.start(INSTANCE, [])
    clock.advance(5)
    [one] = await fake.running()
    assert (one.name, one.memory, one.vcpus, one.state, one.cpu_time_s) == (
        "web1", 128, 2, "running", 5,
    )  # fmt: skip
    await fake.stop(INSTANCE, 0)
    await fake.stop(INSTANCE, 0)
    assert await fake.running() == []


async def test_a_paused_guest_continues_when_started(fake: FakeHypervisor) -> None:
    await fake.start(INSTANCE, [], paused=True)
    assert await states(fake) == {"web1": "paused"}
    await fake.start(INSTANCE, [])
    assert await states(fake) == {"web1": "running"}


async def test_guests_survive_the_node_daemon(fake: FakeHypervisor, paths: Paths) -> None:
    await fake.start(INSTANCE, [])
    assert await states(FakeHypervisor(paths)) == {"web1": "running"}


async def test_memory_is_accounted_for(paths: Paths) -> None:
    fake = FakeHypervisor(paths, memory_mib=200)
    await fake.start(INSTANCE, [])
    other = msgspec.structs.replace(INSTANCE, uuid="u2", name="web2")
    with pytest.raises(HypervisorError, match="needs 128 MiB of memory, but 72 MiB are free"):
        await fake.start(other, [])
    assert await states(fake) == {"web1": "running"}
    await fake.stop(INSTANCE, 0)
    await fake.start(other, [])


async def test_a_missing_disk_is_refused(fake: FakeHypervisor, tmp_path: Path) -> None:
    disk = DiskSpec(uuid="d", index=0, size=1, template="file", logical_id=())
    instance = msgspec.structs.replace(INSTANCE, disks=(disk,))
    with pytest.raises(HypervisorError, match="does not exist"):
        await fake.start(instance, [str(tmp_path / "none")])
    with pytest.raises(HypervisorError, match="1 disks, but 0 paths"):
        await fake.start(instance, [])
    assert await fake.running() == []


@pytest.mark.requirement("G5")
async def test_a_migration_moves_the_guest_and_it_runs_in_one_place_only(tmp_path: Path) -> None:
    here, there = FakeHypervisor(Paths(tmp_path / "a")), FakeHypervisor(Paths(tmp_path / "b"))
    await here.start(INSTANCE, [])
    info = await here.migration_info(INSTANCE)
    incoming = await there.accept(incoming_args(info), [])
    assert await there.accept(incoming_args(info), []) == incoming
    result = await here.migrate(SENT)
    assert result.status == "completed"
    assert await here.migrate(SENT) == result
    assert await states(here) == {"web1": "postmigrate"}
    assert await states(there) == {"web1": "incoming"}
    for end in (here, there):
        with pytest.raises(HypervisorError, match="not finished"):
            await end.start(INSTANCE, [])
    await there.finish_migration(INSTANCE, MigrationEnd.RESUME_TARGET)
    await here.finish_migration(INSTANCE, MigrationEnd.END_SOURCE)
    assert await states(here) == {}
    assert await states(there) == {"web1": "running"}
    with pytest.raises(HypervisorError, match="not ended"):
        await there.finish_migration(INSTANCE, MigrationEnd.END_TARGET)


async def test_a_failed_migration_leaves_the_source_as_it_was(tmp_path: Path) -> None:
    here, there = FakeHypervisor(Paths(tmp_path / "a")), FakeHypervisor(Paths(tmp_path / "b"))
    await here.start(INSTANCE, [], paused=True)
    await there.accept(incoming_args(await here.migration_info(INSTANCE)), [])
    with pytest.raises(HypervisorError, match="not ended"):
        await here.finish_migration(INSTANCE, MigrationEnd.END_SOURCE)
    await here.migrate(SENT)
    await there.finish_migration(INSTANCE, MigrationEnd.END_TARGET)
    await here.finish_migration(INSTANCE, MigrationEnd.RESUME_SOURCE)
    assert await states(here) == {"web1": "paused"}
    assert await states(there) == {}


async def test_operations_fail_on_request(paths: Paths) -> None:
    fake = FakeHypervisor(paths, failures={"verify": "no processor"})
    assert await fake.verify() == ["no processor"]
    paths.fake_hypervisor.mkdir(parents=True)
    switch = paths.fake_hypervisor / "fail-start"
    switch.write_text("out of luck\n")
    with pytest.raises(HypervisorError, match="out of luck"):
        await fake.start(INSTANCE, [])
    switch.write_text("")
    with pytest.raises(HypervisorError, match="fail-start requests"):
        await fake.start(INSTANCE, [])
    switch.unlink()
    await fake.start(INSTANCE, [])


async def test_operations_with_a_delay_follow_one_another(
    fake: FakeHypervisor, paths: Paths
) -> None:
    paths.fake_hypervisor.mkdir(parents=True, exist_ok=True)
    (paths.fake_hypervisor / "delay-start").write_text("0.05")
    others = [replace(INSTANCE, name=f"web{n}", uuid=f"uuid-{n}") for n in range(3)]
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await asyncio.gather(*(fake.start(one, []) for one in others))
    assert loop.time() - begun >= 0.15
    assert len(await fake.running()) == 3


async def test_operations_that_run_together_do_not_wait_for_each_other(
    fake: FakeHypervisor, paths: Paths
) -> None:
    paths.fake_hypervisor.mkdir(parents=True, exist_ok=True)
    (paths.fake_hypervisor / "delay-start").write_text("0.05 together\n")
    others = [replace(INSTANCE, name=f"web{n}", uuid=f"uuid-{n}") for n in range(3)]
    loop = asyncio.get_running_loop()
    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(loop.time())
        await sleep(seconds)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio, "sleep", noted)
        begun = [asyncio.create_task(fake.start(one, [])) for one in others]
        await sleep(0)
        await sleep(0)
        assert len(slept) == 3
        await asyncio.gather(*begun)
    assert len(await fake.running()) == 3


async def test_it_has_no_console_and_reports_it(fake: FakeHypervisor) -> None:
    with pytest.raises(HypervisorError, match="does not run"):
        await fake.console(INSTANCE)
    await fake.start(INSTANCE, [])
    await fake.reboot(INSTANCE, soft=True, timeout_s=1)
    info = await fake.console(INSTANCE)
    assert (info.kind, info.message) == ("msg", "Console not available for fake hypervisor")


async def test_a_damaged_record_is_refused(fake: FakeHypervisor, paths: Paths) -> None:
    await fake.start(INSTANCE, [])
    (paths.fake_hypervisor / "u1.json").write_text("{")
    with pytest.raises(HypervisorError, match="damaged"):
        await fake.running()


def test_every_hypervisor_that_has_parameters_has_a_driver(paths: Paths) -> None:
    drivers = hypervisors(paths, run)
    assert set(drivers) == set(HYPERVISOR_PARAMS)
    assert all(driver.name == name for name, driver in drivers.items())
