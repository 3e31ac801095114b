"""The ends of a live restore's parts, after its success and after a failure."""

from msgspec.structs import replace

from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.objects import InstanceUuid, UnfinishedRestore
from ganeti.rpc.procedures.disk_moves import DISK_MOVE_END, EndDiskMoveArgs
from ganeti.rpc.procedures.live_restores import (
    LIVE_END,
    LIVE_SERVE_END,
    LiveEndArgs,
    LiveServerArgs,
)
from ganeti.units.services import Services
from ganeti.units.undo.step import Concerned, Step, names_of, node_of


def unmarked(uuid: str, token: str, before: UnfinishedRestore | None = None) -> Change:
    """Record that the live restore of this token is over, and what was unfinished `before` it; idempotent."""

    def change(draft: Draft) -> None:
        now = draft.instances.get(InstanceUuid(uuid))
        mark = now.restoring if now is not None else None
        if now is not None and mark is not None and mark.live and mark.live.token == token:
            draft.put(replace(now, restoring=before))

    return change


class _OfLiveRestore(Step, frozen=True, kw_only=True):
    node: str
    """The node of the guest."""
    server: str
    """The node of the backup."""
    instance: InstanceSpec
    token: str

    def concerns(self, snapshot: Snapshot) -> Concerned:
        names = names_of(snapshot, self.instance.uuid, self.instance.name)
        return Concerned(names, {self.node, self.server})

    async def _end_server(self, services: Services, key: str) -> None:
        if server := node_of(services, self.server):
            args = LiveServerArgs(token=self.token)
            await services.rpc.call(server, LIVE_SERVE_END, args, key=f"{key}/server")


class SettleLiveStart(_OfLiveRestore, frozen=True, kw_only=True):
    """End a live restore whose guest has never been started; keep everything of one that may have written."""

    kind = "settle_live_start"

    before: UnfinishedRestore | None = None
    """What was unfinished before."""

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = LiveEndArgs(instance=self.instance, token=self.token, keep_used=True)
            ended = await services.rpc.call(node, LIVE_END, args, key=key)
            if ended.is_kept:
                return
        await self._end_server(services, key)
        await services.config.change(unmarked(self.instance.uuid, self.token, self.before))


class SettleLiveCopy(_OfLiveRestore, frozen=True, kw_only=True):
    """Stop copying; if the guest has changed to its own disks, record that and end the live restore."""

    kind = "settle_live_copy"

    async def run(self, services: Services, key: str) -> None:
        node = node_of(services, self.node)
        if node is None:
            return
        args = EndDiskMoveArgs(instance=self.instance, token=self.token)
        found = await services.rpc.call(node, DISK_MOVE_END, args, key=f"{key}/which")
        if found.is_moved:
            await services.config.change(unmarked(self.instance.uuid, self.token))
            finish = FinishLiveRestore(
                node=self.node, server=self.server, instance=self.instance, token=self.token
            )
            await finish.run(services, f"{key}/finish")


class FinishLiveRestore(_OfLiveRestore, frozen=True, kw_only=True):
    """Remove what a guest had written before its own disks had everything, and end the programs between the nodes."""

    kind = "finish_live_restore"
    blocks_moves = False

    async def run(self, services: Services, key: str) -> None:
        if node := node_of(services, self.node):
            args = LiveEndArgs(instance=self.instance, token=self.token)
            await services.rpc.call(node, LIVE_END, args, key=f"{key}/end")
            move = EndDiskMoveArgs(instance=self.instance, token=self.token, forget=True)
            await services.rpc.call(node, DISK_MOVE_END, move, key=f"{key}/forget")
        await self._end_server(services, key)
