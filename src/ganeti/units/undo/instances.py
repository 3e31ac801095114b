"""Undo of acts on an instance as a whole: its entry, its start, the variables of its firmware."""

import logging

from ganeti.base.errors import ExecError, GanetiError
from ganeti.config.fill import instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.names import AdminState, DiskRole
from ganeti.model.objects import Instance, InstanceUuid
from ganeti.rpc.procedures.backups import MOMENT_END, MomentArgs
from ganeti.rpc.procedures.disks import BLOCKDEV_ASSEMBLE, OpenDiskArgs
from ganeti.rpc.procedures.hardware import NVRAM_FORGET, ForgetNvramArgs
from ganeti.rpc.procedures.instances import (
    INSTANCE_INFO,
    INSTANCE_SHUTDOWN,
    INSTANCE_START,
    InstanceArgs,
    ShutdownArgs,
    StartArgs,
)
from ganeti.units.instance.grants import grant_primary
from ganeti.units.services import Services
from ganeti.units.undo.step import Concerned, Step, names_of, node_of, not_migrating_here

_log = logging.getLogger(__name__)

NEW = 1
"""The serial number of an instance that is unchanged since its creation."""


class ForgetInstance(Step, frozen=True, kw_only=True):
    """Remove an instance from the configuration."""

    kind = "forget_instance"

    instance: str
    """The instance's UUID."""

    async def run(self, services: Services, key: str) -> None:
        del key

        def forget(draft: Draft) -> None:
            if instance := draft.instances.get(InstanceUuid(self.instance)):
                draft.remove(instance)

        await services.config.change(forget)

    async def run_deferred(self, services: Services, key: str) -> None:
        """Only if it was not started meanwhile."""
        snapshot = services.config.snapshot
        instance = snapshot.instances.get(InstanceUuid(self.instance))
        if instance is not None:
            node = snapshot.nodes[instance.primary_node]
            asked = InstanceArgs(instance=instance_spec(snapshot, instance))
            if await services.rpc.call(node, INSTANCE_INFO, asked) is not None:
                raise ExecError(f"{instance.name} runs on {node.name}")
        await self.run(services, key)

    def superseded(self, snapshot: Snapshot) -> bool:
        instance = snapshot.instances.get(InstanceUuid(self.instance))
        return instance is not None and instance.serial_no != NEW

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return Concerned(names_of(snapshot, self.instance))


class _AtNode(Step, frozen=True, kw_only=True):
    """A step about a node's data of an instance."""

    node: str
    instance: InstanceSpec

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return Concerned(names_of(snapshot, self.instance.uuid, self.instance.name), {self.node})


class StopInstance(_AtNode, frozen=True, kw_only=True):
    """Stop a guest, without waiting for it to shut down."""

    kind = "stop_instance"

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = ShutdownArgs(instance=self.instance, timeout_s=0)
            await services.rpc.call(node, INSTANCE_SHUTDOWN, args, key=key)

    def superseded(self, snapshot: Snapshot) -> bool:
        instance = not_migrating_here(snapshot, self.instance.uuid, self.node)
        return (
            instance is not None
            and instance.primary_node == self.node
            and instance.admin_state is AdminState.UP
        )


class EndMoment(_AtNode, frozen=True, kw_only=True):
    """Let a guest use its disks directly again after a backup; `keep` the new bitmap after a complete one."""

    kind = "end_moment"

    base: str
    bitmap: str
    keep: bool = False

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = MomentArgs(
                instance=self.instance, base=self.base, bitmap=self.bitmap, keep=self.keep
            )
            await services.rpc.call(node, MOMENT_END, args, key=key)


