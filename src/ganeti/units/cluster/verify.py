"""The check of the whole cluster: one job for the configuration and one for each node group."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ganeti.base.errors import InputError, RpcError
from ganeti.config.resolve import resolve_group
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.objects import Instance, Node, NodeGroup
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.cluster import (
    OpClusterVerify,
    OpClusterVerifyConfig,
    OpClusterVerifyGroup,
)
from ganeti.model.verify_codes import VerifyCode
from ganeti.model.webhook import Webhook
from ganeti.units.base import LogicalUnit
from ganeti.units.cluster.backup_findings import backup_findings
from ganeti.units.cluster.disk_findings import (
    detached_findings,
    known_places,
    missing_findings,
    unknown_disks,
)
from ganeti.units.cluster.fence_findings import (
    NOT_FENCED,
    device_answers,
    fence_findings,
    has_protected,
)
from ganeti.units.cluster.file_findings import (
    authority_findings,
    renewed_findings,
    role_findings,
    shared_findings,
    ssconf_findings,
)
from ganeti.units.cluster.findings import (
    Expected,
    Finding,
    candidate_findings,
    config_findings,
    hook_findings,
    instance_findings,
    node_findings,
    orphan_findings,
    os_findings,
    policy_findings,
)
from ganeti.units.cluster.gather import Answers, gather
from ganeti.units.cluster.image_findings import image_findings, stored_images
from ganeti.units.cluster.mastership_findings import (
    degraded_findings,
    exclusion_findings,
    pending_undo_findings,
    preserved_state_findings,
    register_findings,
    renewal_findings,
    server_findings,
    version_findings,
)
from ganeti.units.cluster.mirror_findings import (
    device_findings,
    mirror_findings,
    module_findings,
)
from ganeti.units.cluster.oob_findings import oob_findings, oob_problems
from ganeti.units.cluster.recovery_findings import recovery_findings
from ganeti.units.cluster.redundancy import memory_findings
from ganeti.units.cluster.webhook_findings import webhook_findings
from ganeti.units.context import UnitContext
from ganeti.units.hooks.environment import cluster_variables
from ganeti.units.hooks.point import HookPoint
from ganeti.units.hooks.results import NodeResults

OpT = TypeVar("OpT", bound=OpClusterVerifyConfig | OpClusterVerifyGroup)


class LUClusterVerify(LogicalUnit[OpClusterVerify, list[list[OpCode]]]):
    """Submit the jobs of the check."""

    def check_arguments(self) -> None:
        check_codes(self.op.ignore_errors)

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
                    group_name=group.uuid,  # it may be renamed before its job begins
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


def check_codes(codes: Iterable[str]) -> None:
    """Refuse unknown codes: a misspelt code would hide no finding."""
    known = set(VerifyCode.__members__)
    unknown = sorted(set(codes) - known)
    if unknown:
        raise InputError(
            f"unknown code: {', '.join(unknown)[:200]}; known: {', '.join(sorted(known))}",
            "ignore_errors",
        )


class VerifyUnit(LogicalUnit[OpT, None]):
    """The common part of both kinds of check: the report and the count of findings."""

    def check_arguments(self) -> None:
        check_codes(self.op.ignore_errors)

    async def check_prereq(self, ctx: UnitContext) -> None:
        return None

    async def report(self, ctx: UnitContext, title: str, findings: Iterable[Finding]) -> bool:
        """Report the findings under `title`; return True if no error is left that must not be ignored.

        The objects do not change, so a thread examines thousands of them beside the event loop.
        """
        ctx.log(f"* {title}")
        ok = True
        for finding in await asyncio.to_thread(list, findings):
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
        ok = await self.report(ctx, "Verifying cluster config", config_findings(snapshot))
        degraded = degraded_findings(snapshot, is_degraded=ctx.services.is_degraded())
        candidates = itertools.chain(candidate_findings(snapshot), degraded)
        await self.report(ctx, "Verifying master candidates", candidates)
        voters = register_findings(snapshot, await ctx.services.registers())
        ok = await self.report(ctx, "Verifying the registers of the nodes", voters) and ok
        await self.report(ctx, "Verifying certificates", renewal_findings(snapshot))
        servers = server_findings(snapshot, await ctx.services.state_faults())
        ok = await self.report(ctx, "Verifying the servers of the state", servers) and ok
        await self.report(
            ctx,
            "Verifying instance policies",
            policy_findings(snapshot, snapshot.instances.values()),
        )
        programs = oob_findings(snapshot, await oob_problems(ctx))
        ok = await self.report(ctx, "Verifying out-of-band programs", programs) and ok
        images = image_findings(snapshot, await stored_images(ctx))
        ok = await self.report(ctx, "Verifying images", images) and ok
        status = ctx.services.recovery.status()
        elects = ctx.services.elects_master
        recovery = list(recovery_findings(snapshot, status, elects_master=elects))
        if has_protected(snapshot):
            named = {one.name for one in recovery if one.code == NOT_FENCED}
            devices = fence_findings(snapshot, await device_answers(ctx), named)
            await self.report(ctx, "Verifying fencing devices", devices)
        if status.nodes:
            ok = await self.report(ctx, "Verifying automatic recovery", recovery) and ok
        backups = backup_findings(snapshot, ctx.now)
        ok = await self.report(ctx, "Verifying scheduled backups", backups) and ok
        if snapshot.table(Webhook):
            webhooks = webhook_findings(snapshot, ctx.now)
            ok = await self.report(ctx, "Verifying webhooks", webhooks) and ok
        left = pending_undo_findings(snapshot, ctx.services.pending_undo())
        await self.report(ctx, "Verifying what jobs left undone", left)
        return Outcome(ok)


SKIPPABLE = frozenset(("nplusone_mem",))


class LUClusterVerifyGroup(VerifyUnit[OpClusterVerifyGroup]):
    """Check the nodes and instances of one group."""

    def __init__(self, op: OpClusterVerifyGroup) -> None:
        super().__init__(op)
        self._names: list[str] | None = None

    def check_arguments(self) -> None:
        super().check_arguments()
        unknown = sorted(set(self.op.skip_checks) - SKIPPABLE)
        if unknown:
            raise InputError(
                f"unknown check: {', '.join(unknown)}; known: {', '.join(SKIPPABLE)}", "skip_checks"
            )

    def _group(self, snapshot: Snapshot) -> NodeGroup:
        return resolve_group(snapshot, self.op.group_name)

    def _instances(self, snapshot: Snapshot) -> list[Instance]:
        """Return the instances that the group had at first, as far as they still exist.

        New instances wait for the next check; otherwise this one might never get its locks.
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

    def hooks(self, snapshot: Snapshot, plan: None) -> HookPoint:
        """Add the administrator's own checks: their findings are part of the result."""
        group = self._group(snapshot).uuid
        nodes = [node for node in snapshot.nodes_by_name() if node.group == group]
        tags = {f"NODE_TAGS_{node.name}": " ".join(node.tags) for node in nodes}
        variables = {
            **cluster_variables(snapshot),
            "CLUSTER_TAGS": " ".join(snapshot.cluster.tags),
            **tags,
        }
        online = tuple(node for node in nodes if not node.offline)
        return HookPoint("cluster-verify", variables, post=online)

    async def hooks_ended(
        self, ctx: UnitContext, ran: Sequence[NodeResults], outcome: Outcome
    ) -> Outcome:
        if not ran:
            return outcome
        ok = await self.report(ctx, "Hooks Results", hook_findings(ran))
        return Outcome(bool(outcome.result) and ok)

    async def execute(self, ctx: UnitContext, plan: None) -> Outcome:
        group = self._group(ctx.snapshot)
        members = [node for node in ctx.snapshot.nodes_by_name() if node.group == group.uuid]
        online = [node for node in members if not node.offline]
        ctx.log(f"* Verifying group '{group.name}'")
        ctx.log(f"* Gathering information about nodes ({len(online)} nodes)")
        answers = await gather(ctx, online, self._instances(ctx.snapshot))
        checks: list[tuple[str, Iterable[Finding]]] = [
            ("Verifying configuration file consistency", self._files(answers, online, ctx.now)),
            ("Verifying node status", self._nodes(ctx, answers, online)),
            ("Verifying DRBD", self._mirrors(ctx, answers, online)),
            ("Verifying OS definitions", os_findings(answers.oses)),
            ("Verifying instance status", self._guests(ctx, answers)),
            ("Verifying exclusion tags", exclusion_findings(answers.before, members)),
            ("Verifying orphan volumes", self._unknown_disks(ctx, answers, online)),
        ]
        if "nplusone_mem" not in self.op.skip_checks:
            memory = memory_findings(answers.before, online, answers.free_memory())
            checks.append(("Verifying N+1 Memory redundancy", memory))
        results = [await self.report(ctx, title, findings) for title, findings in checks]
        for node in members:
            if node.offline:
                ctx.log(f"  - NOTICE: node {node.name} is offline")
        return Outcome(all(results))

    def _files(self, answers: Answers, online: list[Node], now: float) -> Iterator[Finding]:
        said = [(node, answers.reports[node.uuid]) for node in online]
        yield from authority_findings(said, now)
        yield from ssconf_findings(said, answers.ssconf)
        cluster = answers.before.cluster
        yield from shared_findings(said, answers.shared, cluster.master_node, cluster.renewed_files)
        yield from renewed_findings(said, cluster.renewed_files, cluster.master_node)
        yield from role_findings(said, cluster.master_node, confd_on_all=cluster.confd_on_all_nodes)
        yield from preserved_state_findings(said)

    def _nodes(self, ctx: UnitContext, answers: Answers, online: list[Node]) -> Iterator[Finding]:
        expected = Expected(ctx.now, answers.distributed, ctx.snapshot.position)
        for node in online:
            report = answers.reports[node.uuid]
            if not isinstance(report, RpcError):
                yield from version_findings(node, report)
            yield from node_findings(node, report, expected)

    def _mirrors(self, ctx: UnitContext, answers: Answers, online: list[Node]) -> Iterator[Finding]:
        snapshots, coming = (answers.before, ctx.snapshot), answers.coming
        yield from module_findings(answers.before, online, answers.reports)
        yield from device_findings(snapshots, online, answers.devices, coming)
        yield from mirror_findings(snapshots, answers.mirrors)

    def _guests(self, ctx: UnitContext, answers: Answers) -> Iterator[Finding]:
        snapshot = answers.before
        # A guest may have been created or removed during the queries.
        known = {*snapshot.instances, *ctx.snapshot.instances}
        instances = self._instances(snapshot)
        yield from orphan_findings(snapshot, known, answers.running)
        yield from instance_findings(snapshot, instances, answers.running)
        yield from missing_findings(snapshot, instances, answers.listing)

    def _unknown_disks(
        self, ctx: UnitContext, answers: Answers, online: list[Node]
    ) -> Iterator[Finding]:
        known = known_places((answers.before, ctx.snapshot))
        coming, reserved = answers.coming, ctx.snapshot.cluster.reserved_lvs
        yield from detached_findings(ctx.snapshot, online)
        for node in online:
            found = answers.listing.local.get(node.uuid)
            if found is not None and not isinstance(found, RpcError):
                yield from unknown_disks(node.name, found, known, coming, reserved)
            if node.uuid == answers.before.cluster.master_node:  # in one group's check only
                shared = answers.listing.shared or []
                yield from unknown_disks(node.name, shared, known, coming, reserved)
