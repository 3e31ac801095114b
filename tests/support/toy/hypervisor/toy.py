"""The toy hypervisor: its driver. Guests are files with the tune that they play."""

from collections.abc import Sequence
from typing import ClassVar, NoReturn

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import Run
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.instances import ConsoleInfo, RunningInstance
from ganeti.rpc.procedures.migration import (
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationEnd,
    MigrationInfo,
)


class ToyHypervisor(Hypervisor):
    name: ClassVar[str] = "toy"

    def __init__(self, paths: Paths, run: Run) -> None:
        del run
        self._directory = paths.root / "guests"
        self._directory.mkdir(parents=True, exist_ok=True)

    async def verify(self) -> list[str]:
        return []

    async def version(self) -> str:
        return "1"

    async def running(self) -> list[RunningInstance]:
        return [
            RunningInstance(
                name=path.name, uuid=path.suffix[1:], hypervisor="toy", memory=1, vcpus=1,
                state="running", cpu_time_s=0.0,
            )
            for path in self._directory.iterdir()
        ]  # fmt: skip

    async def start(
        self, instance: InstanceSpec, disk_paths: Sequence[str], *, paused: bool = False
    ) -> None:
        del disk_paths, paused
        (self._directory / instance.name).write_text(str(instance.hvparams["tune"]))

    async def stop(self, instance: InstanceSpec, timeout_s: float) -> None:
        del timeout_s
        (self._directory / instance.name).unlink(missing_ok=True)

    async def reboot(self, instance: InstanceSpec, *, soft: bool, timeout_s: float) -> None:
        del instance, soft, timeout_s

    async def console(self, instance: InstanceSpec) -> ConsoleInfo:
        return ConsoleInfo(kind="msg", message=f"{instance.name} only plays")

    async def migration_info(self, instance: InstanceSpec) -> MigrationInfo:
        return MigrationInfo(instance=instance, running=True)

    async def accept(self, wanted: IncomingArgs, disk_paths: Sequence[str]) -> Incoming:
        _refuse()

    async def migrate(self, where: MigrateArgs) -> NoReturn:
        _refuse()

    async def finish_migration(self, instance: InstanceSpec, end: MigrationEnd) -> None:
        _refuse()

    async def validate(self, hvparams: Params) -> list[str]:
        del hvparams
        return []


def _refuse() -> NoReturn:
    raise HypervisorError("toys do not move")
