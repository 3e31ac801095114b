"""Changes of the cluster's parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.config.cluster_params import changed_cluster, check_cluster_request, given_params
from ganeti.config.fill import filled_nicparams
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.config.view import View
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import CLUSTER_LOCK, Level, Mode
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.cluster_params import CLUSTER_PARAMS
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.iallocator import parse_defaults
from ganeti.model.objects import Cluster, Instance, Node
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.rpc.procedures.instances import VALIDATE_HVPARAMS, HvParamsArgs
from ganeti.rpc.procedures.mastership import MASTER_IP_DOWN, MASTER_IP_UP, master_ip_args
from ganeti.units.allocation import check_exists
from ganeti.units.base import LogicalUnit
from ganeti.units.cluster.master_ip import master_of
from ganeti.units.cluster.os_params import changed_hvparams, check_os_defaults
from ganeti.units.cluster.uid_pool import check_uid_pool
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import cluster_variables
from ganeti.units.hooks.point import HookPoint, on_nodes
from ganeti.units.instance.policy import policy_breaches
from ganeti.units.job_source import check_is_local, check_may_set, check_may_set_of_nodes
from ganeti.units.node.candidate_pool import missing_candidates
from ganeti.units.node.promotion import make_fit

_STORAGE = {
    row.storage.field: row.name
    for row in DISK_TEMPLATES.values()
    if row.storage is not None and row.storage.field and not row.storage.param
}
"""Field of the cluster -> the template whose disks are below this directory unless they name another."""
_UID_CHANGES = ("add_uids", "remove_uids")
"""Fields that contain parameters which can reach the host."""
SHOWN = 5


@dataclass(frozen=True)
class ClusterChange:
    """The changed fields, and the nodes that fill a larger pool of candidates."""

    fields: dict[str, Any]
    promoted: tuple[Node, ...] = ()
    warnings: tuple[str, ...] = ()


class LUClusterSetParams(LogicalUnit[OpClusterSetParams, ClusterChange]):
    """Change the cluster's parameters."""

    def check_arguments(self) -> None:
        check_cluster_request(self.op)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        wanted = [lock(Level.CLUSTER, CLUSTER_LOCK)]
        if any(CLUSTER_PARAMS[name].used_by_instances for name in given_params(self.op)):
            wanted.append(lock(Level.INSTANCE, ALL, Mode.SHARED))
        if self.op.candidate_pool_size is not None:
            wanted.append(lock(Level.NODE, ALL))
        return wanted

    async def check_prereq(self, ctx: UnitContext) -> ClusterChange:
        snapshot = ctx.snapshot
        self._check_source(ctx)
        fields = changed_cluster(snapshot.cluster, self.op)
        new = replace(snapshot.cluster, **fields)
        check_instances(snapshot, new)
        await self._check_on_nodes(ctx, new)
        if not self.op.force:
            await check_os_defaults(ctx, new, self.op.osparams or ())
            await check_exists(ctx, sorted(_new_allocators(snapshot.cluster, new)))
        promoted: tuple[Node, ...] = ()
        if new.candidate_pool_size != snapshot.cluster.candidate_pool_size:
            promoted = tuple(missing_candidates(snapshot, new.candidate_pool_size))
        warnings = await check_uid_pool(ctx, fields, force=self.op.force)
        plan = ClusterChange(fields, promoted, warnings)
        ctx.check_change(lambda draft: _apply(draft, plan))
        return plan

    def _check_source(self, ctx: UnitContext) -> None:
        """Refuse changes that reach the host, except from administrators on the master (A44)."""
        given = {name for name in given_params(self.op) if CLUSTER_PARAMS[name].reaches_host}
        given |= {name for name in _UID_CHANGES if getattr(self.op, name) is not None}
        for name in sorted(given):
            check_is_local(ctx, name)
        check_may_set_of_nodes(ctx, self.op.ndparams)
        for hypervisor, params in (self.op.hvparams or {}).items():
            check_may_set(ctx, hypervisor, params, f"hvparams.{hypervisor}")
        for os, of_os in (self.op.os_hvp or {}).items():
            for hypervisor, params in of_os.items():
                check_may_set(ctx, hypervisor, params, f"os_hvp.{os}.{hypervisor}")

    async def _check_on_nodes(self, ctx: UnitContext, new: Cluster) -> None:
        """Require that every node that runs instances can use the new hypervisor parameters."""
        nodes = [node for node in ctx.snapshot.online_nodes() if node.vm_capable]
        sets = changed_hvparams(new, self.op.hvparams or (), self.op.os_hvp or {})
        for what, hypervisor, hvparams in sets:
            args = HvParamsArgs(hypervisor=hypervisor, hvparams=hvparams)
            answers = await ctx.call_all(nodes, VALIDATE_HVPARAMS, args)
            for node in nodes:
                answer = answers[node.uuid]
                if isinstance(answer, RpcError):
                    raise PrereqError(
                        f"cannot check the parameters of {what}: {answer}",
                        ErrorCode.ENVIRONMENT,
                    )
                if answer:
                    raise PrereqError(
                        f"node {node.name} cannot use these parameters of {what}:"
                        f" {'; '.join(answer)}",
                        ErrorCode.ENVIRONMENT,
                    )

    def hooks(self, snapshot: Snapshot, plan: ClusterChange) -> HookPoint:
        volume_group = plan.fields.get("volume_group_name")
        variables = {**cluster_variables(snapshot), "NEW_VG_NAME": str(volume_group)}
        return on_nodes("cluster-modify", variables, snapshot)

    async def execute(self, ctx: UnitContext, plan: ClusterChange) -> Outcome:
        old = ctx.snapshot.cluster
        new = replace(old, **plan.fields)
        if new.ipolicy != old.ipolicy:
            _warn_of_policy(ctx, new)
        for warning in plan.warnings:
            ctx.warn(warning)
        await make_fit(ctx, [replace(node, master_candidate=True) for node in plan.promoted])
        if master_ip_args(new) == master_ip_args(old):
            return Outcome(change=lambda draft: _apply(draft, plan))
        await self._move_address(ctx, plan, new)
        return Outcome()

    async def _move_address(self, ctx: UnitContext, plan: ClusterChange, new: Cluster) -> None:
        """Remove the cluster's address with the old settings before it is configured with the new ones."""
        master = master_of(ctx.snapshot)
        await ctx.call(master, MASTER_IP_DOWN, master_ip_args(ctx.snapshot.cluster))
        await ctx.run.record_undo((), lambda draft: _apply(draft, plan))
        try:
            await ctx.call(master, MASTER_IP_UP, master_ip_args(new))
        except RpcError as err:
            ctx.warn(
                f"cannot configure the cluster's address: {err.reason};"
                " run gnt-cluster activate-master-ip after the fix"
            )


