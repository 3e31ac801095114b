"""The steps of a merge, in order, each with its undo. Within a step all nodes are called at once.

`do` and `undo` are idempotent, because an earlier run may have been interrupted anywhere. Steps
without an undo follow after the first node has left its cluster.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, ExecError, GanetiError, PrereqError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import MASTERD, NODED
from ganeti.bootstrap.merge.journal import ClusterRecord, Journal, NodeRecord
from ganeti.bootstrap.merge.messages import Action, Reply, Request
from ganeti.bootstrap.merge.own import Own
from ganeti.bootstrap.merge.remote import Remote
from ganeti.bootstrap.merge.states import (
    Opened,
    check_idle,
    merged_backup,
    opened,
    opened_original,
    planned,
)
from ganeti.bootstrap.merge.together import together
from ganeti.config.merging.plan import MergeOptions
from ganeti.rpc.procedures.mastership import master_ip_args
from ganeti.upstream.choices import Choices

PAUSE_S = 24 * 3600.0
JOINS_AT_ONCE = 8
"""Maximum number of nodes at once: each has a local command of its own."""
FORCE = ("--no-voting", "--yes-do-it")
MASTERS = {MASTERD, "ganeti-luxid"}
"""The master daemon of each implementation: this one, upstream's."""
VERIFY = ("gnt-cluster", "verify")

RunCommand = Callable[[Sequence[str], str | None], Awaitable[int]]
"""Runs a local command, shows its output, passes standard input, if any, and returns its status."""


@dataclass(frozen=True)
class MergingNode:
    """A node to move, and its present cluster."""

    cluster: ClusterRecord
    node: NodeRecord


Reach = Callable[[MergingNode], Awaitable[Remote]]
"""A connection to a node; kept for the next call."""


@dataclass
class Merge:
    """Data that the steps share."""

    paths: Paths
    own: Own
    clock: Clock
    journal: Journal
    options: MergeOptions
    choices: Choices
    reach: Reach
    run: RunCommand
    say: Callable[[str], None]

    def moving_nodes(self) -> list[MergingNode]:
        """Return all nodes to move, each cluster's master first."""
        return [
            MergingNode(cluster, node)
            for cluster in self.journal.clusters
            for node in sorted(cluster.nodes, key=lambda one: not one.is_master)
        ]

    def masters(self) -> list[MergingNode]:
        """Return the master of each cluster."""
        return [member for member in self.moving_nodes() if member.node.is_master]

    async def call(self, member: MergingNode, action: Action, **fields: object) -> Reply:
        """Send a request to a node; PrereqError."""
        remote = await self.reach(member)
        return await remote.call(Request(action=action, **fields))  # type: ignore[arg-type] # by name

    async def call_all(self, action: Action, **fields: object) -> list[tuple[NodeRecord, Reply]]:
        """Send the same request to all nodes at once; raises like `together`."""

        async def one(member: MergingNode) -> tuple[NodeRecord, Reply]:
            return member.node, await self.call(member, action, **fields)

        return await together(self.moving_nodes(), one)

    def backup(self, name: str) -> Path:
        """Return the path of a state's backup; the clusters' are named by their UUID."""
        return self.paths.merge / f"{name}.backup"

    def keep(self, name: str, data: bytes) -> None:
        write_atomically(self.backup(name), data, mode=0o600)

    @property
    def ours(self) -> Path:
        return self.backup("ours")

    @property
    def merged(self) -> Path:
        return self.paths.merge / "merged.state"

    def opened(self, cluster: ClusterRecord, data: bytes) -> Opened:
        """Return a cluster's state from its backup.

        StoreError, ConfigurationError or InputError if it is damaged.
        """
        return opened_original(data, self.choices) if cluster.original else opened(data)

    def name(self, cluster: ClusterRecord, kind: str, old: str) -> str:
        """Return the new name of an object of the other cluster."""
        return self.choices.names.get((kind, old), old) if cluster.original else old

    def ran(self) -> list[str]:
        """Return the instances that ran, except those on left-out nodes, by their names here."""
        names = [
            self.name(cluster, "instance", old)
            for cluster in self.journal.clusters
            for old in cluster.running or ()
        ]
        stranded = {
            name for cluster in self.journal.clusters for name in self._left_out_instances(cluster)
        }
        return [name for name in names if name in self.journal.instances and name not in stranded]

    def _left_out_instances(self, cluster: ClusterRecord) -> list[str]:
        """Return the instances on nodes that were left out."""
        if not cluster.left_out:
            return []
        theirs = self.opened(cluster, self.backup(cluster.uuid).read_bytes()).snapshot
        names = {self.name(cluster, "node", old) for old in cluster.left_out}
        nodes = {node.uuid for node in theirs.nodes.values() if node.name in names}
        return [one.name for one in theirs.instances.values() if one.primary_node in nodes]

    async def checked(self, *words: str, stdin: str | None = None) -> None:
        """Run a local command; ExecError if it fails."""
        if status := await self.run(words, stdin):
            raise ExecError(f"{' '.join(words)} ended with status {status}")


