"""Answers what the writers of mirrored disks ask: to write without the other copy, or to count it as current (D3-D5).

A request names the generation of the writer's own record. The order of commits decides between it and whatever else
changes the grant (D8); a node whose record is older than the state gets the present grant. A request is repeated
by the node until it is answered, so nothing is retried here.
"""

import contextlib
import logging
from collections.abc import Callable, Container, Iterator, Sequence

from ganeti.base.clock import Clock
from ganeti.base.errors import GanetiError, RpcFailed, SplitBrain
from ganeti.config.config import Config
from ganeti.config.fill import recovery_of
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.config.view import View
from ganeti.jobs.executor import Change
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.names import AdminState
from ganeti.model.objects import Disk, Grant, Instance, InstanceUuid, NodeUuid
from ganeti.model.recovery import DiskRequest, DiskRequestKind, Recovery
from ganeti.rpc.procedures.disks import COPY_JOINS, DISK_GRANTED, GrantArgs
from ganeti.units.calls import Rpc
from ganeti.units.instance.grants import with_writer, without_copies
from ganeti.units.mirrors.current import copy_joined, peer_dropped, writer_left

_log = logging.getLogger(__name__)
_FRESH_S = 10.0
"""A report of a split counts so long: nodes repeat it with each answer."""
_LASTS_S = 3.0
"""Jobs disconnect copies for a moment."""


class DiskGrants:
    """The grants of the mirrored disks of running protected instances, under one master."""

    def __init__(
        self, config: Config, rpc: Rpc, is_locked: Callable[[str], bool], clock: Clock
    ) -> None:
        """`is_locked` returns whether a job holds an instance, by name: it may be taking a copy away."""
        self._config, self._rpc, self._is_locked = config, rpc, is_locked
        self._clock = clock
        self._busy: set[str] = set()
        self._splits: dict[str, tuple[float, float]] = {}
        """When each disk was first and last reported as split, without a pause."""
        self._joining: set[InstanceUuid] = set()
        """Instances whose jobs wait until their copies are current."""
        self._released: set[InstanceUuid] = set()
        """Instances without protection whose writers have been told to wait for no other copy."""

    @contextlib.contextmanager
    def letting_join(self, instance: InstanceUuid) -> Iterator[None]:
        """Let copies of an instance join within the block, in which the job that holds it takes none away."""
        self._joining.add(instance)
        try:
            yield
        finally:
            self._joining.discard(instance)

    async def serve(self, node: NodeUuid, requests: Sequence[DiskRequest]) -> None:
        """Answer the requests of a node."""
        for request in requests:
            if request.disk in self._busy:
                continue
            self._busy.add(request.disk)
            try:
                await self._serve(node, request)
            except GanetiError as err:
                _log.warning("disk %s: %s is not done: %s", request.disk, request.kind, err)
            finally:
                self._busy.discard(request.disk)

    async def _serve(self, node: NodeUuid, request: DiskRequest) -> None:
        found = _owner(self._config.snapshot, node, request.disk)
        if found is None or not _is_protected(self._config.snapshot, found[0]):
            return
        instance, disk = found
        if request.kind is DiskRequestKind.SPLIT:
            self._split(disk.uuid)
            return
        grant = disk.grant
        if grant is None or grant.writer is None:
            await self._config.change(_first_grant(instance.uuid, node))
        elif grant.writer != node:
            return  # it has moved: the job that returns it notifies its node
        elif request.generation > grant.generation:
            _log.error(
                "disk %s of %s was written in generation %d, but the state knows only %d",
                *(request.disk, instance.name, request.generation, grant.generation),
            )
            return
        elif request.generation == grant.generation:
            if request.kind is DiskRequestKind.DROP:
                _log.warning(
                    "%s: disk %s continues without its other copy", instance.name, disk.uuid
                )
                generation = request.generation
                await self._config.change(peer_dropped(instance.uuid, disk.uuid, node, generation))
            elif request.kind is DiskRequestKind.LEAVE:
                _log.warning(
                    "%s: the copy of disk %s on %s has failed", instance.name, disk.uuid, node
                )
                await self._config.change(
                    writer_left(instance.uuid, disk.uuid, node, request.generation)
                )
            elif not await self._join(instance, disk.uuid, grant):
                return
        await self._tell(node, disk.uuid)

    async def _join(self, instance: Instance, disk: str, grant: Grant) -> bool:
        """Count both copies as current, unless a job may be taking one away; return whether that was done."""
        snapshot = self._config.snapshot
        (other,) = instance.secondary_nodes
        # The protection must be known as long as writes wait: its end lets them continue.
        if not instance.under_lease or snapshot.nodes[other].offline:
            return False
        if self._may_lose_a_copy(instance):
            return False
        args = GrantArgs(disk=disk, grant=grant)
        try:
            await self._rpc.call(snapshot.nodes[other], COPY_JOINS, args)
        except RpcFailed as err:
            if err.wire_error == SplitBrain.wire_name:
                self._split(disk)
            raise
        if self._may_lose_a_copy(instance):
            return False
        # One is missing: the copy to which nothing was written, or the writer's own after its disk failed.
        copy = other if other not in grant.current else instance.primary_node
        await self._config.change(copy_joined(instance.uuid, args, copy))
        _log.info("%s: the copy of disk %s on %s is current", instance.name, disk, copy)
        return True

    def _may_lose_a_copy(self, instance: Instance) -> bool:
        return self._is_locked(instance.name) and instance.uuid not in self._joining

    # Split brain

    def _split(self, disk: str) -> None:
        now = self._clock.monotonic()
        first, last = self._splits.get(disk, (now, now))
        self._splits[disk] = (first if now - last < _FRESH_S else now, now)

    def split_alarms(self) -> tuple[str, ...]:
        """Return an alarm for each disk whose copies have not connected for some seconds, or were written apart (D9)."""
        snapshot, now = self._config.snapshot, self._clock.monotonic()
        self._splits = {
            disk: times for disk, times in self._splits.items() if now - times[1] < _FRESH_S
        }
        lasting = [disk for disk, (first, _last) in self._splits.items() if now - first >= _LASTS_S]
        found = (
            _split_alarm(snapshot, instance, at)
            for instance in snapshot.instances.values()
            if lasting and not self._is_locked(instance.name)
            for at, disk in enumerate(instance.disks)
            if disk.uuid in lasting
        )
        return tuple(sorted(found))

    async def _tell(self, node: NodeUuid, disk: str) -> None:
        """Tell the writer the present grant."""
        snapshot = self._config.snapshot
        found = _owner(snapshot, node, disk)
        if found is not None and (grant := found[1].grant) is not None:
            await self._rpc.call(
                snapshot.nodes[node], DISK_GRANTED, GrantArgs(disk=disk, grant=grant)
            )

    # The end of protection

    def must_release(self, instance: Instance) -> bool:
        """Return whether writes of an instance without protection may still wait for another copy."""
        snapshot = self._config.snapshot
        return (
            instance.uuid not in self._released
            and _is_up(instance)
            and not _is_protected(snapshot, instance)
            and not snapshot.nodes[instance.primary_node].offline
        )

    async def release(self, uuid: InstanceUuid) -> None:
        """Let the writes of an instance without protection wait for no other copy; GanetiError."""

        def change(draft: Draft) -> None:
            now = draft.instances.get(uuid)
            if now is not None and not _is_protected(draft, now):
                # Always a later generation: the node may have reported a copy in the present one.
                draft.put(without_copies(draft, now, again=True))

        await self._config.change(change)
        now = self._config.snapshot.instances.get(uuid)
        if now is not None and not _is_protected(self._config.snapshot, now):
            for disk in now.disks:
                await self._tell(now.primary_node, disk.uuid)
            self._released.add(uuid)

    def forget_released(self, kept: Container[str]) -> None:
        """Forget instances that are protected again."""
        self._released = {uuid for uuid in self._released if uuid in kept}