def _apply(draft: Draft, plan: ClusterChange) -> None:
    draft.put(replace(draft.cluster, **plan.fields))
    for node in plan.promoted:
        draft.put(replace(draft.nodes[node.uuid], master_candidate=True))


def check_instances(view: View, new: Cluster) -> None:
    """Refuse to remove what an existing instance needs."""
    old, instances = view.cluster, list(view.instances.values())
    for hypervisor in set(old.enabled_hypervisors) - set(new.enabled_hypervisors):
        users = [one for one in instances if one.hypervisor == hypervisor]
        _refuse(users, f"hypervisor {hypervisor}", "enabled_hypervisors")
    for template in set(old.enabled_disk_templates) - set(new.enabled_disk_templates):
        users = [one for one in instances if one.disk_template == template]
        _refuse(users, f"disk template {template}", "enabled_disk_templates")
    for field, template in _STORAGE.items():
        if getattr(old, field) and getattr(old, field) != getattr(new, field):
            users = [one for one in instances if one.disk_template == template]
            _refuse(users, f"directory {getattr(old, field)}", field)
        if getattr(old, field) and not getattr(new, field):
            _check_not_needed(new, field, template)
    if new.nicparams != old.nicparams:
        users = [one for one in instances if _lacks_address(new, one)]
        if users:
            raise InputError(
                f"routed network interfaces need an IP address: {_shown(users)}", "nicparams.mode"
            )


def _check_not_needed(new: Cluster, field: str, template: str) -> None:
    if template in new.enabled_disk_templates:
        raise InputError(
            f"disk template {template} needs a directory; remove the template from"
            " enabled_disk_templates first, or in the same command",
            field,
        )


def _refuse(users: Sequence[Instance], what: str, field: str) -> None:
    if users:
        raise PrereqError(f"{field}: {what} is used by {_shown(users)}", ErrorCode.WRONG_STATE)


def _shown(instances: Sequence[Instance]) -> str:
    names = sorted(instance.name for instance in instances)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _lacks_address(cluster: Cluster, instance: Instance) -> bool:
    return any(
        nic.ip is None
        and nic.network is None
        and filled_nicparams(cluster, nic)["mode"] == "routed"
        for nic in instance.nics
    )


def _new_allocators(old: Cluster, new: Cluster) -> set[str]:
    """Return the default allocators that the cluster does not use yet."""
    before, after = (
        {name for names in parse_defaults(one.default_iallocator).values() for name in names}
        for one in (old, new)
    )
    return after - before


def _warn_of_policy(ctx: UnitContext, new: Cluster) -> None:
    """Warn about instances that the new policy would refuse."""
    snapshot = ctx.snapshot
    for instance in snapshot.instances.values():
        group = snapshot.groups.get(snapshot.nodes[instance.primary_node].group)
        for why in policy_breaches(new, group, instance):
            ctx.warn(f"instance {instance.name} is outside the new policy: {why}")