class Step(ABC):
    """A step, with the text that is shown."""

    name: ClassVar[str]
    can_undo: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    """True if earlier steps are undone only together with it; False where only single nodes may fail."""

    @property
    def title(self) -> str:
        """The step's title: its description here."""
        return (type(self).__doc__ or self.name).rstrip(".")

    @abstractmethod
    async def do(self, m: Merge) -> None:
        """Carry the step out; may be repeated after a kill."""

    async def undo(self, m: Merge) -> None:  # noqa: B027 - most steps change nothing that anybody sees
        """Undo the step; idempotent."""


class Keys(Step):
    """Adding the key of the merge to the authorized keys of all nodes."""

    name = "keys"
    waits = False

    async def do(self, m: Merge) -> None:
        await m.call_all(Action.TRUST, line=m.journal.key_line)

    async def undo(self, m: Merge) -> None:
        await m.call_all(Action.DISTRUST, line=m.journal.key_line)


class Watchers(Step):
    """Pausing the watchers."""

    name = "watchers"
    waits = False

    async def do(self, m: Merge) -> None:
        if not m.journal.has_pauses:
            for node, answer in await m.call_all(Action.PAUSED):
                node.pause = answer.pause
            m.journal.pause = (await m.own.answer(Request(action=Action.PAUSED))).pause
            m.journal.has_pauses = True
            m.journal.save()
        rest = f"{m.clock.time() + PAUSE_S:.0f}\n"
        await m.call_all(Action.PAUSE, pause=rest)
        await m.own.answer(Request(action=Action.PAUSE, pause=rest))

    async def undo(self, m: Merge) -> None:
        if not m.journal.has_pauses:
            return

        async def as_before(member: MergingNode) -> None:
            await m.call(member, Action.PAUSE, pause=member.node.pause)

        ours = Request(action=Action.PAUSE, pause=m.journal.pause)
        await _all_tried(lambda: m.own.answer(ours), lambda: together(m.moving_nodes(), as_before))


class Instances(Step):
    """Stopping the instances of the other clusters."""

    name = "instances"
    waits = False

    async def do(self, m: Merge) -> None:
        limit = m.journal.choices.shutdown_timeout

        async def stop(master: MergingNode) -> None:
            cluster = master.cluster
            if cluster.running is None:
                facts = (await m.call(master, Action.FACTS)).facts
                cluster.running = facts.running if facts else []
                m.journal.save()
            fields = {"names": cluster.running, "timeout_s": limit}
            await m.call(master, Action.STOP_INSTANCES, **fields)

        await together(m.masters(), stop)

    async def undo(self, m: Merge) -> None:
        async def start(master: MergingNode) -> None:
            await m.call(master, Action.START_INSTANCES, names=master.cluster.running or [])

        await together(m.masters(), start)


class StoppedDaemons(Step):
    """Stopping all daemons of the other clusters."""

    name = "daemons"
    waits = False

    async def do(self, m: Merge) -> None:
        for node, answer in await m.call_all(Action.DAEMONS):
            if node.daemons is None:
                node.daemons = answer.names
        m.journal.save()

        async def stop(member: MergingNode) -> None:
            await m.call(member, Action.STOP_DAEMONS)
            if left := (await m.call(member, Action.DAEMONS)).names:
                raise ExecError(f"{member.node.name}: {', '.join(left)} runs again")

        await together(m.moving_nodes(), stop)

    async def undo(self, m: Merge) -> None:
        async def start_noded(member: MergingNode) -> None:
            names = [name for name in member.node.daemons or () if name == NODED]
            await m.call(member, Action.START_DAEMONS, names=names)

        async def start(member: MergingNode) -> None:
            await m.call(member, Action.START_DAEMONS, names=member.node.daemons or [])

        async def wait(master: MergingNode) -> None:
            if MASTERS & {*(master.node.daemons or ())}:
                await m.call(master, Action.MASTER_ANSWERS)

        # Node daemons first: a master needs the votes of a majority of them.
        await _all_tried(
            lambda: together(m.moving_nodes(), start_noded),
            lambda: together(m.moving_nodes(), start),
            lambda: together(m.masters(), wait),
        )


