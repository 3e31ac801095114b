"""Changes of an instance: parameters, disks, NICs, memory of the running guest."""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError
from ganeti.base.identifiers import os_name
from ganeti.config.fill import (
    filled_beparams,
    instance_spec,
)
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import space_needed
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.layouts.places import holders
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.applies import Applies
from ganeti.model.confinement import DOMAIN, MODEL
from ganeti.model.hypervisor_param import CD_DRIVES
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import AdminState
from ganeti.model.objects import DetachedDisk, Instance, Node
from ganeti.model.opcodes.instance_changes import OpInstanceSetParams
from ganeti.rpc.procedures.devices import (
    HOTPLUG_DISK,
    HOTPLUG_MEDIUM,
    HOTPLUG_NIC,
    HOTPLUG_OBSTACLES,
    DiskChangeArgs,
    MediumArgs,
    NicChangeArgs,
)
from ganeti.rpc.procedures.instances import InstanceArgs, RunningInstance
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import (
    InstanceUnit,
    check_not_migrating,
    primary_node,
    put_instance,
    running_state,
    spec_of,
)
from ganeti.units.instance.confinement import check_confinement
from ganeti.units.instance.device_changes import DISK_ACTIONS, parse_changes, text_or_none
from ganeti.units.instance.disk_changes import (
    DiskChanges,
    changed_disks,
    check_sizes,
    wanted_disk,
)
from ganeti.units.instance.disks import (
    create_disks,
    label_disks,
    open_secondaries,
    wait_for_sync,
)
from ganeti.units.instance.field_changes import HYPERVISOR, FieldChange, waiting
from ganeti.units.instance.grants import check_recovery, closed, with_writer
from ganeti.units.instance.hardware import with_network_port
from ganeti.units.instance.hot_amounts import (
    NOTHING,
    HotAmounts,
    change_amounts,
    possible_amounts,
    settled,
    wanted_amounts,
)
from ganeti.units.instance.hot_steps import HotStep, hot_steps
from ganeti.units.instance.hvparam_checks import check_hvparams_on_node
from ganeti.units.instance.install import check_os, osparams_with
from ganeti.units.instance.new_primary import check_alone, wanted_primary, with_new_primary
from ganeti.units.instance.nic_changes import changed_nics, check_new_nics
from ganeti.units.instance.nic_checks import check_links, check_no_conflicts, network_locks
from ganeti.units.instance.param_changes import backend_changes, changed_params
from ganeti.units.instance.policy import check_instance_policy
from ganeti.units.job_source import check_may_set
from ganeti.units.node_choice import check_memory, check_online, check_space, free_resources
from ganeti.units.relocation.convert import (
    check_conversion,
    convert,
    other_node,
    plan_conversion,
)
from ganeti.units.relocation.live_disks import move_disks
from ganeti.units.relocation.plan import DiskPlan
from ganeti.units.spindles import check_asked, check_spindles
from ganeti.units.undo.disks import closings, removals
from ganeti.units.undo.guests import ChangeDisk, ChangeMedium, ChangeNic
from ganeti.units.undo.step import Step

OF_CONVERSIONS = (
    *("ext_params", "file_driver", "remote_node", "remote_node_uuid", "iallocator", "bandwidth"),
)
"""Fields that require another disk template."""


@dataclass(frozen=True, kw_only=True)
class ModifyPlan:
    """The instance before and after, the changes of its running guest, and the reported changes."""

    node: Node
    before: Instance
    after: Instance
    changes: list[FieldChange]
    disks: DiskChanges
    new_disks: tuple[DiskSpec, ...] = ()
    old_disks: tuple[DiskSpec, ...] = ()
    hot: tuple[HotStep, ...] = ()
    media: tuple[str, ...] = ()
    """New media in CD drives of the running guest, by their hypervisor parameters."""
    amounts: HotAmounts = NOTHING
    later: tuple[str, ...] = ()
    """Changes that the running guest gets at its next start."""


