"""Two nodes that share this host, each with the real KVM driver, for tests that boot real guests."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.migration import (
    Incoming,
    IncomingArgs,
    MigrateArgs,
    MigrationEnd,
    MigrationInfo,
    MigrationResult,
)
from tests.support.tiny_guest import heartbeats, said, wait_for_text

READY = r"GANETI-TINY READY hostname=(\S+) boot=(\d+) heartbeat=(\d+)"


@dataclass
class Node:
    """One node's side: its files, and a driver."""

    paths: Paths
    driver: KvmHypervisor

    def files(self, instance: InstanceSpec) -> GuestFiles:
        return GuestFiles.of(self.paths, instance.uuid)

    def record(self, instance: InstanceSpec) -> Record:
        record = self.files(instance).read()
        assert record is not None
        return record

    def console(self, instance: InstanceSpec) -> Path:
        return self.files(instance).console_log

    def ask(self, instance: InstanceSpec) -> Monitor:
        """The second control socket, beside whatever the driver asks."""
        return Monitor(self.files(instance).people_monitor)

    async def state(self, instance: InstanceSpec) -> str | None:
        for one in await self.driver.running():
            if one.uuid == instance.uuid:
                return one.state
        return None

    async def beats(self, instance: InstanceSpec, more: int = 3) -> None:
        """Wait until the guest has said some further heartbeats."""
        log = self.console(instance)
        wanted = len(heartbeats(log)) + more
        for _ in range(1200):
            if len(heartbeats(log)) >= wanted:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"no further heartbeats; the console ends {said(log)[-300:]!r}")


async def boot(node: Node, instance: InstanceSpec, disk: Path) -> None:
    await node.driver.start(instance, [str(disk)])
    await wait_for_text(node.console(instance), READY)


def nothing_is_left(node: Node, instance: InstanceSpec) -> bool:
    files = node.files(instance)
    return not files.record.exists() and not any(path.exists() for path in files.sockets)


async def accept(
    node: Node,
    instance: InstanceSpec,
    disk: Path,
    info: MigrationInfo,
    *,
    copies_disks: bool = False,
) -> Incoming:
    wanted = IncomingArgs(
        instance=instance, address="127.0.0.1", info=info, copies_disks=copies_disks
    )
    return await node.driver.accept(wanted, [str(disk)])


async def send(
    node: Node, instance: InstanceSpec, incoming: Incoming, *, live: bool = True
) -> MigrationResult:
    where = MigrateArgs(
        instance=instance,
        address=incoming.address,
        port=incoming.port,
        live=live,
        disks_port=incoming.disks_port,
        certificate=incoming.certificate,
    )
    return await node.driver.migrate(where)


async def migrate(
    source: Node, target: Node, instance: InstanceSpec, disk: Path, *, copies_disks: bool = False
) -> None:
    """The steps of the master, in its order."""
    info = await source.driver.migration_info(instance)
    incoming = await accept(target, instance, disk, info, copies_disks=copies_disks)
    result = await send(source, instance, incoming)
    assert (result.status, result.error) == ("completed", "")
    assert result.transferred > 0
    assert await source.state(instance) == "postmigrate"
    await target.driver.finish_migration(instance, MigrationEnd.RESUME_TARGET)
    await source.driver.finish_migration(instance, MigrationEnd.END_SOURCE)