async def _all_tried(*parts: Callable[[], Awaitable[object]]) -> None:
    """Run all, one after the other, even after a failure; ExecError for all failures."""
    failed = []
    for part in parts:
        try:
            await part()
        except (GanetiError, OSError) as err:
            failed.append(str(err))
    if failed:
        raise ExecError("; ".join(dict.fromkeys(failed)))


class Fetched(Step):
    """Fetching the configurations."""

    name = "configurations"

    async def do(self, m: Merge) -> None:
        async def fetch(master: MergingNode) -> None:
            data = (await m.call(master, Action.STATE)).data
            check_idle(m.opened(master.cluster, data))
            m.keep(master.cluster.uuid, data)

        await together(m.masters(), fetch)


class StoppedMaster(Step):
    """Stopping the local master daemon."""

    name = "master"

    async def do(self, m: Merge) -> None:
        await m.own.stop()

    async def undo(self, m: Merge) -> None:
        await m.own.start()


class Planned(Step):
    """Backing up the local configuration and computing the merged one."""

    name = "plan"

    async def do(self, m: Merge) -> None:
        ours = await m.own.state()
        m.keep("ours", ours)
        mine = opened(ours)
        check_idle(mine)
        theirs = [
            m.opened(cluster, m.backup(cluster.uuid).read_bytes()) for cluster in m.journal.clusters
        ]
        plan = planned(mine, theirs, m.options)
        if plan.errors:
            raise PrereqError("; ".join(str(one) for one in plan.errors), ErrorCode.WRONG_STATE)
        nodes = plan.snapshot.nodes
        m.journal.drained = [nodes[uuid].name for uuid in plan.drained]
        # Based on the old configurations and not on the plan, so that losses by the merge itself
        # are detected (S48).
        before = [one.snapshot for one in (mine, *theirs)]
        m.journal.nodes = sorted(node.name for one in before for node in one.nodes.values())
        m.journal.instances = sorted(
            instance.name for one in before for instance in one.instances.values()
        )
        m.journal.save()
        write_atomically(m.merged, await merged_backup(ours, plan), mode=0o600)


class Replaced(Step):
    """Replacing the local configuration by the merged one."""

    name = "merge"

    async def do(self, m: Merge) -> None:
        await m.own.put(m.merged)

    async def undo(self, m: Merge) -> None:
        await m.own.put(m.ours, is_undo=True)


class ForcedMaster(Step):
    """Starting the local master daemon with --no-voting --yes-do-it."""

    name = "forced"

    async def do(self, m: Merge) -> None:
        await m.own.start(FORCE)

    async def undo(self, m: Merge) -> None:
        await m.own.stop()


class AddedNodes(Step):
    """Adding the nodes to the local cluster, with new certificates."""

    name = "nodes"
    can_undo = False

    async def do(self, m: Merge) -> None:
        left = [member for member in m.moving_nodes() if not member.node.is_added]
        await together(
            [member for member in left if member.node.is_master], partial(_free_address, m)
        )

        async def add(member: MergingNode) -> None:
            name = m.name(member.cluster, "node", member.node.name)
            drained = ["--drained"] if name in m.journal.drained else []
            words = ("gnt-node", "add", "--readd", *drained, "--token-file=-", name)
            if member.cluster.original:
                await m.call(member, Action.TAKE)
            async with (await m.reach(member)).joining() as token:
                await m.checked(*words, stdin=token + "\n")
            member.node.is_added = True
            m.journal.save()

        await together(left, add, most=JOINS_AT_ONCE)


async def _free_address(m: Merge, master: MergingNode) -> None:
    """Remove the address of a merged cluster from its master; a failure is only reported."""
    state = m.opened(master.cluster, m.backup(master.cluster.uuid).read_bytes())
    address = master_ip_args(state.snapshot.cluster)
    if not address.address or not address.netdev:
        return
    try:
        await m.call(master, Action.DROP_ADDRESS, address=address)
    except GanetiError as err:
        where = f"{address.address} of {master.cluster.name}"
        m.say(f"{where} may still be on {master.node.name}; remove it there: {err.message}")


class Redistributed(Step):
    """Distributing the files and facts of the cluster to all nodes."""

    name = "redistribute"
    can_undo = False

    async def do(self, m: Merge) -> None:
        await m.checked("gnt-cluster", "redist-conf")


class VotedMaster(Step):
    """Restarting the local master daemon with voting."""

    name = "voting"
    can_undo = False

    async def do(self, m: Merge) -> None:
        await m.own.stop()
        await m.own.start()


class WatchersOn(Step):
    """Resuming the watchers."""

    name = "watchers-on"
    can_undo = False

    async def do(self, m: Merge) -> None:
        await Watchers().undo(m)


class StartedInstances(Step):
    """Starting the instances that ran."""

    name = "start"
    can_undo = False

    async def do(self, m: Merge) -> None:
        await m.own.answer(Request(action=Action.START_INSTANCES, names=m.ran()))


