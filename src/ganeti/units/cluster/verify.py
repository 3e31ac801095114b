"""Checking the whole cluster, in one job for the configuration and one for each node group."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ganeti.base.errors import InputError, RpcError
from ganeti.config.resolve import resolve_group
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.objects import Instance, Node, NodeGroup, NodeUuid
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
    OsInfo,
    RunningInstance,
    VerifyArgs,
    VerifyReport,
)
from ganeti.units.base import LogicalUnit
from ganeti.units.cluster.findings import (
    Expected,
    Finding,
    config_findings,
    instance_findings,
    node_findings,
    orphan_findings,
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

    def __init__(self, op: OpClusterVerifyGroup) -> None:
        super().__init__(op)
        self._names: list[str] | None = None

    def check_arguments(self) -> None:
        unknown = sorted(set(self.op.skip_checks) - SKIPPABLE)
        if unknown:
            raise InputError(
                f"no such check: {', '.join(unknown)}; known: {', '.join(SKIPPABLE)}", "skip_checks"
            )

    def _group(self, snapshot: Snapshot) -> NodeGroup:
        return resolve_group(snapshot, self.op.group_name)

    def _instances(self, snapshot: Snapshot) -> list[Instance]:
        """The instances that the group had when it was first looked at, as far as they still exist.

        Those that come meanwhile are left to the next check, or this one might never get its locks.
        """
        if self._names is None:
            group = self._group(snapshot).uuid
            members = {node.uuid for node in snapshot.nodes.values() if node.group == group}
            self._names = sorted(
                instance.name
                for instance in snapshot.instances.values()
                if instance.primary_node in members
            )
        found = (snapshot.instance_by_name(name) for name in self._names)
        return [instance for instance in found if instance is not None]

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        names = [instance.name for instance in self._instances(snapshot)]
        return [
            lock(Level.INSTANCE, names, Mode.SHARED),
            lock(Level.NODE_GROUP, self._group(snapshot).uuid, Mode.SHARED),
        ]

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        snapshot = ctx.snapshot
        group = self._group(snapshot)
        members = [node for node in snapshot.nodes_by_name() if node.group == group.uuid]
        online = [node for node in members if not node.offline]
        ctx.log(f"* Verifying group '{group.name}'")
        ctx.log(f"* Gathering information about nodes ({len(online)} nodes)")
        answers = await self._ask(ctx, online)
        # A guest may have been created, or removed, while the nodes were asked.
        known = {*snapshot.instances, *ctx.snapshot.instances}
        expected = Expected(ctx.now, answers.distributed, ctx.snapshot.position)
        nodes = (
            finding
            for node in online
            for finding in node_findings(node, answers.reports[node.uuid], expected)
        )
        instances = (
            *orphan_findings(snapshot, known, answers.running),
            *instance_findings(snapshot, self._instances(snapshot), answers.running),
        )
        results = [
            self.report(ctx, "Verifying node status", nodes),
            self.report(ctx, "Verifying OS definitions", os_findings(answers.oses)),
            self.report(ctx, "Verifying instance status", instances),
        ]
        for node in members:
            if node.offline:
                ctx.log(f"  - NOTICE: node {node.name} is offline")
        return Outcome(all(results))

    async def _ask(self, ctx: UnitContext, online: list[Node]) -> "_Answers":
        cluster = ctx.snapshot.cluster
        hypervisors = list(cluster.enabled_hypervisors)
        distributed = ctx.services.ssconf_position()
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
        capable = [node for node in online if node.vm_capable]
        oses = await ctx.call_all(capable, OS_DIAGNOSE, Nothing())
        by_name = {
            node.name: answer
            for node in capable
            if not isinstance(answer := oses[node.uuid], RpcError)
        }
        return _Answers(reports, running, by_name, distributed)


@dataclass(frozen=True)
class _Answers:
    """What the nodes of a group said, and the ssconf position that all had before they were asked."""

    reports: Mapping[NodeUuid, VerifyReport | RpcError]
    running: Mapping[NodeUuid, list[RunningInstance] | RpcError]
    oses: Mapping[str, list[OsInfo]]
    distributed: int