class LUInstanceSetParams(InstanceUnit[OpInstanceSetParams, ModifyPlan | DiskPlan]):
    """Change an instance; its running guest follows at once if that is possible and allowed."""

    hook = "instance-modify"

    def hook_requested(self, plan: ModifyPlan | DiskPlan) -> Instance | None:
        return plan.after if isinstance(plan, ModifyPlan) else None

    def hook_variables(
        self, snapshot: Snapshot, instance: Instance, plan: ModifyPlan | DiskPlan
    ) -> dict[str, str]:
        del snapshot, instance, plan
        given = {"NEW_DISK_TEMPLATE": self.op.disk_template, "RUNTIME_MEMORY": self.op.runtime_mem}
        return {name: str(value) for name, value in given.items() if value}

    def check_arguments(self) -> None:
        op = self.op
        if op.instance_communication:
            raise InputError(
                "this implementation does not support the change", "instance_communication"
            )
        if op.pnode or op.pnode_uuid:
            check_alone(op)
        check_sizes(parse_changes(op.disks, "disks", DISK_ACTIONS))
        check_new_nics(parse_changes(op.nics, "nics"))
        if op.os_name is not None:
            os_name(op.os_name, "os_name")
        backend_changes(op.beparams)
        if op.disk_template is not None:
            check_conversion(op)
        for field in OF_CONVERSIONS if op.disk_template is None else ():
            if getattr(op, field):
                raise InputError("requires another disk template (-t)", field)
        if op.hotplug and op.hotplug_if_possible:
            raise InputError("cannot be combined with hotplug", "hotplug_if_possible")
        if op.runtime_mem is not None and op.runtime_mem < 1:
            raise InputError("must be at least 1 MiB", "runtime_mem")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        before = self.instance(snapshot)
        asked = [one.params.get("network") for one in parse_changes(self.op.nics, "nics")]
        names = [text_or_none(one, "nics.network") for one in asked]
        known = [nic.network for nic in before.nics] if self.op.nics else []
        locks = [*super().declare_locks(snapshot), *network_locks(snapshot, [*names, *known])]
        named = (other_node(self.op, snapshot), wanted_primary(self.op, snapshot))
        others = {node.uuid for node in named if node is not None}
        for change in parse_changes(self.op.disks, "disks", DISK_ACTIONS):
            if change.action == "attach":
                others |= set(wanted_disk(snapshot, change.params, "disks").nodes)
        if others:
            locks[1] = lock(Level.NODE, {*before.all_nodes, *others}, Mode.SHARED)
        return locks

    async def check_prereq(self, ctx: UnitContext) -> ModifyPlan | DiskPlan:
        op, before = self.op, self.instance(ctx.snapshot)
        check_not_migrating(before)
        if op.disk_template is not None:
            return await plan_conversion(ctx, before, op)
        if (new_primary := wanted_primary(op, ctx.snapshot)) is not None:
            return await self._plan_new_primary(ctx, before, new_primary)
        check_may_set(ctx, before.hypervisor, op.hvparams)
        self._check_template(before, runs=False)
        node = primary_node(ctx, before)
        after, changes, of_disks = self._after(ctx, before)
        # Removing an OS parameter that is not set is allowed: the request is idempotent.
        has_request = changes or op.osparams or op.osparams_private
        given = (op.runtime_mem, op.offline, op.template)
        if not has_request and all(one is None for one in given):
            raise InputError("nothing to change: pass at least one option", "instance")
        if op.beparams or op.disks or op.nics:
            check_instance_policy(ctx, after, ignore=op.ignore_ipolicy)
        if op.nics and op.conflicts_check:
            new = [nic for nic in after.nics if nic not in before.nics]
            check_no_conflicts(ctx, ctx.snapshot.groups[node.group], new)
        if op.hvparams.keys() & {MODEL, DOMAIN}:
            check_confinement(ctx, after)
        ctx.check_change(_change(after, of_disks))
        state = await self._state(ctx, node, before)
        new_disks, old_disks = self._disks_that_change(ctx, before, after)
        if new_disks or old_disks:
            check_online(node)
        wanted = wanted_amounts(ctx, after, state, {one.label for one in changes})
        await self._check_on_node(ctx, node, before, after, state, hot=wanted)
        steps = hot_steps(spec_of(ctx, before), instance_spec(ctx.snapshot, after))
        is_hot = bool(steps or wanted) and await self._is_hot(ctx, node, before, state)
        amounts = await self._amounts(ctx, before, state, wanted, is_hot=is_hot)
        if state is not None and old_disks and not is_hot:
            raise PrereqError(
                f"{before.name} runs and has disk {old_disks[0].index} open; remove it while the guest runs"
                f" (--hotplug), or first run: gnt-instance shutdown {before.name}",
                ErrorCode.WRONG_STATE,
            )
        media = self._media(ctx, before, after) if state is not None else ()
        return ModifyPlan(
            node=node,
            before=before,
            after=after,
            changes=changes,
            disks=of_disks,
            new_disks=new_disks,
            old_disks=old_disks,
            hot=tuple(steps) if is_hot else (),
            media=media,
            amounts=amounts,
            later=waiting(
                changes,
                has_devices=is_hot,
                at_once={*(f"{HYPERVISOR}/{name}" for name in media), *settled(wanted, amounts)},
            )
            if state is not None
            else (),
        )

    async def _plan_new_primary(self, ctx: UnitContext, before: Instance, node: Node) -> ModifyPlan:
        moved = await with_new_primary(ctx, before, node, is_forced=self.op.force)
        after, changes, disks = self._after(ctx, moved)
        ctx.check_change(put_instance(after))
        changes = [FieldChange("pnode", "", node.name, Applies.NOW), *changes]
        return ModifyPlan(node=node, before=before, after=after, changes=changes, disks=disks)

    def _after(
        self, ctx: UnitContext, before: Instance
    ) -> tuple[Instance, list[FieldChange], DiskChanges]:
        op = self.op
        after, of_params = changed_params(ctx.snapshot.cluster, before, op)
        nics, of_nics = changed_nics(ctx, before.nics, parse_changes(op.nics, "nics"))
        given = parse_changes(op.disks, "disks", DISK_ACTIONS)
        of_disks = changed_disks(ctx, after, given, op.file_storage_dir)
        after = with_network_port(ctx, replace(of_disks.after, nics=nics))
        if op.beparams:
            check_recovery(after)
        of_template = []
        if op.template is not None and op.template != before.template:
            after = replace(after, template=op.template)
            of_template = [FieldChange("template", "", op.template, Applies.NOW)]
        return after, [*of_params, *of_disks.results, *of_nics, *of_template], of_disks

    def _disks_that_change(
        self, ctx: UnitContext, before: Instance, after: Instance
    ) -> tuple[tuple[DiskSpec, ...], tuple[DiskSpec, ...]]:
        old = {disk.uuid: disk for disk in instance_spec(ctx.snapshot, before).disks}
        new = {disk.uuid: disk for disk in instance_spec(ctx.snapshot, after).disks}
        return (
            tuple(disk for uuid, disk in new.items() if uuid not in old),
            tuple(disk for uuid, disk in old.items() if uuid not in new),
        )

    async def _state(
        self, ctx: UnitContext, node: Node, instance: Instance
    ) -> RunningInstance | None:
        """Return the running guest; None if there is none, or its node is marked offline."""
        if node.offline:
            return None
        state = await running_state(ctx, node, instance)
        if state is not None and state.state not in ("running", "paused", "shutdown"):
            raise PrereqError(
                f"a migration of {instance.name} is under way on {node.name} ({state.state});"
                f" run: gnt-instance migrate --cleanup {instance.name}",
                ErrorCode.WRONG_STATE,
            )
        if state is not None and self.op.offline:
            raise PrereqError(
                f"instance {instance.name} runs; shut it down before it is marked offline",
                ErrorCode.WRONG_STATE,
            )
        if state is not None:
            self._check_template(instance, runs=True)
        return state

    def _check_template(self, instance: Instance, *, runs: bool) -> None:
        if self.op.template and (runs or instance.admin_state is AdminState.UP):
            raise PrereqError(
                f"instance {instance.name} runs, or should run, so it cannot be a template; first run:"
                f" gnt-instance shutdown {instance.name}",
                ErrorCode.WRONG_STATE,
            )

    async def _check_on_node(
        self,
        ctx: UnitContext,
        node: Node,
        before: Instance,
        after: Instance,
        state: RunningInstance | None,
        *,
        hot: HotAmounts,
    ) -> None:
        """Query the node whether it could run the changed instance; `--force` skips this."""
        if node.offline:
            return
        await self._check_resources(ctx, node, before, after, state, hot=hot)
        if self.op.force:
            return
        if after.nics != before.nics:
            await check_links(ctx, node, after)
        if self.op.hvparams:
            await check_hvparams_on_node(ctx, node, after)
        if after.os and _os_of(before) != _os_of(after):
            osparams = osparams_with(ctx, after)
            await check_os(ctx, node, after.os, osparams, force_variant=self.op.force_variant)

    async def _check_resources(
        self,
        ctx: UnitContext,
        node: Node,
        before: Instance,
        after: Instance,
        state: RunningInstance | None,
        *,
        hot: HotAmounts,
    ) -> None:
        cluster, what = ctx.snapshot.cluster, f"changing instance {before.name}"
        old, new = filled_beparams(ctx.snapshot, before), filled_beparams(ctx.snapshot, after)
        raised = new["maxmem"] if new["maxmem"] > old["maxmem"] else 0
        if hot.memory is not None and (self.op.hotplug or self.op.hotplug_if_possible):
            raised = max(raised, hot.memory[1])
        wanted = self.op.runtime_mem or raised
        more_memory = wanted - state.memory if state is not None and not self.op.force else 0
        known = {disk.uuid for disk in before.disks} | ctx.snapshot.table(DetachedDisk).keys()
        more = [one for one in after.disks if one.uuid not in known]
        check_asked(ctx.snapshot, node, more)
        more_space = space_needed(cluster, more)
        if more_memory <= 0 and not more_space:
            return
        info = await free_resources(ctx, node, what, more_space)
        check_memory(info, node, max(0, more_memory), what)
        if more_space:
            check_space(info, node, more_space)
            check_spindles(ctx.snapshot, info, node, more)

    async def _is_hot(
        self, ctx: UnitContext, node: Node, instance: Instance, state: RunningInstance | None
    ) -> bool:
        """Return whether the running guest is changed at once."""
        op = self.op
        if state is None or not (op.hotplug or op.hotplug_if_possible):
            return False
        obstacles = await ctx.call(
            node, HOTPLUG_OBSTACLES, InstanceArgs(instance=spec_of(ctx, instance))
        )
        if obstacles and op.hotplug:
            raise PrereqError(
                f"the running guest of {instance.name} cannot be changed: {'; '.join(obstacles)}",
                ErrorCode.WRONG_STATE,
            )
        for obstacle in obstacles:
            ctx.info(f"the running guest is not changed: {obstacle}")
        return not obstacles

    async def _amounts(
        self,
        ctx: UnitContext,
        instance: Instance,
        state: RunningInstance | None,
        wanted: HotAmounts,
        *,
        is_hot: bool,
    ) -> HotAmounts:
        """Return what the running guest gets at once; an explicit request for its memory needs no hotplug."""
        found = NOTHING
        if is_hot:
            node = primary_node(ctx, instance)
            found = await possible_amounts(ctx, node, instance, wanted, must=self.op.hotplug)
        requested = self._memory(ctx, instance, state)
        return found if requested is None else HotAmounts(vcpus=found.vcpus, memory=requested)

    def _media(self, ctx: UnitContext, before: Instance, after: Instance) -> tuple[str, ...]:
        if not (self.op.hotplug or self.op.hotplug_if_possible):
            return ()
        old = instance_spec(ctx.snapshot, before).hvparams
        new = instance_spec(ctx.snapshot, after).hvparams
        return tuple(name for name in CD_DRIVES if old.get(name) != new.get(name))

    def _memory(
        self, ctx: UnitContext, instance: Instance, state: RunningInstance | None
    ) -> tuple[int, int] | None:
        wanted = self.op.runtime_mem
        if wanted is None:
            return None
        if state is None:
            raise PrereqError(
                f"instance {instance.name} does not run, so it has no memory to give back",
                ErrorCode.WRONG_STATE,
            )
        filled = filled_beparams(ctx.snapshot, instance)
        if not self.op.force and not filled["minmem"] <= wanted <= filled["maxmem"]:
            raise InputError(
                f"must be from minmem ({filled['minmem']} MiB) to maxmem ({filled['maxmem']} MiB)",
                "runtime_mem",
            )
        return state.memory, wanted

    async def execute(self, ctx: UnitContext, plan: ModifyPlan | DiskPlan) -> Outcome:
        """Make new disks, change the guest, then the configuration, then remove old disks.

        A failure changes nothing.
        """
        if isinstance(plan, DiskPlan):
            if plan.is_up:
                return await move_disks(
                    ctx,
                    plan.before,
                    plan.after,
                    plan.node,
                    bandwidth_mib_s=self.op.bandwidth,
                    wait=self.op.wait_for_sync,
                )
            return await convert(ctx, plan, wait=self.op.wait_for_sync)
        async with ctx.undo_log() as undo:
            await self._create_disks(ctx, undo, plan)
            for step in plan.hot:
                await self._change_guest(ctx, undo, plan, step)
            await self._change_media(ctx, undo, plan)
            await change_amounts(ctx, undo, plan.node, plan.before, plan.amounts)
            undo.commit(self._recorded(ctx, plan), then=self._superfluous(ctx, plan))
        await label_disks(ctx, plan.after, [one.disk.uuid for one in plan.disks.attached])
        if self.op.wait_for_sync and plan.new_disks and plan.hot:
            await wait_for_sync(ctx, plan.after)
        self._tell_later(ctx, plan)
        return Outcome(_reported(plan))

    def _tell_later(self, ctx: UnitContext, plan: ModifyPlan) -> None:
        for name in plan.later:
            ctx.info(f"{name} takes effect at the next start of {plan.after.name}")

    def _superfluous(self, ctx: UnitContext, plan: ModifyPlan) -> list[Step]:
        """Return the steps that remove the disks to delete, and close those that are only detached."""
        kept = {disk.uuid for disk in plan.disks.detached}
        gone = {disk.uuid for disk in plan.old_disks} - kept
        steps = list[Step]()
        for uuid in holders(plan.before):
            spec = instance_spec(ctx.snapshot, plan.before, uuid)
            steps += removals(uuid, spec, gone)
            steps += closings(uuid, spec, kept)
        return steps

    async def _create_disks(self, ctx: UnitContext, undo: UndoLog, plan: ModifyPlan) -> None:
        attached = {disk.uuid for disk in plan.disks.attached}
        new = [disk for disk in plan.new_disks if disk.uuid not in attached]
        if new:
            ctx.step(f"creating disks {', '.join(str(disk.index) for disk in new)}")
            await create_disks(ctx, undo, plan.after, only={disk.uuid for disk in new})
        if not plan.hot or not plan.new_disks:
            return
        for uuid in holders(plan.after) if attached else ():
            for step in closings(uuid, instance_spec(ctx.snapshot, plan.after, uuid), attached):
                await undo.push(step)
        await open_secondaries(ctx, plan.after)

    async def _change_guest(
        self, ctx: UnitContext, undo: UndoLog, plan: ModifyPlan, step: HotStep
    ) -> None:
        ctx.step(f"changing the running guest: {step.act.action} {step.label}")
        node = plan.node.uuid
        match step.act, step.undo:
            case DiskChangeArgs() as act, DiskChangeArgs() as back:
                await undo.push(ChangeDisk(node=node, change=back))
                await ctx.call(plan.node, HOTPLUG_DISK, act)
            case NicChangeArgs() as act, NicChangeArgs() as back:
                await undo.push(ChangeNic(node=node, change=back))
                await ctx.call(plan.node, HOTPLUG_NIC, act)

    async def _change_media(self, ctx: UnitContext, undo: UndoLog, plan: ModifyPlan) -> None:
        back = instance_spec(ctx.snapshot, plan.before)
        there = instance_spec(ctx.snapshot, plan.after)
        for drive in plan.media:
            ctx.step(f"changing the running guest: {drive} ({there.hvparams[drive] or 'nothing'})")
            undone = MediumArgs(instance=back, drive=drive)
            await undo.push(ChangeMedium(node=plan.node.uuid, change=undone))
            done = await ctx.call(
                plan.node, HOTPLUG_MEDIUM, MediumArgs(instance=there, drive=drive)
            )
            if done.is_changed:
                continue
            why = f"the running guest has no drive for {drive} whose medium can be changed"
            if self.op.hotplug:
                raise ExecError(why)
            ctx.info(f"{why}: it takes effect at the next start of {plan.after.name}")

    def _recorded(self, ctx: UnitContext, plan: ModifyPlan) -> Change:
        """Return the change; a new primary node gets the disks with it."""
        before, change = plan.before, _change(plan.after, plan.disks)
        if plan.after.primary_node == before.primary_node:
            return change
        was_asked = not (self.op.force or primary_node(ctx, before).offline)

        def moved(draft: Draft) -> None:
            change(draft)
            there = draft.instances[before.uuid]
            at_home = replace(there, primary_node=before.primary_node)
            granted = with_writer(draft, at_home, there.primary_node, is_closed=was_asked)
            draft.put(replace(there, disks=granted.disks))

        return moved

    def dry_run_result(self, ctx: UnitContext, plan: ModifyPlan | DiskPlan) -> Any:
        if isinstance(plan, DiskPlan):
            return [["disk_template", plan.after.disk_template]]
        self._tell_later(ctx, plan)
        return _reported(plan)


def _change(after: Instance, disks: DiskChanges) -> Change:
    """Return the changed instance; attached disks leave the detached ones, detached disks join them."""

    def change(draft: Draft) -> None:
        present = {disk.uuid: disk.grant for disk in draft.instances[after.uuid].disks}
        for one in disks.attached:
            draft.remove(one)
        draft.put(after)
        for one in disks.detached:
            draft.put(replace(one, disk=closed(replace(one.disk, grant=present[one.uuid]))))

    return change


def _reported(plan: ModifyPlan) -> list[list[Any]]:
    """Return the changes as pairs of name and value."""
    reported = [[one.label, one.value] for one in plan.changes]
    reported += [[step.label, "hotplug:done"] for step in plan.hot]
    reported += [list(pair) for pair in plan.amounts.reported()]
    return reported


def _os_of(instance: Instance) -> tuple[Any, ...]:
    return instance.os, instance.osparams, instance.osparams_private
