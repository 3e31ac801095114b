"""Reinstallation of an instance."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.identifiers import os_name
from ganeti.config.resolve import resolve_image
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.objects import Image, Instance
from ganeti.model.opcodes.instance_system import OpInstanceReinstall
from ganeti.model.param_checks import check_os_params
from ganeti.units.context import UnitContext
from ganeti.units.image.using import check_image_fits, image_of, write_disks
from ganeti.units.instance.access import InstanceUnit, check_down, primary_node
from ganeti.units.instance.grants import grant_primary
from ganeti.units.instance.install import check_os, install_os, osparams_with
from ganeti.units.mirrors.opening import disks_ready


@dataclass(frozen=True)
class ReinstallPlan:
    """The instance with its new OS, and the parameters of this installation."""

    instance: Instance
    osparams: dict[str, str] = field(repr=False)
    stored: Image | None = None
    """The image whose content the disks get first."""


class LUInstanceReinstall(InstanceUnit[OpInstanceReinstall, ReinstallPlan]):
    """Run the create script on the disks of an instance that is down.

    This cannot be undone: a script that failed can only be run again.
    """

    hook = "instance-reinstall"

    def check_arguments(self) -> None:
        op = self.op
        if op.os_type is not None:
            os_name(op.os_type, "os_type")
        for name in ("osparams", "osparams_private", "osparams_secret"):
            check_os_params(getattr(op, name) or {}, name)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        stored = self._image(snapshot, self.instance(snapshot))
        return [
            *super().declare_locks(snapshot),
            lock(Level.NODE, stored.nodes if stored else None, Mode.SHARED),
            lock(Level.IMAGE, stored.uuid if stored else None, Mode.SHARED),
        ]

    def _image(self, snapshot: Snapshot, instance: Instance) -> Image | None:
        """Return the image of the cluster that the OS installs."""
        params = {**instance.osparams, **(self.op.osparams or {})}
        name = image_of(self.op.os_type or instance.os, params)
        return None if name is None else resolve_image(snapshot, name)

    async def check_prereq(self, ctx: UnitContext) -> ReinstallPlan:
        op = self.op
        instance = self.instance(ctx.snapshot)
        await check_down(ctx, instance, "reinstalled")
        if not instance.disks:
            raise PrereqError(
                f"instance {instance.name} has no disks, so nothing can be installed on it",
                ErrorCode.WRONG_STATE,
            )
        instance = replace(instance, os=op.os_type or instance.os)
        if not instance.os:
            raise PrereqError(
                f"instance {instance.name} has no OS yet; name one (--os-type)",
                ErrorCode.WRONG_INPUT,
            )
        osparams = osparams_with(
            ctx, instance, op.osparams, op.osparams_private, op.osparams_secret
        )
        stored = self._image(ctx.snapshot, instance)
        if stored is not None:
            check_image_fits(instance, stored)
        node = primary_node(ctx, instance)
        await check_os(ctx, node, instance.os, osparams, force_variant=op.force_variant)
        return ReinstallPlan(instance, osparams, stored)

    async def execute(self, ctx: UnitContext, plan: ReinstallPlan) -> Outcome:
        instance = await grant_primary(ctx.config, plan.instance)
        async with ctx.undo_log() as undo, disks_ready(ctx, instance):
            if plan.stored is not None:
                await write_disks(ctx, undo, instance, plan.stored, holds_data=True)
            undo.commit()
            ctx.step(f"running the OS create scripts of {instance.os} for {instance.name}")
            await install_os(
                ctx,
                primary_node(ctx, instance),
                instance,
                plan.osparams,
                force_variant=self.op.force_variant,
                debug_level=self.op.debug_level,
                reinstall=True,
            )

        def keep_os(draft: Draft) -> None:
            current = draft.instances[instance.uuid]
            if current.os != instance.os:
                draft.put(replace(current, os=instance.os))

        return Outcome(change=keep_os)
