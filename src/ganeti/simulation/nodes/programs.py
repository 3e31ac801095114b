"""The calls that run programs: OS definitions, their scripts, allocators."""

import json

from ganeti.base.errors import (
    GuestOsError,
    HostError,
    InputError,
)
from ganeti.base.identifiers import plain_name
from ganeti.guest_os.definitions import split_name
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.programs import (
    AllocatorArgs,
    AllocatorOutput,
    OsCreateArgs,
    OsInfo,
    OsRenameArgs,
    OsValidateArgs,
    OsVerified,
    ScriptResult,
)
from ganeti.rpc.procedures.stale_work import EndWorkArgs, EndWorkResult, UnfinishedWork
from ganeti.simulation.nodes.disks import DiskCalls


class ProgramCalls(DiskCalls):
    """The calls that run programs: OS definitions, their scripts, allocators."""

    def on_os_diagnose(self, args: Nothing) -> list[OsInfo]:
        return [
            OsInfo(
                name=name,
                path=f"/os/{name}",
                problem="",
                api_versions=[20],
                variants=[],
                parameters=[],
                version=version,
                scripts=["create", "rename"],
            )
            for name, version in sorted(self.oses.items())
        ]

    def on_os_validate(self, args: OsValidateArgs) -> OsVerified:
        name, _variant = split_name(args.os)
        if name not in self.oses and args.are_defaults:
            return OsVerified()
        self._check_os(args.os, force_variant=args.force_variant)
        if wrong := self.wrong_osparams & args.osparams.items():
            raise GuestOsError(f"the script verify refuses {wrong}")
        return OsVerified(said=self.verify_says)

    def _check_os(self, os: str, *, force_variant: bool = False) -> None:
        name, variant = split_name(os)
        declared = force_variant or self.declares_variants
        if name not in self.oses or (variant and not declared):
            raise GuestOsError(f"there is no OS definition {os}")

    def _check_script(self, instance: InstanceSpec) -> None:
        """Whether a script for an instance's disks may begin."""
        self._check_disks(instance)
        if not self.call.key:
            raise InputError("a call that runs a script needs a key", "key")
        if self.call.key in self.killed_scripts:
            raise GuestOsError(f"{self.call.key} was ended by signal 15")
        if self.call.key in self.ended_scripts:
            raise HostError(f"{self.call.key} was ended before it began")

    def on_os_create(self, args: OsCreateArgs) -> ScriptResult:
        self._check_script(args.instance)
        self._check_os(args.os, force_variant=args.force_variant)
        if self.scripts_stay:
            self.scripts[self.call.key] = self.call.epoch, args.instance
        for disk in args.instance.disks:
            self.installed[disk.uuid] = (args.os, args.instance.name)
        return ScriptResult(tail="installed", log_path="/log")

    def on_end_stale_work(self, args: EndWorkArgs) -> EndWorkResult:
        self._check_epoch(self.call)
        chosen = {
            key
            for key, (epoch, _spec) in self.scripts.items()
            if key in args.keys or (args.older and epoch < self.call.epoch)
        }
        if self.refuses_to_end:
            left = [
                UnfinishedWork(what=f"task {key}", instance=self.scripts[key][1].name)
                for key in sorted(chosen)
            ]
            return EndWorkResult(ended=[], unfinished=left)
        for key in chosen:
            del self.scripts[key]
        self.killed_scripts |= chosen
        self.ended_scripts += sorted({*chosen, *args.keys})
        return EndWorkResult(ended=[f"task {key}" for key in sorted(chosen)], unfinished=[])

    def on_os_rename(self, args: OsRenameArgs) -> ScriptResult:
        self._check_script(args.instance)
        self._check_os(args.os, force_variant=True)
        if self.rename_script_fails:
            raise GuestOsError(self.rename_script_fails)
        for disk in args.instance.disks:
            self.installed[disk.uuid] = (args.os, args.instance.name)
        return ScriptResult(tail=f"renamed from {args.old_name}", log_path="/log")

    def on_allocator_run(self, args: AllocatorArgs) -> AllocatorOutput:
        plain_name(args.name, "iallocator")
        if wrong := [option for option in args.options if not option.startswith("--")]:
            raise InputError(f"{wrong} are no options", "options")
        program = self.allocators.get(args.name)
        if program is None or args.message is None:
            return AllocatorOutput(found=program is not None)
        return program(json.loads(args.message))
