"""Undo of migrations, and removal of the sender's guest."""

from ganeti.config.snapshot import Snapshot
from ganeti.model.disk_templates import TEMPLATES
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.objects import InstanceUuid, NodeUuid
from ganeti.rpc.procedures.migration import MigrationEnd, finishing
from ganeti.units.relocation.reconcile import (
    BrokenMigration,
    reconcile_later,
    reconcile_migration,
)
from ganeti.units.services import Services
from ganeti.units.undo.disks import SetDiskRole
from ganeti.units.undo.step import Concerned, Step, names_of, node_of, not_migrating_here


class ReconcileMigration(Step, frozen=True, kw_only=True):
    """Find the location of a migrated guest, and record it in the configuration."""

    kind = "settle_migration"  # the name in jobs that are stored

    instance: str
    """The instance's UUID."""
    source: str
    target: str
    copied: bool = False
    guest: InstanceSpec | None = None

    async def run(self, services: Services, key: str) -> None:
        await reconcile_migration(services, key, self._broken())

    async def run_deferred(self, services: Services, key: str) -> None:
        """Reconcile it, or, if the location of the guest is known, clean up the other ends."""
        await reconcile_later(services, key, self._broken())

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return Concerned(names_of(snapshot, self.instance), {self.source, self.target})

    def _broken(self) -> BrokenMigration:
        return BrokenMigration(
            InstanceUuid(self.instance),
            NodeUuid(self.source),
            NodeUuid(self.target),
            copied=self.copied,
            spec=self.guest,
        )


class EndSource(Step, frozen=True, kw_only=True):
    """End the QEMU process that has sent its guest; the node refuses if a guest runs in it."""

    kind = "end_source"

    node: str
    instance: InstanceSpec

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            call = finishing(MigrationEnd.END_SOURCE, self.instance)
            await services.rpc.call(node, *call, key=key)
            if TEMPLATES[self.instance.disk_template].mirrored:
                # It has closed its disks, and must now receive the other node's writes. The other node can forbid it
                # to write only now, if an earlier attempt failed.
                await self._set_role(services, self.node, f"{key}/role")
                instance = services.config.snapshot.instances.get(InstanceUuid(self.instance.uuid))
                if instance is not None and instance.primary_node != self.node:
                    await self._set_role(services, instance.primary_node, f"{key}/other")

    async def _set_role(self, services: Services, node: str, key: str) -> None:
        role = SetDiskRole(node=node, instance=self.instance.uuid)
        await role.run(services, key)

    def superseded(self, snapshot: Snapshot) -> bool:
        instance = not_migrating_here(snapshot, self.instance.uuid, self.node)
        return instance is not None and instance.primary_node == self.node

    def concerns(self, snapshot: Snapshot) -> Concerned:
        return Concerned(names_of(snapshot, self.instance.uuid, self.instance.name), {self.node})
