"""Making the configuration follow what is true after a migration of unknown outcome (G5, F20).

While a migration is under way the instance is marked with its target (`migrating_to`): as long as
the mark is there, nobody knows where the guest is, and nothing may start it.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ExecError, RpcError
from ganeti.config.fill import instance_spec
from ganeti.config.nvram import has_nvram_on_its_node
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change
from ganeti.layouts.places import creation_order, relocated
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.rpc.procedures.disks import BLOCKDEV_REMOVE, DiskArgs
from ganeti.rpc.procedures.form import Nothing, Procedure
from ganeti.rpc.procedures.hardware import NVRAM_FORGET, ForgetNvramArgs
from ganeti.rpc.procedures.instances import INSTANCE_INFO, InstanceArgs, RunningInstance
from ganeti.rpc.procedures.migration import (
    MIGRATION_FINISH_SOURCE,
    MIGRATION_FINISH_TARGET,
    FinishMigrationArgs,
)
from ganeti.units.services import Services
from ganeti.units.undo.disks import SetDiskRole

ROUNDS = 3
"""How often both nodes are asked when what they say changes meanwhile, or an answer is lost."""


def decide_owner(
    source: RunningInstance | None, target: RunningInstance | None, *, handed_over: bool = False
) -> str:
    """Which end has the guest, by what each knows of it: `source`, `target`, `nowhere` or `both`.

    It is where it runs. If it runs nowhere, a source that has sent it takes it back, because no
    target lets a guest go on by itself; without a source a target may have all of it. Once it was
    handed over, a target that is gone may have run it: then the source's memory is of the past.
    """
    on_source = source is not None and source.has_guest
    on_target = target is not None and target.has_guest
    if on_source and on_target:
        return "both"
    if on_target:
        return "target"
    if on_source:
        return "source"
    if source is not None and not (handed_over and target is None):
        return "source"
    return "target" if target is not None else "nowhere"


def mark_migrating(uuid: InstanceUuid, target: NodeUuid) -> Change:
    """The change of configuration before a migration: from now on the guest may be on `target` too."""

    def change(draft: Draft) -> None:
        instance = draft.instances[uuid]
        draft.put(replace(instance, migrating_to=target, handed_over=False))

    return change


def mark_handed_over(uuid: InstanceUuid, source: NodeUuid, target: NodeUuid) -> Change:
    """The change of configuration before the target lets the guest go on: it is the target's from now on.

    As long as `source` is marked, it is not known whether the target has done so.
    """

    def change(draft: Draft) -> None:
        instance = draft.instances[uuid]
        there = relocated(instance, target)
        draft.put(replace(there, migrating_to=source, handed_over=True))

    return change


def mark_taken_back(uuid: InstanceUuid, source: NodeUuid, target: NodeUuid) -> Change:
    """The change of configuration that undoes `mark_handed_over`: the target was surely not told."""

    def change(draft: Draft) -> None:
        instance = draft.instances[uuid]
        back = relocated(instance, source)
        draft.put(replace(back, migrating_to=target, handed_over=False))

    return change


def record_primary(uuid: InstanceUuid, primary: NodeUuid) -> Change:
    """The change of configuration that says where the guest is, now that this is known."""

    def change(draft: Draft) -> None:
        instance = draft.instances[uuid]
        known = replace(relocated(instance, primary), migrating_to=None, handed_over=False)
        if known != instance:
            draft.put(known)

    return change


@dataclass(frozen=True)
class BrokenMigration:
    """One migration that may have broken off. With `copied`, each end has disks of its own."""

    instance: InstanceUuid
    source: NodeUuid
    target: NodeUuid
    copied: bool = False
    spec: InstanceSpec | None = None
    """The guest as it was sent, to clean up after it when its instance is gone."""


async def reconcile_migration(services: Services, key: str, broken: BrokenMigration) -> str:
    """Ask both nodes, make the configuration say which of them has the guest, and clean the other one up.

    A node that is marked offline counts as dead. Returns the name of the node that has the guest,
    '' if none has. Raises ExecError if a node does not answer or both run it: then the mark stays.
    """
    snapshot = services.config.snapshot
    instance = snapshot.instances.get(broken.instance)
    if instance is None:
        return ""
    source, target = snapshot.nodes[broken.source], snapshot.nodes[broken.target]
    endpoints = _Endpoints(services, instance, source, target, copied=broken.copied)
    return await endpoints.reconcile(key)


async def reconcile_later(services: Services, key: str, broken: BrokenMigration) -> None:
    """What `reconcile_migration` could not do, when other jobs may have moved or removed the instance since.

    If its mark is gone, it is known where the guest is, and only the ends where it is not are
    cleaned up. Raises ExecError, also if another migration of it is still open, or RpcError.
    """
    instance = services.config.snapshot.instances.get(broken.instance)
    if instance is None:
        await _clean_up(services, key, broken, None)
    elif instance.migrating_to is None:
        await _clean_up(services, key, broken, instance.primary_node)
    elif {instance.primary_node, instance.migrating_to} == {broken.source, broken.target}:
        await reconcile_migration(services, key, broken)
    else:
        raise ExecError(f"another migration of {instance.name} is still open")


async def _clean_up(
    services: Services, key: str, broken: BrokenMigration, home: NodeUuid | None
) -> None:
    """Leave nothing at the ends that are not `home`; nodes refuse to end what runs there."""
    for uuid, procedure, success in (
        (broken.source, MIGRATION_FINISH_SOURCE, True),
        (broken.target, MIGRATION_FINISH_TARGET, False),
    ):
        node = services.config.snapshot.nodes.get(uuid)
        if node is None or uuid == home or broken.spec is None:
            continue
        args = FinishMigrationArgs(instance=broken.spec, success=success)
        await services.rpc.call(node, procedure, args, key=f"{key}/{procedure.name}")
        for disk in broken.spec.disks if broken.copied else ():
            removal = DiskArgs(instance_name=broken.spec.name, disk=disk)
            key_of_disk = f"{key}/{procedure.name}/{disk.index}"
            await services.rpc.call(node, BLOCKDEV_REMOVE, removal, key=key_of_disk)


@dataclass
class _Endpoints:
    """The two ends of one migration."""

    services: Services
    instance: Instance
    source: Node
    target: Node
    copied: bool

    @property
    def handed_over(self) -> bool:
        """Whether the target may have been told to let the guest go on.

        It is made the primary node before it is told, and stays that when the outcome is known.
        """
        return self.instance.primary_node == self.target.uuid

    async def reconcile(self, key: str) -> str:
        for turn in range(ROUNDS):
            here, there = await self._ask(self.source), await self._ask(self.target)
            owner = self._owner(here, there)
            if owner == "both":
                raise ExecError(
                    f"{self.instance.name} runs on {self.source.name} and on {self.target.name}; decide which copy to"
                    f" keep and end the other one there, then run: {self._remedy}"
                )
            has_only_arrived = owner == "target" and there is not None and not there.has_guest
            try:
                return await self._finish(f"{key}/{turn}", owner)
            except RpcError as err:
                failure = err
            if has_only_arrived:
                owner = "nowhere"  # what arrived was not all of it: the guest ended with its source
                try:
                    return await self._finish(f"{key}/{turn}/lost", owner)
                except RpcError as err:
                    failure = err
        raise ExecError(
            f"the migration of {self.instance.name} is not cleaned up: {failure}; when the node answers"
            f" again, run: {self._remedy}"
        ) from failure

    def _owner(self, here: RunningInstance | None, there: RunningInstance | None) -> str:
        # With disks of its own, a source whose target is dead has a state that fits them.
        can_resume = self.copied and self.target.offline
        handed_over = self.handed_over and not can_resume
        return decide_owner(here, there, handed_over=handed_over)

    async def _finish(self, key: str, owner: str) -> str:
        """Make both ends and the configuration what was decided; every step can be repeated.

        A target that only waits must be gone before the source may go on, and the configuration
        names the target before the source forgets the guest.
        """
        if owner == "target":
            await self._call(key, self.target, MIGRATION_FINISH_TARGET, success=True)
            await self._record(self.target)
            await self._call(key, self.source, MIGRATION_FINISH_SOURCE, success=True)
            await self._remove_copy(key, self.source)
            await self._set_roles(key)
            return self.target.name
        await self._call(key, self.target, MIGRATION_FINISH_TARGET, success=False)
        is_targets = owner == "nowhere" and self.handed_over and not self.target.offline
        if owner == "source":
            await self._call(key, self.source, MIGRATION_FINISH_SOURCE, success=False)
        elif self.handed_over:
            await self._call(key, self.source, MIGRATION_FINISH_SOURCE, success=True)
        home, other = (self.target, self.source) if is_targets else (self.source, self.target)
        await self._record(home)
        await self._remove_copy(key, other)
        await self._set_roles(key)
        return self.source.name if owner == "source" else ""

    async def _record(self, node: Node) -> None:
        await self.services.config.change(
            record_primary(InstanceUuid(self.instance.uuid), NodeUuid(node.uuid))
        )

    async def _remove_copy(self, key: str, node: Node) -> None:
        """Remove what the end that has not the guest any more has of it; a dead node keeps its own."""
        if node.offline:
            return
        cluster = self.services.config.snapshot.cluster
        if has_nvram_on_its_node(cluster, self.instance):
            what = ForgetNvramArgs(
                instance=instance_spec(self.services.config.snapshot, self.instance)
            )
            await self.services.rpc.call(node, NVRAM_FORGET, what, key=f"{key}/{NVRAM_FORGET.name}")
        if not self.copied:
            return
        spec = instance_spec(self.services.config.snapshot, self.instance, NodeUuid(node.uuid))
        for disk in spec.disks:
            args = DiskArgs(instance_name=spec.name, disk=disk)
            key_of_disk = f"{key}/{BLOCKDEV_REMOVE.name}/{disk.index}"
            await self.services.rpc.call(node, BLOCKDEV_REMOVE, args, key=key_of_disk)

    async def _set_roles(self, key: str) -> None:
        """Open or close the copies of mirrored disks as the configuration says now, the secondary first."""
        instance = self.services.config.snapshot.instances[InstanceUuid(self.instance.uuid)]
        if not DISK_TEMPLATES[instance.disk_template].mirrored:
            return
        for uuid in creation_order(instance):
            step = SetDiskRole(node=uuid, instance=instance.uuid)
            await step.run(self.services, f"{key}/roles/{uuid}")

    async def _call(
        self,
        key: str,
        node: Node,
        procedure: Procedure[FinishMigrationArgs, Nothing],
        *,
        success: bool,
    ) -> None:
        if node.offline:
            return
        spec = instance_spec(self.services.config.snapshot, self.instance, NodeUuid(node.uuid))
        args = FinishMigrationArgs(instance=spec, success=success)
        await self.services.rpc.call(node, procedure, args, key=f"{key}/{procedure.name}")

    async def _ask(self, node: Node) -> RunningInstance | None:
        if node.offline:
            return None
        args = InstanceArgs(instance=instance_spec(self.services.config.snapshot, self.instance))
        try:
            answer = await self.services.rpc.call(node, INSTANCE_INFO, args)
        except RpcError as err:
            raise ExecError(
                f"cannot tell where {self.instance.name} runs: {err}; when the node answers again, run: {self._remedy}"
            ) from err
        return answer

    @property
    def _remedy(self) -> str:
        return f"gnt-instance migrate --cleanup {self.instance.name}"
