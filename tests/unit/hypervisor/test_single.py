"""One guest is looked at without the others."""

from pathlib import Path

from ganeti.base.paths import Paths
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.instances import RunningInstance


class Plain(FakeHypervisor):
    """A driver that offers nothing beyond its interface."""

    one_running = Hypervisor.one_running


def instance(uuid: str) -> InstanceSpec:
    return InstanceSpec(
        name=f"{uuid}.example.com",
        uuid=uuid,
        hypervisor="fake",
        os="",
        memory=1,
        vcpus=1,
        hvparams={},
    )


async def test_a_guest_is_found_by_its_uuid_whatever_the_driver_offers(tmp_path: Path) -> None:
    fake = FakeHypervisor(Paths(tmp_path))
    for uuid in ("a", "b"):
        await fake.start(instance(uuid), [])
    for driver in (fake, Plain(Paths(tmp_path))):
        found = await driver.one_running("b")
        assert found is not None
        assert (found.name, found.state) == ("b.example.com", "running")
        assert await driver.one_running("c") is None


async def test_a_driver_that_can_is_not_asked_for_all(tmp_path: Path) -> None:
    class OneOnly(FakeHypervisor):
        async def running(self) -> list[RunningInstance]:
            raise AssertionError("all guests were looked at")

    driver = OneOnly(Paths(tmp_path))
    await driver.start(instance("a"), [])
    assert await driver.one_running("a") is not None
