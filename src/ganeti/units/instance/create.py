"""Creating instances."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError, Refused, RpcError
from ganeti.config.os_states import base_name
from ganeti.config.resolve import full_name, resolve_group, resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.storage_units import space_needed
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.jobs.undo_log import UndoLog
from ganeti.layouts.planner import placed_disks
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.compression import check_allowed
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.iallocator import RequestType
from ganeti.model.image_source import OS_NAME
from ganeti.model.names import DiskRole
from ganeti.model.objects import Image, Instance, Node, NodeGroup, NodeUuid
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.reasons import table
from ganeti.units import name_lookup
from ganeti.units.allocation import PlacementRequest, allocators_for, choose_nodes
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.hooks.environment import instance_variables
from ganeti.units.hooks.point import HookPoint, on_nodes
from ganeti.units.image.content import described
from ganeti.units.image.using import wanted_image, with_image, with_image_disks, write_disks
from ganeti.units.instance.adoption import sources, with_adopted_sizes
from ganeti.units.instance.cloning import (
    CLONE,
    ClonePlan,
    clone_disks,
    completed,
    plan_clone,
    source_of,
)
from ganeti.units.instance.confinement import check_confinement
from ganeti.units.instance.create_plan import check_create_arguments, new_disks, new_instance
from ganeti.units.instance.disks import (
    JobNames,
    close_disks,
    copies_open,
    create_disks,
    is_mirrored,
    open_disks,
    planner_of,
    wait_for_sync,
)
from ganeti.units.instance.hardware import with_pinned_hardware
from ganeti.units.instance.hvparam_checks import check_hvparams_on_node
from ganeti.units.instance.importing import (
    IMPORT,
    FoundExport,
    ImportPlan,
    filled,
    find_export,
    import_disks,
    plan_import,
    source_variables,
    tell_name,
)
from ganeti.units.instance.install import check_os, install_os, osparams_with
from ganeti.units.instance.nic_checks import (
    check_links,
    check_no_conflicts,
    network_locks,
)
from ganeti.units.instance.policy import check_instance_policy
from ganeti.units.instance.power import start_instance
from ganeti.units.instance.remote_import import (
    REMOTE_IMPORT,
    RemoteSource,
    check_source,
    plan_remote_import,
    receive_disks,
)
from ganeti.units.instance.requests import check_disks, check_template
from ganeti.units.node_choice import (
    check_can_host,
    check_memory,
    check_online,
    check_space,
    free_resources,
)
from ganeti.units.spindles import check_asked, check_spindles
from ganeti.units.undo.disks import SetDiskRole
from ganeti.units.undo.instances import ForgetInstance
from ganeti.units.undo.step import Step


@dataclass(frozen=True)
class CreatePlan:
    """All decisions about the new instance."""

    instance: Instance
    nodes: tuple[Node, ...]
    """The primary first."""
    install: bool
    start: bool
    imported: ImportPlan | None = None
    """The source of the disks' data, in place of an installation."""
    remote: RemoteSource | None = None
    """The same instance in another cluster."""
    stored: Image | None = None
    """The image whose content the disks get."""
    cloned: ClonePlan | None = None
    """The instance of this cluster whose disks are copied."""
    why_not: tuple[tuple[str, str], ...] = ()
    """Other nodes and the reasons against them, on request."""
    adopted: Mapping[str, str] = field(default_factory=dict)
    """UUID of a disk -> the adopted volume or device; nothing is installed on these disks."""

    @property
    def node(self) -> Node:
        return self.nodes[0]

    @property
    def installs(self) -> bool:
        """True if the create script of the OS runs: on empty disks, or after an image for its settings."""
        if self.stored is not None and base_name(self.instance.os) != OS_NAME:
            return False
        return self.install and not (self.imported or self.remote or self.cloned)

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes]


