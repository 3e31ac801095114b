"""Making the configuration follow what is true after a migration of unknown outcome (G5, F20).

While a migration is under way the instance is marked with its target (`migrating_to`): as long as
the mark is there, nobody knows where the guest is, and nothing may start it.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from ganeti.base.errors import ExecError, RpcError
from ganeti.config.fill import instance_spec
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.instances import INSTANCE_INFO, InstanceArgs, RunningInstance
from ganeti.rpc.procedures.migration import (
    MIGRATION_FINISH_SOURCE,
    MIGRATION_FINISH_TARGET,
    FinishMigrationArgs,
)
from ganeti.units.services import Services

ROUNDS = 3
"""How often both nodes are asked when what they say changes meanwhile, or an answer is lost."""


def decide_owner(source: RunningInstance | None, target: RunningInstance | None) -> str:
    """Which end has the guest, by what each knows of it: `source`, `target`, `nowhere` or `both`.

    It is where it runs. If it runs nowhere, a source that has sent it takes it back, because no
    target lets a guest go on by itself; without a source a target may have all of it.
    """
    on_source = source is not None and source.has_guest
    on_target = target is not None and target.has_guest
    if on_source and on_target:
        return "both"
    if on_target:
        return "target"
    if source is not None:
        return "source"
    return "target" if target is not None else "nowhere"


def mark_migrating(uuid: InstanceUuid, target: NodeUuid) -> Change:
    """The change of configuration before a migration: from now on the guest may be on `target` too."""

    def change(draft: Draft) -> None:
        draft.put(replace(draft.instances[uuid], migrating_to=target))

    return change


def mark_settled(uuid: InstanceUuid, primary: NodeUuid) -> Change:
    """The change of configuration that says where the guest is, now that this is known."""

    def change(draft: Draft) -> None:
        instance = draft.instances[uuid]
        settled = replace(instance, primary_node=primary, migrating_to=None)
        if settled != instance:
            draft.put(settled)

    return change


async def settle_migration(
    services: Services, key: str, uuid: InstanceUuid, source: NodeUuid, target: NodeUuid
) -> str:
    """Ask both nodes, make the configuration say which of them has the guest, and clean the other one up.

    A node that is marked offline counts as dead. Returns the name of the node that has the guest,
    '' if none has. Raises ExecError if a node does not answer or both run it: then the mark stays.
    """
    snapshot = services.config.snapshot
    instance = snapshot.instances.get(uuid)
    if instance is None:
        return ""
    ends = _Ends(services, instance, snapshot.nodes[source], snapshot.nodes[target])
    return await ends.settle(key)


@dataclass
class _Ends:
    """The two ends of one migration."""

    services: Services
    instance: Instance
    source: Node
    target: Node

    async def settle(self, key: str) -> str:
        for attempt in range(ROUNDS):
            here, there = await self._ask(self.source), await self._ask(self.target)
            owner = decide_owner(here, there)
            if owner == "both":
                raise ExecError(
                    f"{self.instance.name} runs on {self.source.name} and on {self.target.name}; decide which copy to"
                    f" keep and end the other one there, then run: {self._remedy}"
                )
            has_only_arrived = owner == "target" and there is not None and not there.has_guest
            try:
                return await self._finish(f"{key}/{attempt}", owner)
            except RpcError as err:
                failure = err
            if has_only_arrived:
                owner = "nowhere"  # what arrived was not all of it: the guest ended with its source
                try:
                    return await self._finish(f"{key}/{attempt}/lost", owner)
                except RpcError as err:
                    failure = err
        raise ExecError(
            f"the migration of {self.instance.name} is not cleaned up: {failure}; when the node answers"
            f" again, run: {self._remedy}"
        ) from failure

    async def _finish(self, key: str, owner: str) -> str:
        """Make both ends and the configuration what was decided; every step can be repeated.

        A target that only waits must be gone before the source may go on, and the configuration
        names the target before the source forgets the guest.
        """
        if owner == "target":
            await self._call(key, self.target, MIGRATION_FINISH_TARGET, success=True)
            await self._record(self.target)
            await self._call(key, self.source, MIGRATION_FINISH_SOURCE, success=True)
            return self.target.name
        await self._call(key, self.target, MIGRATION_FINISH_TARGET, success=False)
        if owner == "source":
            await self._call(key, self.source, MIGRATION_FINISH_SOURCE, success=False)
        await self._record(self.source)
        return self.source.name if owner == "source" else ""

    async def _record(self, node: Node) -> None:
        await self.services.config.change(
            mark_settled(InstanceUuid(self.instance.uuid), NodeUuid(node.uuid))
        )

    async def _call(
        self, key: str, node: Node, procedure: Procedure[FinishMigrationArgs], *, success: bool
    ) -> None:
        if node.offline:
            return
        spec = instance_spec(self.services.config.snapshot, self.instance)
        args = FinishMigrationArgs(instance=spec, success=success)
        await self.services.rpc.call(node, procedure, args, key=f"{key}/{procedure.name}")

    async def _ask(self, node: Node) -> RunningInstance | None:
        if node.offline:
            return None
        args = InstanceArgs(instance=instance_spec(self.services.config.snapshot, self.instance))
        try:
            answer: RunningInstance | None = await self.services.rpc.call(node, INSTANCE_INFO, args)
        except RpcError as err:
            raise ExecError(
                f"cannot tell where {self.instance.name} runs: {err}; when the node answers again, run: {self._remedy}"
            ) from err
        return answer

    @property
    def _remedy(self) -> str:
        return f"gnt-instance migrate --cleanup {self.instance.name}"
