"""Lets the storage of instances refuse the writes of a lost node, and accept them when it has returned (D7).

Another node, which can open these disks, asks the storage. A guest of the lost node may run on without its disks, so
recovery does this only if neither power nor a watchdog can end it.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from ganeti.base.clock import Clock
from ganeti.base.errors import RpcError, RpcFailed
from ganeti.config.config import Config
from ganeti.config.fill import instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.recovery.power import StorageResult
from ganeti.rpc.headers import UNREACHABLE
from ganeti.rpc.procedures.disks import BLOCKDEV_FENCE, BLOCKDEV_UNFENCE, FenceArgs
from ganeti.rpc.procedures.form import Nothing, Procedure
from ganeti.units.calls import Rpc
from ganeti.units.fenced_storage import at_risk, why_not_fenced

ASKED_NODES = 3
"""How many nodes are asked until one answers."""

_log = logging.getLogger(__name__)


class StorageAudit(Protocol):
    """The record of attempts (`ganeti.api.audit.MasterAudit`)."""

    def storage_fenced(self, node: str, result: StorageResult, seconds: float) -> None: ...


class StorageFencing:
    """The storage of all instances."""

    def __init__(self, config: Config, rpc: Rpc, clock: Clock, audit: StorageAudit) -> None:
        self._config, self._rpc = config, rpc
        self._clock, self._audit = clock, audit

    async def fence(self, uuid: NodeUuid) -> StorageResult:
        """Let the storage of a node's protected instances refuse its writes; never raises GanetiError."""
        snapshot = self._config.snapshot
        node = snapshot.nodes.get(uuid)
        if node is None:
            return StorageResult((), "the node is not in the configuration")
        began, done, failed = self._clock.monotonic(), [], []
        for instance in at_risk(snapshot, uuid):
            why = await self._each_disk(snapshot, node, instance, BLOCKDEV_FENCE)
            if why:
                failed.append(f"{instance.name}: {why}")
            else:
                done.append(instance)
        detail = f"it refuses the writes of {node.name} to {len(done)} instances" if done else ""
        if not (done or failed):
            detail = f"no protected instance runs on {node.name}"
        result = StorageResult(
            tuple(one.uuid for one in done), "; ".join(filter(None, (detail, *failed)))
        )
        _log.warning("storage fencing of node %s: %s", node.name, result.detail)
        self._audit.storage_fenced(node.name, result, self._clock.monotonic() - began)
        return result

    async def unfence(self, uuid: NodeUuid, instances: Sequence[str]) -> str:
        """Let the storage of these instances, and of those on the node, accept its writes; return why not, or ''."""
        snapshot = self._config.snapshot
        node = snapshot.nodes.get(uuid)
        if node is None:
            return ""
        names = {*instances, *(one.uuid for one in snapshot.instances_of(uuid))}
        found = [one for one in snapshot.instances.values() if one.uuid in names]
        failed = [
            f"{instance.name}: {why}"
            for instance in found
            if not why_not_fenced(instance)
            and (why := await self._each_disk(snapshot, node, instance, BLOCKDEV_UNFENCE))
        ]
        return f"its storage does not accept its writes: {'; '.join(failed)}" if failed else ""

    async def _each_disk(
        self,
        snapshot: Snapshot,
        node: Node,
        instance: Instance,
        procedure: Procedure[FenceArgs, Nothing],
    ) -> str:
        """Return why it failed, or ''."""
        if why := why_not_fenced(instance):
            return why
        addresses = [one for one in (node.primary_ip, node.secondary_ip) if one]
        for disk in instance_spec(snapshot, instance).disks:
            args = FenceArgs(
                instance_name=instance.name,
                disk=disk,
                node_name=node.name,
                addresses=list(dict.fromkeys(addresses)),
            )
            if why := await self._ask(snapshot, node, procedure, args):
                return why
        return ""

    async def _ask(
        self,
        snapshot: Snapshot,
        node: Node,
        procedure: Procedure[FenceArgs, Nothing],
        args: FenceArgs,
    ) -> str:
        why = "no other node that runs instances is online"
        for one in _askable(snapshot, node):
            try:
                await self._rpc.call(one, procedure, args)
            except RpcError as err:
                why = f"{one.name}: {err.reason}"
                if isinstance(err, RpcFailed) and err.wire_error != UNREACHABLE:
                    return why
            else:
                return ""
        return why


def _askable(snapshot: Snapshot, lost: Node) -> list[Node]:
    """Return nodes that can open the same disks: first those of its group, the master's before others."""
    online = [
        one
        for one in snapshot.nodes.values()
        if one.vm_capable and not one.offline and one.uuid != lost.uuid
    ]
    master = snapshot.cluster.master_node
    online.sort(key=lambda one: (one.group != lost.group, one.uuid != master, one.name))
    return online[:ASKED_NODES]
