"""Reconciliation after a migration of unknown outcome: the configuration follows the facts (G5, F20).

During a migration the instance is marked with its target (`migrating_to`). While the mark exists, only the two ends
know the location of the guest, and no job may start it.
"""

from dataclasses import dataclass

from ganeti.base.errors import ExecError, RpcError
from ganeti.config.fill import instance_spec
from ganeti.config.nvram import has_nvram_on_its_node
from ganeti.config.snapshot import Snapshot
from ganeti.layouts.places import creation_order
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.rpc.procedures.disks import BLOCKDEV_REMOVE, DiskArgs
from ganeti.rpc.procedures.hardware import NVRAM_FORGET, ForgetNvramArgs
from ganeti.rpc.procedures.instances import INSTANCE_INFO, InstanceArgs, RunningInstance
from ganeti.rpc.procedures.migration import MigrationEnd, finishing
from ganeti.units.instance.grants import record_writer
from ganeti.units.relocation.core import (
    AT_SOURCE,
    End,
    Event,
    Facts,
    Instruction,
    Migration,
    Seen,
    State,
)
from ganeti.units.relocation.location import record_location
from ganeti.units.services import Services
from ganeti.units.undo.disks import SetDiskRole


@dataclass(frozen=True)
class BrokenMigration:
    """One possibly interrupted migration. With `copied`, each end has disks of its own."""

    instance: InstanceUuid
    source: NodeUuid
    target: NodeUuid
    copied: bool = False
    spec: InstanceSpec | None = None
    """The guest in its sent form, for the cleanup after its instance was removed."""


async def reconcile_migration(services: Services, key: str, broken: BrokenMigration) -> str:
    """Query both nodes, record which of them has the guest, and clean up the other one.

    A node that is marked offline counts as dead. Return the name of the node with the guest, '' if there is none. Raise
    ExecError if a node does not answer or both run it: then the mark remains.
    """
    snapshot = services.config.snapshot
    instance = snapshot.instances.get(broken.instance)
    if instance is None:
        return ""
    source, target = snapshot.nodes[broken.source], snapshot.nodes[broken.target]
    return await _Ends(services, key, instance, source, target, copied=broken.copied).reconcile()


async def reconcile_later(services: Services, key: str, broken: BrokenMigration) -> None:
    """Repeat a failed `reconcile_migration`, when other jobs may have moved or removed the instance since.

    If its mark is gone, the location of the guest is known, and only the other ends are cleaned up. Raise ExecError,
    also if another migration of it is unfinished, or RpcError.
    """
    instance = services.config.snapshot.instances.get(broken.instance)
    if instance is None:
        await _clean_up(services, key, broken, None)
    elif instance.migrating_to is None:
        await _clean_up(services, key, broken, instance.primary_node)
    elif {instance.primary_node, instance.migrating_to} == {broken.source, broken.target}:
        await reconcile_migration(services, key, broken)
    else:
        raise ExecError(f"another migration of {instance.name} is unfinished")


async def _clean_up(
    services: Services, key: str, broken: BrokenMigration, home: NodeUuid | None
) -> None:
    """Clean up the ends other than `home`; nodes refuse to end a running guest."""
    for uuid, end in (
        (broken.source, MigrationEnd.END_SOURCE),
        (broken.target, MigrationEnd.END_TARGET),
    ):
        node = services.config.snapshot.nodes.get(uuid)
        if node is None or uuid == home or broken.spec is None:
            continue
        procedure, args = finishing(end, broken.spec)
        await services.rpc.call(node, procedure, args, key=f"{key}/{procedure.name}")
        for disk in broken.spec.disks if broken.copied else ():
            removal = DiskArgs(instance_name=broken.spec.name, disk=disk)
            key_of_disk = f"{key}/{procedure.name}/{disk.index}"
            await services.rpc.call(node, BLOCKDEV_REMOVE, removal, key=key_of_disk)


