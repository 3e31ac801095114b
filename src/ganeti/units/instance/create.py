"""Creating instances."""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, InputError, PrereqError, RpcFailed
from ganeti.base.identifiers import host_name, os_name, plain_name
from ganeti.config.fill import (
    filled_hvparams,
    filled_ipolicy,
    filled_nicparams,
    filled_osparams,
    instance_spec,
)
from ganeti.config.resolve import resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model import wire
from ganeti.model.disk_templates import DiskTemplate
from ganeti.model.hypervisor_params import check_hypervisor_params
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance, InstanceUuid, Node
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.params import BACKEND_DEFAULTS, layered
from ganeti.rpc.procedures import (
    BLOCKDEV_CREATE,
    OS_CREATE,
    OS_VALIDATE,
    VALIDATE_HVPARAMS,
    DiskArgs,
    HvParamsArgs,
    OsCreateArgs,
    OsValidateArgs,
)
from ganeti.units.allocation import Demand, choose_nodes
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import set_admin_state
from ganeti.units.instance.power import start_instance
from ganeti.units.instance.requests import (
    build_disks,
    build_nic,
    check_backend_params,
    check_disks,
    check_nics,
    check_policy,
    check_routed,
    check_template,
    storage_directory,
)
from ganeti.units.node_choice import check_can_host, check_memory, check_space


@dataclass(frozen=True)
class CreatePlan:
    """Everything that creating the instance needs to know."""

    instance: Instance
    node: Node
    install: bool


