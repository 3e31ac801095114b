"""Checking the whole cluster, in one job for the configuration and one for each node group."""

from collections.abc import Iterable
from typing import TypeVar

from ganeti.base.errors import InputError, RpcError
from ganeti.config.resolve import resolve_group
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.objects import NodeGroup
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.cluster import (
    OpClusterVerify,
    OpClusterVerifyConfig,
    OpClusterVerifyGroup,
)
from ganeti.rpc.procedures import (
    INSTANCES_INFO,
    NODE_VERIFY,
    OS_DIAGNOSE,
    HypervisorsArgs,
    Nothing,
    VerifyArgs,
)
from ganeti.units.base import LogicalUnit
from ganeti.units.cluster.findings import (
    Finding,
    config_findings,
    instance_findings,
    node_findings,
    os_findings,
    policy_findings,
)
from ganeti.units.context import UnitContext

OpT = TypeVar("OpT", bound=OpClusterVerifyConfig | OpClusterVerifyGroup)


class LUClusterVerify(LogicalUnit[OpClusterVerify, list[list[OpCode]]]):
    """Submit the jobs that do the checking."""

    async def check_prereq(self, ctx: UnitContext) -> list[list[OpCode]]:
        op, snapshot = self.op, ctx.snapshot
        groups = (
            [resolve_group(snapshot, op.group_name)]
            if op.group_name
            else list(snapshot.groups.values())
        )
        jobs: list[list[OpCode]] = []
        if not op.group_name:
            jobs.append(
                [
                    OpClusterVerifyConfig(
                        debug_simulate_errors=op.debug_simulate_errors,
                        error_codes=op.error_codes,
                        ignore_errors=op.ignore_errors,
                        verbose=op.verbose,
                    )
                ]
            )
        jobs.extend(
            [
                OpClusterVerifyGroup(
                    group_name=group.name,
                    debug_simulate_errors=op.debug_simulate_errors,
                    error_codes=op.error_codes,
                    skip_checks=op.skip_checks,
                    ignore_errors=op.ignore_errors,
                    verbose=op.verbose,
                    verify_clutter=op.verify_clutter,
                    depends=[] if op.group_name else [(-1 - index, [])],
                )
            ]
            for index, group in enumerate(sorted(groups, key=lambda group: group.name))
        )
        return jobs

    async def execute(self, ctx: UnitContext, plan: list[list[OpCode]]) -> Outcome:
        return Outcome(jobs=plan)


class VerifyUnit(LogicalUnit[OpT, None]):
    """What both kinds of check share: how findings are said and counted."""

    async def check_prereq(self, ctx: UnitContext) -> None:
        return None

    def report(self, ctx: UnitContext, title: str, findings: Iterable[Finding]) -> bool:
        """Say what was found under `title`; True if no error remains that is not to be ignored."""
        ctx.log(f"* {title}")
        ok = True
        for finding in findings:
            ignored = finding.code in self.op.ignore_errors
            shown = Finding(finding.code, finding.kind, finding.name, finding.text, is_error=False)
            ctx.log((shown if ignored else finding).line(with_code=self.op.error_codes))
            ok = ok and (ignored or not finding.is_error)
        if self.op.debug_simulate_errors:
            ctx.log(
                Finding("ECLUSTERCFG", "cluster", "", "simulated error").line(
                    with_code=self.op.error_codes
                )
            )
            return False
        return ok


class LUClusterVerifyConfig(VerifyUnit[OpClusterVerifyConfig]):
    """Check the configuration against itself."""

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        del plan
        snapshot = ctx.snapshot
        ok = self.report(ctx, "Verifying cluster config", config_findings(snapshot))
        self.report(
            ctx,
            "Verifying instance policies",
            policy_findings(snapshot, snapshot.instances.values()),
        )
        return Outcome(ok)


SKIPPABLE = frozenset(("nplusone_mem",))


class LUClusterVerifyGroup(VerifyUnit[OpClusterVerifyGroup]):
    """Check the nodes and instances of one group."""

    def check_arguments(self) -> None:
        unknown = sorted(set(self.op.skip_checks) - SKIPPABLE)
        if unknown:
            raise InputError(
                f"no such check: {', '.join(unknown)}; known: {', '.join(SKIPPABLE)}", "skip_checks"
            )

    def _group(self, snapshot: Snapshot) -> NodeGroup:
        return resolve_group(snapshot, self.op.group_name)

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.NODE_GROUP, self._group(snapshot).uuid, Mode.SHARED)]

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        del plan
        snapshot = ctx.snapshot
        group = self._group(snapshot)
        members = [node for node in snapshot.nodes.values() if node.group == group.uuid]
        online = [node for node in members if not node.offline]
        uuids = {node.uuid for node in members}
        instances = [
            instance for instance in snapshot.instances.values() if instance.primary_node in uuids
        ]
        ctx.log(f"* Verifying group '{group.name}'")
        ctx.log(f"* Gathering information about nodes ({len(online)} nodes)")
        cluster = snapshot.cluster
        position = ctx.services.ssconf_position()
        hypervisors = list(cluster.enabled_hypervisors)
        args = VerifyArgs(
            hypervisors=hypervisors,
            file_storage_dir=cluster.file_storage_dir,
            shared_file_storage_dir=cluster.shared_file_storage_dir,
            nodes=[(node.name, node.primary_ip, node.port) for node in online],
        )
        reports = await ctx.call_all(online, NODE_VERIFY, args)
        running = await ctx.call_all(
            online, INSTANCES_INFO, HypervisorsArgs(hypervisors=hypervisors)
        )
        oses = await ctx.call_all(
            [node for node in online if node.vm_capable], OS_DIAGNOSE, Nothing()
        )
        by_name = {
            snapshot.nodes[uuid].name: answer
            for uuid, answer in oses.items()
            if not isinstance(answer, RpcError)
        }
        found = (
            finding
            for node in online
            for finding in node_findings(node, reports[node.uuid], ctx.now, position)
        )
        results = [
            self.report(ctx, "Verifying node status", found),
            self.report(ctx, "Verifying OS definitions", os_findings(by_name)),
            self.report(
                ctx, "Verifying instance status", instance_findings(snapshot, instances, running)
            ),
        ]
        for node in members:
            if node.offline:
                ctx.log(f"  - NOTICE: node {node.name} is offline")
        return Outcome(all(results))