@dataclass
class _Ends:
    """The two ends of one migration, and the instructions of the core for them."""

    services: Services
    key: str
    instance: Instance
    source: Node
    target: Node
    copied: bool

    async def reconcile(self) -> str:
        core, turn = Migration(self._facts, State.UNCLEAR), 0
        instructions = core.handle(Event.BEGIN)
        while not core.is_finished:
            event, failure = await self._report(f"{self.key}/{turn}", instructions)
            instructions = core.handle(event)
            if core.state is State.STUCK:
                raise self._stuck(event, failure) from failure
            turn += 1
        owners = {State.COMMITTED: self.target.name, State.ABORTED: self.source.name}
        return owners.get(core.state, "")

    async def _report(
        self, key: str, instructions: list[Instruction]
    ) -> tuple[Event | Seen, RpcError | None]:
        """Carry out instructions; return the next event for the core, and the error, if any."""
        is_question = instructions == [Instruction.ASK]
        try:
            if is_question:
                return Seen(await self._ask(self.source), await self._ask(self.target)), None
            for instruction in instructions:
                await self._carry_out(key, instruction)
        except RpcError as err:
            return (Event.SILENT if is_question else Event.FAILED), err
        return Event.DONE, None

    def _stuck(self, event: Event | Seen, failure: RpcError | None) -> ExecError:
        name, remedy = self.instance.name, f"gnt-instance migrate --cleanup {self.instance.name}"
        match event:
            case Event.SILENT:
                text = f"the location of {name} is unknown: {failure}; when the node answers again, run: {remedy}"
            case Event.FAILED:
                text = (
                    f"the migration of {name} is not cleaned up: {failure}; when the node answers again,"
                    f" run: {remedy}"
                )
            case _:
                text = (
                    f"{name} runs on {self.source.name} and on {self.target.name}; decide which copy to"
                    f" keep and end the other one there, then run: {remedy}"
                )
        return ExecError(text)

    @property
    def _facts(self) -> Facts:
        return Facts(
            copied=self.copied,
            mirrored=DISK_TEMPLATES[self.instance.disk_template].mirrored,
            source_offline=self.source.offline,
            target_offline=self.target.offline,
            # It becomes the primary node before the command, and remains primary when the outcome is known.
            handed_over=self.instance.primary_node == self.target.uuid,
        )

    async def _carry_out(self, key: str, instruction: Instruction) -> None:
        node = self.source if instruction in AT_SOURCE else self.target
        match instruction:
            case Instruction.RECORD_SOURCE | Instruction.RECORD_TARGET:
                is_source = instruction is Instruction.RECORD_SOURCE
                home, other = self.source, self.target
                if not is_source:
                    home, other = other, home
                change = record_location(
                    self.instance.uuid,
                    home.uuid,
                    is_closed=not other.offline,
                    leaves_copies=not is_source,  # the source closes its copy next
                )
                await self.services.config.change(change)
            case Instruction.REMOVE_AT_SOURCE | Instruction.REMOVE_AT_TARGET:
                await self._remove_copy(key, node)
            case Instruction.SET_ROLES:
                await self._set_roles(key)
            case _:
                if instruction in (Instruction.RESUME_SOURCE, Instruction.RESUME_TARGET):
                    await self._grant(node)
                now = self._snapshot.instances[self.instance.uuid]
                spec = instance_spec(self._snapshot, now, NodeUuid(node.uuid))
                procedure, args = finishing(MigrationEnd[instruction.name], spec)
                await self.services.rpc.call(node, procedure, args, key=f"{key}/{procedure.name}")

    async def _grant(self, node: Node) -> None:
        """Grant the disks to the end that resumes the guest; the other end has reported that the guest is not there."""
        other = self.target if node is self.source else self.source
        await self.services.config.change(
            record_writer(self.instance.uuid, node.uuid, is_closed=not other.offline)
        )

    async def _remove_copy(self, key: str, node: Node) -> None:
        """Remove the data of the end that no longer has the guest."""
        spec = instance_spec(self._snapshot, self.instance, NodeUuid(node.uuid))
        if has_nvram_on_its_node(self._snapshot.cluster, self.instance):
            what = ForgetNvramArgs(instance=instance_spec(self._snapshot, self.instance))
            await self.services.rpc.call(node, NVRAM_FORGET, what, key=f"{key}/{NVRAM_FORGET.name}")
        for disk in spec.disks if self.copied else ():
            args = DiskArgs(instance_name=spec.name, disk=disk)
            key_of_disk = f"{key}/{BLOCKDEV_REMOVE.name}/{disk.index}"
            await self.services.rpc.call(node, BLOCKDEV_REMOVE, args, key=key_of_disk)

    async def _set_roles(self, key: str) -> None:
        """Open or close the copies of mirrored disks according to the present configuration, the secondary first."""
        instance = self._snapshot.instances[InstanceUuid(self.instance.uuid)]
        for uuid in creation_order(instance):
            step = SetDiskRole(node=uuid, instance=instance.uuid)
            await step.run(self.services, f"{key}/roles/{uuid}")

    @property
    def _snapshot(self) -> Snapshot:
        return self.services.config.snapshot

    async def _ask(self, node: Node) -> End:
        if node.offline:
            return End.NOTHING
        args = InstanceArgs(instance=instance_spec(self._snapshot, self.instance))
        return end_of(await self.services.rpc.call(node, INSTANCE_INFO, args))


def end_of(found: RunningInstance | None) -> End:
    """Return the state of an end whose node answers `found`."""
    if found is None:
        return End.NOTHING
    return End.HAS_GUEST if found.has_guest else End.WAITS