class Verified(Step):
    """Verifying the merged cluster."""

    name = "verify"
    can_undo = False

    async def do(self, m: Merge) -> None:
        facts = (await m.own.answer(Request(action=Action.FACTS))).facts
        if facts is None:
            raise ExecError("the local master does not report its cluster")
        missing = {
            "nodes": set(m.journal.nodes) - {node.name for node in facts.nodes},
            "instances": set(m.journal.instances) - set(facts.instances),
            "running instances": set(m.ran()) - set(facts.running),
        }
        found = [f"{what}: {', '.join(sorted(names))}" for what, names in missing.items() if names]
        if found:
            raise ExecError(f"missing after the merge: {'; '.join(found)}")
        await m.checked(*VERIFY)


class NoKeys(Step):
    """Removing the key of the merge from all nodes."""

    name = "no-keys"
    can_undo = False

    async def do(self, m: Merge) -> None:
        await Keys().undo(m)


STEPS: tuple[Step, ...] = (
    Keys(),
    Watchers(),
    Instances(),
    StoppedDaemons(),
    Fetched(),
    StoppedMaster(),
    Planned(),
    Replaced(),
    ForcedMaster(),
    AddedNodes(),
    Redistributed(),
    VotedMaster(),
    WatchersOn(),
    StartedInstances(),
    Verified(),
    NoKeys(),
)


def is_past_return(journal: Journal) -> bool:
    """Return whether a node may have left its cluster: then the merge can only continue."""
    return any(step.name in journal.begun and not step.can_undo for step in STEPS)


def check_return(journal: Journal) -> None:
    """Raise PrereqError after the point of no return."""
    if is_past_return(journal):
        raise PrereqError(
            "nodes have left their cluster, so the merge cannot be rolled back; run the command again to continue",
            ErrorCode.WRONG_STATE,
        )


async def go_on(m: Merge) -> None:
    """Do all remaining steps; after a failure roll back as far as possible.

    Raises the error of the step, with the outcome of the rollback.
    """
    for step in STEPS:
        if step.name in m.journal.done:
            continue
        try:
            _note_begun(m.journal, step)
            m.say(f"{step.title} ...")
            await step.do(m)
            m.journal.done.append(step.name)
            m.journal.save()
        except (GanetiError, OSError) as err:
            raise await _failed(m, step, err) from err


def _note_begun(journal: Journal, step: Step) -> None:
    if step.name in journal.begun:
        return
    journal.begun.append(step.name)
    try:
        journal.save()
    except OSError:
        journal.begun.remove(step.name)
        raise


async def _failed(m: Merge, step: Step, err: GanetiError | OSError) -> GanetiError:
    why = f"{step.title}: {err}"
    if is_past_return(m.journal):
        return ExecError(
            f"{why}; the merge can only continue now: fix that and run the command again (--without=NODE leaves"
            " out a node that is lost)"
        )
    m.say(f"Failure: {why}\nRolling back.")
    try:
        await roll_back(m)
    except GanetiError as second:
        return ExecError(f"{why}; the rollback is incomplete: {second.message}")
    return ExecError(f"{why}; all clusters are unchanged")


async def roll_back(m: Merge) -> None:
    """Undo the steps that began, the last first.

    PrereqError after the point of no return, ExecError on failure.

    A node that does not answer blocks no other node: the others are rolled back, and the error
    names it.
    """
    check_return(m.journal)
    failed = []
    for step in reversed(STEPS):
        if step.name not in m.journal.begun:
            continue
        if step.name in m.journal.done:  # a run that continues instead has to repeat it
            m.journal.done.remove(step.name)
            _save_if_it_can(m.journal)
        try:
            await step.undo(m)
        except (GanetiError, OSError) as err:
            failed.append(f"'{step.title}': {err}")
            if step.waits:
                break
            continue
        m.journal.begun.remove(step.name)
        _save_if_it_can(m.journal)
    if failed:
        raise ExecError(
            f"{'; '.join(failed)}; fix that and run --rollback again (--without=NODE leaves out a node that"
            " is lost)"
        )


def _save_if_it_can(journal: Journal) -> None:
    """Save the journal if possible.

    With a full disk the rollback continues, because undoing is idempotent.
    """
    with suppress(OSError):
        journal.save()


def outlook(journal: Journal, *, back: bool) -> list[str]:
    """Return the remaining steps, or the steps to undo, as text."""
    if back:
        return [
            f"would undo: {step.title}" for step in reversed(STEPS) if step.name in journal.begun
        ]
    return [f"would do: {step.title}" for step in STEPS if step.name not in journal.done]