def _split_alarm(snapshot: Snapshot, instance: Instance, at: int) -> str:
    here, there = (snapshot.nodes[uuid].name for uuid in instance.all_nodes)
    return (
        f"disk {at} of {instance.name}: the copies on {here} and {there} do not connect, probably because each has"
        f" writes that the other one lacks (split brain). The guest writes on {here}; nothing is overwritten."
        f" Look at: gnt-instance disk-status {instance.name}; to keep the copy on {here} and lose what only {there}"
        f" has: gnt-instance repair-disks --keep={here} {instance.name}"
    )


def _owner(snapshot: Snapshot, node: NodeUuid, disk: str) -> tuple[Instance, Disk] | None:
    """Return the instance whose guest writes a mirrored disk on a node."""
    for instance in snapshot.instances.values():
        if instance.primary_node == node and _is_up(instance):
            for one in instance.disks:
                if one.uuid == disk:
                    return instance, one
    return None


def _is_up(instance: Instance) -> bool:
    is_mirrored = DISK_TEMPLATES[instance.disk_template].mirrored
    return is_mirrored and instance.admin_state is AdminState.UP


def _is_protected(view: View, instance: Instance) -> bool:
    return recovery_of(view, instance) is Recovery.FAILOVER


def _first_grant(uuid: InstanceUuid, node: NodeUuid) -> Change:
    """Grant the disks of a guest that runs on its primary node to that node."""

    def change(draft: Draft) -> None:
        now = draft.instances.get(uuid)
        if now is not None and now.primary_node == node:
            draft.put(with_writer(draft, now, node, is_closed=False, again=True))

    return change