class LUInstanceCreate(LogicalUnit[OpInstanceCreate, CreatePlan]):
    """Place a new instance, make its disks, record it, install and start it."""

    _why_not: Sequence[tuple[str, str]] = ()

    def check_arguments(self) -> None:
        check_create_arguments(self.op)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        self.op = replace(self.op, instance_name=full_name(snapshot, self.op.instance_name))
        given = (
            self._given(snapshot) if self.op.mode not in (IMPORT, CLONE) else ()
        )  # the export may be on any node, and a source without a request may decide
        nodes = tuple(node.uuid for node in given) if given else ALL
        names, image = {self.op.instance_name}, wanted_image(snapshot, self.op)
        if image is not None:
            self.op = with_image(self.op, image)
            nodes = nodes if nodes is ALL else (*nodes, *image.nodes)
        networks = [nic.network for nic in self.op.nics]
        if self.op.mode == CLONE:
            source = source_of(snapshot, self.op)
            names.add(source.name)
            networks += [nic.network for nic in source.nics]
        return [
            lock(Level.INSTANCE, names),
            lock(Level.NODE, nodes, Mode.SHARED),
            *network_locks(snapshot, networks),
            lock(Level.IMAGE, image.uuid if image else None, Mode.SHARED),
        ]

    async def check_prereq(self, ctx: UnitContext) -> CreatePlan:
        check_allowed(self.op.compress, ctx.snapshot.cluster.compression_tools)
        os_is_given = bool(self.op.os_type) and self.op.mode != REMOTE_IMPORT
        image = wanted_image(ctx.snapshot, self.op)
        found, source = await self._complete(ctx)
        certificate = check_source(ctx, self.op) if self.op.mode == REMOTE_IMPORT else ""
        await self._check_names(ctx)
        op, snapshot = self.op, ctx.snapshot
        template = check_template(op.disk_template, snapshot.cluster)
        check_disks(op.disks, template)
        unplaced = new_instance(ctx, op, template, self._group(snapshot))
        check_confinement(ctx, unplaced)
        adopted = sources(op.disks, unplaced.disks)
        unplaced = await self._with_adopted_sizes(ctx, unplaced, adopted)
        groups = list(snapshot.groups.values())
        if not op.ignore_ipolicy:
            check_instance_policy(ctx, unplaced, ignore=False, groups=groups)
        nodes = await self._nodes(ctx, unplaced)
        for node in nodes:
            check_can_host(node)
        node = nodes[0]
        own = [snapshot.groups[node.group]]
        unplaced = self._with_disks_of(ctx, own[0], unplaced)
        check_instance_policy(ctx, unplaced, ignore=op.ignore_ipolicy, groups=own)
        if op.conflicts_check:
            check_no_conflicts(ctx, own[0], unplaced.nics)
        uuids = [NodeUuid(one.uuid) for one in nodes]
        instance = placed_disks(planner_of(unplaced), unplaced, uuids, JobNames(ctx))
        ctx.check_change(lambda draft: _add(draft, instance))
        await self._check_resources(ctx, nodes, instance, adopted)
        imported = await plan_import(ctx, found, instance, node) if found else None
        remote = (
            await plan_remote_import(ctx, op, instance, certificate, node) if certificate else None
        )
        cloned = await plan_clone(ctx, source, instance.os, node) if source else None
        by_script = [one.by_script for one in (imported, remote) if one is not None]
        must_fit = (all(by_script) and cloned is None) or os_is_given
        await self._check_on_node(ctx, node, instance, os_must_fit=must_fit)
        instance = await with_pinned_hardware(ctx, node, instance)
        if op.no_install:
            ctx.info("No-installation mode selected, disabling startup")
        install = not op.no_install and template.has_disks and not adopted
        why_not = tuple(self._why_not)
        return CreatePlan(
            instance,
            nodes,
            install,
            self._starts,
            imported,
            remote,
            image,
            cloned,
            why_not,
            adopted,
        )

    async def _complete(self, ctx: UnitContext) -> tuple[FoundExport | None, Instance | None]:
        """Complete the request from the export or the instance that it names; return these."""
        found = await find_export(ctx, self.op) if self.op.mode == IMPORT else None
        source = source_of(ctx.snapshot, self.op) if self.op.mode == CLONE else None
        if found is not None:
            self.op = filled(ctx, self.op, found.description)
        if source is not None:
            self.op = completed(ctx, self.op, source)
        if (image := wanted_image(ctx.snapshot, self.op)) is not None:
            self.op = filled(ctx, with_image_disks(self.op, image), described(image))
        check_create_arguments(self.op)
        return found, source

    async def _check_names(self, ctx: UnitContext) -> None:
        op = self.op
        if ctx.snapshot.instance_by_name(op.instance_name):
            raise PrereqError(f"instance {op.instance_name} exists already", ErrorCode.EXISTS)
        if op.group_name:
            group = resolve_group(ctx.snapshot, op.group_name)
            self.op = replace(op, group_name=group.name)
        ctx.config.reservations.take_name(ctx.job_id, op.instance_name)
        await name_lookup.check_name(
            op.instance_name, name_check=op.name_check, ip_check=op.ip_check
        )

    async def _with_adopted_sizes(
        self, ctx: UnitContext, instance: Instance, adopted: Mapping[str, str]
    ) -> Instance:
        given = self._given(ctx.snapshot)
        if not adopted:
            return instance
        if self.op.mode != "create":
            raise InputError("an import would overwrite adopted disks", "disks")
        if not given:
            raise InputError("name the node of the adopted disks (--node)", "pnode")
        check_online(given[0])
        here = replace(instance, primary_node=NodeUuid(given[0].uuid))
        return replace(
            await with_adopted_sizes(ctx, here, given[0], adopted), primary_node=NodeUuid("")
        )

    @property
    def _starts(self) -> bool:
        return self.op.start and not self.op.no_install

    def _given(self, snapshot: Snapshot) -> tuple[Node, ...]:
        """Return the requested nodes, the primary first."""
        op = self.op
        given = (op.pnode_uuid or op.pnode, op.snode_uuid or op.snode)
        return tuple(resolve_node(snapshot, name) for name in given if name)

    def _group(self, snapshot: Snapshot) -> NodeGroup | None:
        """Return the group of the requested node, or the requested group; None if any may be chosen."""
        if given := self._given(snapshot):
            return snapshot.groups[given[0].group]
        name = self.op.group_name
        return resolve_group(snapshot, name) if name else None

    def _with_disks_of(self, ctx: UnitContext, group: NodeGroup, unplaced: Instance) -> Instance:
        """Return the instance with disks as the group wants them, if that was not known before the choice of nodes."""
        if self._group(ctx.snapshot) is not None or not group.diskparams:
            return unplaced
        template = DISK_TEMPLATES[unplaced.disk_template]
        return replace(unplaced, disks=new_disks(ctx, self.op, template, group))

    async def _nodes(self, ctx: UnitContext, instance: Instance) -> tuple[Node, ...]:
        """Return the requested or allocated nodes; their new load is recorded."""
        op = self.op
        demand = Demand.of(ctx.snapshot.cluster, instance)
        request = PlacementRequest(
            demand,
            will_run=self._starts,
            ignore_policy=op.ignore_ipolicy,
            group_name=op.group_name,
            explain=op.explain,
        )
        given = self._given(ctx.snapshot)
        if given:
            ctx.services.placements.place(request.placed_on(ctx, *given))
            return given
        allocators = allocators_for(ctx.snapshot.cluster, RequestType.ALLOCATE, op.iallocator)
        if not allocators:
            raise PrereqError(
                "name a node (--node) or an allocator (--iallocator) for the instance:"
                " the cluster has no default allocator",
                ErrorCode.WRONG_INPUT,
            )
        choice = await choose_nodes(ctx, allocators, request)
        chosen = ", ".join(node.name for node in choice.nodes)
        ctx.log(f"Selected nodes for the instance: {chosen}")
        for line in table(choice.why_not):
            ctx.log(line)
        self._why_not = choice.why_not
        return tuple(choice.nodes)

    async def _check_resources(
        self,
        ctx: UnitContext,
        nodes: Sequence[Node],
        instance: Instance,
        adopted: Collection[str] = (),
    ) -> None:
        what = f"instance {instance.name}"
        demand = Demand.of(ctx.snapshot.cluster, instance)
        new = [disk for disk in instance.disks if disk.uuid not in adopted]
        needs = space_needed(ctx.snapshot.cluster, new)
        for node in nodes:
            info = await free_resources(ctx, node, what, needs)
            memory = demand.memory if self._starts and node is nodes[0] else 0
            check_memory(info, node, memory, what)
            check_space(info, node, needs)
            check_asked(ctx.snapshot, node, instance.disks)
            check_spindles(ctx.snapshot, info, node, new)

    async def _check_on_node(
        self, ctx: UnitContext, node: Node, instance: Instance, *, os_must_fit: bool
    ) -> None:
        """Query the chosen node whether it could run and install the instance.

        Existing disks need no OS definition.
        """
        await check_hvparams_on_node(ctx, node, instance)
        await check_links(ctx, node, instance)
        if self.op.no_install or not instance.os:
            return
        osparams = self._osparams(ctx, instance)
        try:
            await check_os(ctx, node, instance.os, osparams, force_variant=self.op.force_variant)
        except PrereqError as err:
            if os_must_fit:
                raise
            ctx.warn(
                f"{err}; its disks are used unchanged, but it cannot be reinstalled until this is fixed"
                " (gnt-os diagnose; another OS: gnt-instance modify -o OS)"
            )

    def _osparams(self, ctx: UnitContext, instance: Instance) -> dict[str, str]:
        """Return the OS parameters including those that are not stored or not shown."""
        return osparams_with(ctx, instance, self.op.osparams_private, self.op.osparams_secret)

    def hooks(self, snapshot: Snapshot, plan: CreatePlan) -> HookPoint:
        now = snapshot.instances.get(plan.instance.uuid, plan.instance)
        source = source_variables(plan.imported) if plan.imported is not None else {}
        if plan.cloned is not None:
            source = {"SRC_INSTANCE": plan.cloned.source.name}
        variables = {**instance_variables(snapshot, now), "ADD_MODE": self.op.mode, **source}
        return on_nodes("instance-add", variables, snapshot, plan.instance.all_nodes)

    async def execute(self, ctx: UnitContext, plan: CreatePlan) -> Outcome:
        """Carry out the plan, or remove every trace of it; if only the start fails, the instance is kept."""
        async with ctx.undo_log() as undo:
            if plan.instance.disks:
                ctx.step("creating instance disks")
            await create_disks(ctx, undo, plan.instance, adopted=plan.adopted)
            ctx.log(f"adding instance {plan.instance.name} to cluster config")
            ctx.info(f"the instance's UUID is {plan.instance.uuid}")
            await undo.push(ForgetInstance(instance=plan.instance.uuid))
            await ctx.config.change(lambda draft: _add(draft, plan.instance))
            if is_mirrored(plan.instance):
                await self._first_sync(ctx, undo, plan)
            confirmations: list[Step] = []
            if plan.imported is not None:
                await self._import(ctx, undo, plan, plan.imported)
            elif plan.remote is not None:
                confirmations = await self._receive(ctx, undo, plan, plan.remote)
            elif plan.cloned is not None:
                await self._clone(ctx, undo, plan, plan.cloned)
            elif plan.stored is not None:
                async with copies_open(ctx, plan.instance):
                    await write_disks(ctx, undo, plan.instance, plan.stored)
            if plan.installs:
                ctx.step("running the instance OS create scripts")
                async with copies_open(ctx, plan.instance):
                    await self._install(ctx, plan)
            undo.commit(then=confirmations)
        if plan.start:
            ctx.step("starting instance")
            await self._start(ctx, plan.instance)
        return Outcome(plan.names)

    async def _first_sync(self, ctx: UnitContext, undo: UndoLog, plan: CreatePlan) -> None:
        """Connect the copies, and synchronise them unless the request does not wait for it."""
        await undo.push(SetDiskRole(node=plan.node.uuid, instance=plan.instance.uuid))
        async with copies_open(ctx, plan.instance):
            await open_disks(ctx, plan.instance, plan.node, DiskRole.PRIMARY)
            if self.op.wait_for_sync:
                ctx.step("waiting for the copies to be the same")
                await wait_for_sync(ctx, plan.instance)
            await close_disks(ctx, plan.instance, plan.node)

    async def _import(
        self, ctx: UnitContext, undo: UndoLog, plan: CreatePlan, imported: ImportPlan
    ) -> None:
        osparams = self._osparams(ctx, plan.instance)
        await import_disks(ctx, undo, plan.instance, imported, op=self.op, osparams=osparams)
        await tell_name(
            ctx,
            plan.instance,
            imported.found.description.name,
            osparams,
            has_script=imported.renames,
            debug=self.op.debug_level,
        )

    async def _clone(
        self, ctx: UnitContext, undo: UndoLog, plan: CreatePlan, cloned: ClonePlan
    ) -> None:
        await clone_disks(ctx, undo, plan.instance, cloned, compress=self.op.compress)
        await tell_name(
            ctx,
            plan.instance,
            cloned.source.name,
            self._osparams(ctx, plan.instance),
            has_script=cloned.renames,
            debug=self.op.debug_level,
        )

    async def _receive(
        self, ctx: UnitContext, undo: UndoLog, plan: CreatePlan, remote: RemoteSource
    ) -> list[Step]:
        osparams = self._osparams(ctx, plan.instance)
        left = await receive_disks(ctx, undo, plan.instance, remote, op=self.op, osparams=osparams)
        await tell_name(
            ctx,
            plan.instance,
            remote.name,
            osparams,
            has_script=remote.renames,
            debug=self.op.debug_level,
        )
        return left

    async def _install(self, ctx: UnitContext, plan: CreatePlan) -> None:
        await install_os(
            ctx,
            plan.node,
            plan.instance,
            self._osparams(ctx, plan.instance),
            force_variant=self.op.force_variant,
            debug_level=self.op.debug_level,
        )

    async def _start(self, ctx: UnitContext, instance: Instance) -> None:
        try:
            await start_instance(ctx, instance)
        except (RpcError, Refused) as err:
            failure = ExecError(
                f"instance {instance.name} was created, but did not start: {err}; after the fix:"
                f" gnt-instance startup {instance.name}"
            )
            for note in getattr(err, "__notes__", ()):
                failure.add_note(note)
            raise failure from err

    def dry_run_result(self, ctx: UnitContext, plan: CreatePlan) -> Any:
        if not self.op.explain:
            return plan.names
        return {"nodes": plan.names, "why_not": [list(one) for one in plan.why_not]}


def _add(draft: Draft, instance: Instance) -> None:
    draft.put(instance)
