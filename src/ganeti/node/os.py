"""Answers calls about operating systems: list them, check parameters, install one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ganeti.base.errors import GuestOsError
from ganeti.guest_os.definitions import find_all
from ganeti.guest_os.scripts import OsChoice, OsScripts
from ganeti.model.instance_spec import InstanceSpec
from ganeti.node.disks import DeviceFactory, InstanceDisks
from ganeti.node.image_scripts import ImageOfScript, command, discard
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.programs import (
    OS_CREATE,
    OS_DIAGNOSE,
    OS_RENAME,
    OS_VALIDATE,
    OsCreateArgs,
    OsInfo,
    OsRenameArgs,
    OsValidateArgs,
    OsVerified,
    ScriptResult,
)

MIB = 1 << 20


def handlers(scripts: OsScripts, device: DeviceFactory, locks: InstanceLocks) -> Handlers:
    """Return the handlers of all calls about operating systems."""
    systems = _Systems(scripts, device, locks)
    return {
        OS_DIAGNOSE.name: systems.diagnose,
        OS_VALIDATE.name: systems.validate,
        OS_CREATE.name: systems.create,
        OS_RENAME.name: systems.rename,
    }


@dataclass(frozen=True)
class _Systems:
    scripts: OsScripts
    device: DeviceFactory
    locks: InstanceLocks

    async def diagnose(self, _args: Nothing, _call: Call) -> list[OsInfo]:
        return await asyncio.to_thread(find_all, self.scripts.search_path)

    async def validate(self, args: OsValidateArgs, _call: Call) -> OsVerified:
        choice = OsChoice(args.os, args.osparams, args.force_variant)
        if args.are_defaults:
            return OsVerified(said=await self.scripts.validate_defaults(choice))
        return OsVerified(said=await self.scripts.validate(choice))

    async def create(self, args: OsCreateArgs, call: Call) -> ScriptResult:
        instance = args.instance
        choice = OsChoice(args.os, args.osparams, args.force_variant, args.facts)
        async with self._disks(instance) as (disk_paths, runner):
            return await self.scripts.create(
                call.key,
                choice,
                instance,
                disk_paths,
                args.debug,
                reinstall=args.reinstall,
                runner=runner,
            )

    async def rename(self, args: OsRenameArgs, call: Call) -> ScriptResult:
        instance = args.instance
        # A variant that was valid at the installation is valid for a rename.
        choice = OsChoice(args.os, args.osparams, force_variant=True, facts=args.facts)
        async with self._disks(instance) as (disk_paths, runner):
            return await self.scripts.rename(
                call.key,
                choice,
                instance,
                disk_paths,
                args.debug,
                old_name=args.old_name,
                runner=runner,
            )

    @contextlib.asynccontextmanager
    async def _disks(self, instance: InstanceSpec) -> AsyncIterator[tuple[list[str], list[str]]]:
        """Keep the disks usable for the block; return their paths, and the words of the program that runs the script."""
        disks = InstanceDisks(self.device, instance)
        async with self.locks.of(instance.name), disks.opened() as paths:
            copied = {
                path: ImageOfScript(path, disk.size * MIB)
                for path, disk, is_image in zip(
                    paths, instance.disks, disks.are_images, strict=True
                )
                if is_image
            }
            images = list(copied.values())
            try:
                raw = [copied[path].raw if path in copied else path for path in paths]
                yield raw, command(images)
            except GuestOsError:
                await asyncio.to_thread(discard, images)
                raise