class StartAgain(Step, frozen=True, kw_only=True):
    """Start a guest that was stopped for an operation, on its instance's present node; do nothing if it runs.

    Deferred, one more attempt is made: then the watcher takes over, as for any other guest.
    """

    kind = "start_again"

    instance: str
    """The instance's UUID."""

    async def run(self, services: Services, key: str) -> None:
        snapshot = services.config.snapshot
        instance = snapshot.instances.get(InstanceUuid(self.instance))
        if instance is None or _cannot_run(snapshot, instance):
            return
        node = snapshot.nodes[instance.primary_node]
        asked = InstanceArgs(instance=instance_spec(snapshot, instance))
        if await services.rpc.call(node, INSTANCE_INFO, asked) is not None:
            return
        if DISK_TEMPLATES[instance.disk_template].mirrored:
            await _open_secondaries(services, instance, key)
        granted = await grant_primary(services.config, instance)
        spec = instance_spec(services.config.snapshot, granted)
        await services.rpc.call(node, INSTANCE_START, StartArgs(instance=spec), key=key)

    async def run_deferred(self, services: Services, key: str) -> None:
        try:
            await self.run(services, key)
        except GanetiError as err:
            names = ", ".join(names_of(services.config.snapshot, self.instance))
            _log.warning("%s does not start; the watcher will try again: %s", names, err)

    def superseded(self, snapshot: Snapshot) -> bool:
        instance = snapshot.instances.get(InstanceUuid(self.instance))
        return (
            instance is None
            or instance.admin_state is not AdminState.UP
            or _cannot_run(snapshot, instance)
        )

    def concerns(self, snapshot: Snapshot) -> Concerned:
        instance = snapshot.instances.get(InstanceUuid(self.instance))
        nodes = set() if instance is None else {str(uuid) for uuid in instance.all_nodes}
        return Concerned(names_of(snapshot, self.instance), nodes)


class ContinueGuest(StartAgain, frozen=True, kw_only=True):
    """Let a guest continue that was restored from its saved memory; start it if it is not there any more."""

    kind = "continue_guest"

    async def run(self, services: Services, key: str) -> None:
        snapshot = services.config.snapshot
        instance = snapshot.instances.get(InstanceUuid(self.instance))
        if instance is None or _cannot_run(snapshot, instance):
            return
        node, spec = snapshot.nodes[instance.primary_node], instance_spec(snapshot, instance)
        found = await services.rpc.call(node, INSTANCE_INFO, InstanceArgs(instance=spec))
        if found is None:
            await super().run(services, key)
        elif found.state == "paused":
            await services.rpc.call(node, INSTANCE_START, StartArgs(instance=spec), key=key)


def _cannot_run(snapshot: Snapshot, instance: Instance) -> bool:
    """Return whether it cannot be started, or an unfinished migration decides its location."""
    unfinished = (
        instance.migrating_to is not None
        or instance.rolling_back is not None
        or instance.restoring is not None
    )
    return unfinished or snapshot.nodes[instance.primary_node].offline


async def _open_secondaries(services: Services, instance: Instance, key: str) -> None:
    """Prepare the other copies for the guest's writes."""
    snapshot = services.config.snapshot
    for uuid in instance.secondary_nodes:
        node = snapshot.nodes[uuid]
        if node.offline:
            continue
        for disk in instance_spec(snapshot, instance, uuid).disks:
            args = OpenDiskArgs(instance_name=instance.name, disk=disk, role=DiskRole.SECONDARY)
            own = f"{key}/{uuid}/{disk.index}"
            await services.rpc.call(node, BLOCKDEV_ASSEMBLE, args, key=own)


class ForgetNvram(_AtNode, frozen=True, kw_only=True):
    """Remove from a node the NVRAM of an instance that only that node has."""

    kind = "forget_nvram"
    blocks_moves = False

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = ForgetNvramArgs(instance=self.instance)
            await services.rpc.call(node, NVRAM_FORGET, args, key=key)

    def superseded(self, snapshot: Snapshot) -> bool:
        instance = not_migrating_here(snapshot, self.instance.uuid, self.node)
        return instance is not None and instance.primary_node == self.node

    def uses_disk(self, disk: str) -> bool:
        return False