class LUInstanceCreate(LogicalUnit[OpInstanceCreate, CreatePlan]):
    """Place a new instance, make its disks, record it, install and start it."""

    def check_arguments(self) -> None:
        op = self.op
        if op.mode != "create":
            raise InputError(
                f"{op.mode!r:.40} is not a way to create an instance here; known: create", "mode"
            )
        if host_name(op.instance_name, "instance_name") != op.instance_name:
            raise InputError("must be in lower case", "instance_name")
        if op.snode or op.snode_uuid:
            raise InputError("no disk template of this cluster has a secondary node", "snode")
        if (op.pnode or op.pnode_uuid) and op.iallocator:
            raise InputError("give either a node or an allocator, not both", "iallocator")
        if op.iallocator:
            plain_name(op.iallocator, "iallocator")
        if op.os_type is None and not op.no_install:
            raise InputError(
                "say which OS to install (--os-type), or ask for no installation (--no-install)",
                "os_type",
            )
        if op.os_type is not None:
            os_name(op.os_type, "os_type")
        for tag in op.tags:
            _check_tag(tag)
        check_disks(op.disks, None)
        check_nics(op.nics)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        given = self.op.pnode_uuid or self.op.pnode
        nodes = (resolve_node(snapshot, given).uuid,) if given else ALL
        return [lock(Level.INSTANCE, self.op.instance_name), lock(Level.NODE, nodes, Mode.SHARED)]

    async def check_prereq(self, ctx: UnitContext) -> CreatePlan:
        op, snapshot = self.op, ctx.snapshot
        if snapshot.instance_by_name(op.instance_name):
            raise PrereqError(f"instance {op.instance_name} exists already", ErrorCode.EXISTS)
        ctx.config.reservations.take_name(ctx.job_id, op.instance_name)
        template = check_template(op.disk_template, snapshot.cluster)
        check_disks(op.disks, template)
        draft = self._instance(ctx, template)
        self._check_policy(snapshot, draft)
        node = await self._node(ctx, draft)
        instance = replace(draft, primary_node=node.uuid)
        check_can_host(node)
        beparams = layered(
            BACKEND_DEFAULTS, snapshot.cluster.beparams.get("default", {}), instance.beparams
        )
        memory = beparams["maxmem"] if op.start else 0
        info = await check_memory(ctx, node, memory, f"instance {instance.name}")
        check_space(info, node, template.name, sum(disk.size for disk in instance.disks))
        await self._check_on_node(ctx, node, instance)
        if op.no_install:
            ctx.info("No-installation mode selected, disabling startup")
        return CreatePlan(instance, node, install=not op.no_install and template.has_disks)

    def _instance(self, ctx: UnitContext, template: DiskTemplate) -> Instance:
        """The new instance, not placed yet."""
        op, cluster = self.op, ctx.snapshot.cluster
        hypervisor = op.hypervisor or cluster.enabled_hypervisors[0]
        if hypervisor not in cluster.enabled_hypervisors:
            enabled = ", ".join(cluster.enabled_hypervisors)
            raise InputError(
                f"{hypervisor!r:.40} is not enabled in this cluster; enabled: {enabled}",
                "hypervisor",
            )
        directory = (
            storage_directory(cluster, template, op.file_storage_dir, op.instance_name)
            if template.in_files
            else ""
        )
        reservations = ctx.config.reservations
        nics = []
        for index, request in enumerate(op.nics):
            if request.mac in ("auto", "generate"):
                mac = reservations.new_mac(ctx.job_id, ctx.snapshot)
            else:
                mac = request.mac.lower()
                reservations.take_mac(ctx.job_id, mac, ctx.snapshot)
            nics.append(build_nic(request, mac, ctx.ids))
            check_routed(nics[-1], filled_nicparams(cluster, nics[-1]), index)
        return Instance(
            uuid=InstanceUuid(ctx.ids.uuid()),
            name=op.instance_name,
            primary_node=cluster.master_node,
            os=op.os_type or "",
            hypervisor=hypervisor,
            disk_template=template.name,
            disks=build_disks(op.disks, template, directory, ctx.ids),
            nics=tuple(nics),
            hvparams=check_hypervisor_params(
                hypervisor, op.hvparams, of_instance=True, field="hvparams"
            ),
            beparams=check_backend_params(op.beparams, "beparams"),
            osparams=dict(op.osparams),
            tags=tuple(sorted(set(op.tags))),
        )

    def _check_policy(self, snapshot: Snapshot, instance: Instance) -> None:
        if self.op.ignore_ipolicy:
            return
        demand = Demand.of(snapshot.cluster, instance)
        for group in snapshot.groups.values():
            wrong = check_policy(filled_ipolicy(snapshot.cluster, group), demand.size())
            if not wrong:
                return
        raise PrereqError(
            f"instance {instance.name} violates the instance policy: {'; '.join(wrong)} (--ignore-ipolicy overrides)",
            ErrorCode.WRONG_INPUT,
        )

    async def _node(self, ctx: UnitContext, instance: Instance) -> Node:
        op = self.op
        given = op.pnode_uuid or op.pnode
        if given:
            return resolve_node(ctx.snapshot, given)
        allocator = op.iallocator or ctx.snapshot.cluster.default_iallocator
        if not allocator:
            raise PrereqError(
                "say on which node (--node) or by which allocator (--iallocator) to place the instance:"
                " the cluster has no default allocator",
                ErrorCode.WRONG_INPUT,
            )
        nodes = await choose_nodes(ctx, allocator, Demand.of(ctx.snapshot.cluster, instance))
        ctx.log(f"Selected nodes for the instance: {', '.join(node.name for node in nodes)}")
        return nodes[0]

    async def _check_on_node(self, ctx: UnitContext, node: Node, instance: Instance) -> None:
        """Ask the chosen node whether it could run and install the instance."""
        cluster = ctx.snapshot.cluster
        hvparams = filled_hvparams(cluster, instance)
        args = HvParamsArgs(hypervisor=instance.hypervisor, hvparams=hvparams)
        wrong = await ctx.call(node, VALIDATE_HVPARAMS, args)
        if wrong:
            raise PrereqError(
                f"node {node.name}, hypervisor parameters: {'; '.join(wrong)}",
                ErrorCode.WRONG_INPUT,
            )
        if self.op.no_install or not instance.os:
            return
        osparams = {**filled_osparams(cluster, instance), **self._hidden_osparams()}
        check = OsValidateArgs(
            os=instance.os, osparams=osparams, force_variant=self.op.force_variant
        )
        try:
            await ctx.call(node, OS_VALIDATE, check)
        except RpcFailed as err:
            raise PrereqError(str(err), ErrorCode.WRONG_INPUT) from err

    def _hidden_osparams(self) -> dict[str, str]:
        return {**self.op.osparams_private, **self.op.osparams_secret}

    async def execute(self, ctx: UnitContext, plan: CreatePlan) -> Outcome:
        """Carry out the plan, or leave no trace of it; a failed start keeps the instance."""
        instance, node = plan.instance, plan.node
        spec = instance_spec(ctx.snapshot, instance)
        async with ctx.undo_log() as undo:
            if spec.disks:
                ctx.step("creating instance disks")
            for disk in spec.disks:
                await undo.push(
                    "remove_disk", node=node.uuid, instance=instance.name, disk=wire.plain(disk)
                )
                await ctx.call(
                    node, BLOCKDEV_CREATE, DiskArgs(instance_name=instance.name, disk=disk)
                )
            ctx.log(f"adding instance {instance.name} to cluster config")
            await undo.push("forget_instance", instance=instance.uuid)
            await ctx.config.change(lambda draft: _add(draft, instance))
            if plan.install:
                ctx.step("running the instance OS create scripts")
                await self._install(ctx, plan)
            undo.commit()
        result = [node.name]
        if not self.op.start or self.op.no_install:
            return Outcome(result)
        ctx.step("starting instance")
        try:
            await start_instance(ctx, instance)
        except GanetiError as err:
            raise ExecError(
                f"instance {instance.name} was created, but did not start: {err}; when the cause is mended:"
                f" gnt-instance startup {instance.name}"
            ) from err
        return Outcome(result, change=set_admin_state(instance.uuid, AdminState.UP))

    async def _install(self, ctx: UnitContext, plan: CreatePlan) -> None:
        instance = plan.instance
        args = OsCreateArgs(
            instance=instance_spec(ctx.snapshot, instance),
            os=instance.os,
            osparams={**filled_osparams(ctx.snapshot.cluster, instance), **self._hidden_osparams()},
            debug=int(self.op.debug_level > 0),
            force_variant=self.op.force_variant,
        )
        done = await ctx.call(plan.node, OS_CREATE, args)
        for line in done.tail.splitlines():
            ctx.log(f"   {line}")

    def dry_run_result(self, ctx: UnitContext, plan: CreatePlan) -> Any:
        del ctx
        return [plan.node.name]


def _add(draft: Draft, instance: Instance) -> None:
    draft.put(instance)


def _check_tag(tag: str) -> None:
    if (
        not 1 <= len(tag) <= TAG_LIMIT
        or not tag.isascii()
        or any(c not in _TAG_CHARACTERS for c in tag)
    ):
        raise InputError(
            f"{tag!r:.60} is not a tag: 1 to 128 letters, digits or any of .+*/:@_-", "tags"
        )


TAG_LIMIT = 128
_TAG_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+*/:@_-"
)
