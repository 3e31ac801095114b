"""Moves of a running guest's disks to other storage of its node.

    device -> disk-X (raw) -> file-X, the old storage
                  | mirror, in the background
                  v
              next-X, the new storage, an open file that this daemon has passed

The guest writes to its old disk alone until both are the same. Then it is paused: the mirrors end, the new storage is
synced, `disk-X` is put on top of `next-X`, and a record says so durably. Only then it continues. So at every moment the
record says which storage has the last writes. The next move goes the other way, from `next-X` to `file-X`.

A guest above a backup (`live_restores.py`) moves to a real disk in the same way:

    device -> above-X, the overlay and the backup
                  | mirror
                  v
              disk-X (raw) -> file-X, the real disk

At the switch its device gets `disk-X`.
"""

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.disk_moves import DiskMove, DiskMoveRecords, MovesDisks
from ganeti.hypervisor.hotplug import with_disk
from ganeti.hypervisor.kvm import mirror
from ganeti.hypervisor.kvm.command_line import DiskBackend, backend_nodes, file_nodes, node_name
from ganeti.hypervisor.kvm.devices import add_nodes
from ganeti.hypervisor.kvm.disks import opened, resolve_disks, without_host_cache
from ganeti.hypervisor.kvm.guests import Guest, Guests, complete
from ganeti.hypervisor.kvm.holding import Holding
from ganeti.hypervisor.kvm.monitor import Ask, CommandRefused, MonitorGone
from ganeti.hypervisor.kvm.pace import Pace, requests_of
from ganeti.hypervisor.kvm.pci_slots import device_id
from ganeti.model.disk_templates import RAW, disk_format
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.rpc.procedures.disk_moves import DiskMoveStatus

BUFFER_BYTES = 4 * 1024 * 1024
"""The data of a copy that is on its way at once. More of it would be no faster, and the guest's own writes wait behind it."""
PAUSE_LIMIT_S = 60.0
"""The longest pause of a guest whose daemon dies."""
MIB = 1024 * 1024
_FDSET_BASES = (0x48000, 0x49000, 0x48000)
"""Sets of descriptors for the lower nodes of disks, by their names, and numbered by slots."""
ABOVE = 2
"""The side of a disk whose guest is above a backup."""
CLOSE_S, LOOK_EVERY_S = 10.0, 0.05
"""The time for QEMU to close a disk that nothing uses."""


@dataclass(frozen=True)
class KvmDiskMoves(MovesDisks):
    """Moves the disks of guests that this driver has started."""

    records: DiskMoveRecords
    guests: Guests
    holding: Holding
    paces: dict[str, Pace] = dataclasses.field(default_factory=dict)
    """The speed of each copy under way, by its token. A copy whose daemon was restarted keeps its speed."""

    async def obstacles(self, instance: InstanceSpec) -> list[str]:
        guest = self.guests.peek(self.guests.files(instance.uuid))
        if guest is None:
            return [f"{instance.name} does not run on this node"]
        try:
            await self._check(guest)
        except HypervisorError as err:
            return [err.message]
        return []

    async def begin(
        self,
        instance: InstanceSpec,
        disks: Sequence[DiskSpec],
        paths: Sequence[str],
        *,
        token: str,
        bandwidth_mib_s: int,
    ) -> None:
        async with self.guests.lock(self.guests.files(instance.uuid)):
            guest = self.guests.here(instance)
            move = self.records.read(instance.uuid)
            if move is not None and move.token == token and move.is_moved:
                return
            await self._check(guest)
            if {one.uuid for one in disks} != {one.uuid for one in guest.instance.disks}:
                raise HypervisorError(
                    f"the running guest of {instance.name} has other disks than its configuration:"
                    f" restart it first: gnt-instance reboot --type=full {instance.name}"
                )
            if move is not None:
                if move.token == token and await _is_under_way(guest, move):
                    return
                guest = await self.put_right(guest)
            nodes = await _nodes(guest)
            sides = tuple(_new_side(disk, nodes) for disk in disks)
            _check_formats(guest, disks, sides)
            new = DiskMove(token=token, disks=tuple(disks), paths=tuple(paths), sides=sides)
            # Before QEMU has anything of it: the next daemon finds it.
            self.records.write(instance.uuid, new)
            try:
                await self._begin(guest, new, bandwidth_mib_s)
                size = sum(disk.size for disk in disks) * MIB
                self.paces[token] = Pace(bandwidth_mib_s, size, len(disks))
            except BaseException:
                await asyncio.shield(self._revert(guest))
                raise

    async def _check(self, guest: Guest) -> None:
        name = guest.own("have its disks moved while it runs").instance.name
        if guest.record.is_incoming or guest.record.stopped_to_move:
            raise HypervisorError(f"a migration of {name} is not finished")
        status = await guest.status()
        if status not in ("running", "paused", "prelaunch"):  # the last one: not resumed yet
            raise HypervisorError(f"{name} does not run: QEMU reports {status}")
        if read_only := [one.index for one in guest.instance.disks if one.mode != "rw"]:
            raise HypervisorError(
                f"disk {read_only[0]} is read-only and cannot be copied while the guest runs"
            )

    async def _begin(self, guest: Guest, move: DiskMove, bandwidth_mib_s: int) -> None:
        for disk, path, side in zip(move.disks, move.paths, move.sides, strict=True):
            backend = _backend(guest, disk, path)
            fdset, (lower, upper) = (
                _fdset(guest, disk, side),
                _new_nodes(guest, disk, side, backend),
            )
            if side != ABOVE:
                # The guest's own syncs would wait for a copy in the host's cache.
                lower["cache"] = {**lower["cache"], "direct": without_host_cache(backend).direct}
            await add_nodes(guest, disk, backend, fdset, [lower])
            if side == ABOVE:
                await guest.ask("blockdev-add", upper)
        await _check_sizes(guest, move)
        for disk, side in zip(move.disks, move.sides, strict=True):
            await mirror.start(
                guest.ask,
                disk,
                _target(disk, side),
                bandwidth_mib_s,
                source=_source(disk, side),
                buffer_bytes=BUFFER_BYTES,
            )

    async def _revert(self, guest: Guest) -> None:
        """After a failed beginning: remove everything of it, if QEMU still answers."""
        with contextlib.suppress(HypervisorError):
            await self.put_right(guest)

    async def status(self, instance: InstanceSpec, token: str) -> DiskMoveStatus:
        move = self._known(instance, token)
        if move.is_moved:
            return DiskMoveStatus(done=0, total=0, in_step=True)
        ask = self.guests.here(instance).ask
        present = await mirror.jobs(ask, move.disks)
        done = sum(job["current-progress"] for job in present)
        await self._keep_pace(ask, move, done)
        return DiskMoveStatus(
            done=done,
            total=sum(job.get("total-progress", 0) for job in present),
            in_step=mirror.are_in_step(present),
        )

    async def _keep_pace(self, ask: Ask, move: DiskMove, done: int) -> None:
        """Slow the copy down while the guest uses its disks."""
        if (pace := self.paces.get(move.token)) is None:
            return
        devices = {device_id("disk", disk.uuid) for disk in move.disks}
        requests = requests_of(await ask("query-blockstats"), devices)
        if pace.changed(asyncio.get_running_loop().time(), done, requests):
            await mirror.set_speed(ask, move.disks, pace.speed)

    async def switch(self, instance: InstanceSpec, token: str) -> int:
        async with self.guests.lock(self.guests.files(instance.uuid)):
            move = self._known(instance, token)
            if move.is_moved:
                return 0
            guest = self.guests.here(instance)
            if not mirror.are_in_step(await mirror.jobs(guest.ask, move.disks)):
                raise HypervisorError(f"the copies of the disks of {instance.name} are not in step")
            await mirror.set_speed(guest.ask, move.disks, 0)
            # Most of the copy may be only in the host's memory: the guest must not wait for that in its pause.
            await asyncio.to_thread(_sync, move.paths)
            began = time.monotonic()
            # Both disks hold the same then, so the record decides which one is used, whatever fails.
            async with self.holding.paused(guest, PAUSE_LIMIT_S, first=self._follow) as held:
                await mirror.finish(held.ask, move.disks)
                await asyncio.to_thread(_sync, move.paths)
                await self._use(held, move, is_new=True)
                self.records.write(instance.uuid, replace(move, is_moved=True))
            paused_ms = round(1000 * (time.monotonic() - began))
            with contextlib.suppress(HypervisorError):  # `end` repeats it
                await self.put_right(self.guests.here(instance))
            return paused_ms

    async def end(self, instance: InstanceSpec, token: str) -> bool:
        files = self.guests.files(instance.uuid)
        async with self.guests.lock(files):
            move = self.records.read(instance.uuid)
            self.paces.pop(token, None)
            if move is None or move.token != token:
                return False
            guest = self.guests.peek(files)
            if guest is not None and not guest.record.is_incoming:
                try:
                    await self.put_right(guest)
                except MonitorGone:
                    if not await self.guests.ended_within(guest, CLOSE_S):
                        raise
            return move.is_moved

    def forget(self, instance: InstanceSpec, token: str) -> None:
        move = self.records.read(instance.uuid)
        if move is not None and move.token == token:
            self.records.forget(instance.uuid)

    async def put_right(self, guest: Guest) -> Guest:
        """End the mirrors, let QEMU use the disks that the record says, and close the others; the lock is held.

        Return the guest with its present record.
        """
        move = self.records.read(guest.instance.uuid)
        if move is None:
            return guest
        await mirror.end_all(guest.ask, move.disks)
        guest = await self._follow(guest)
        for disk, side in zip(move.disks, move.sides, strict=True):
            if side == ABOVE:
                await _close_one(guest, disk, is_moved=move.is_moved)
                continue
            unused = 1 - side if move.is_moved else side
            await _close(guest, disk, unused)
        return guest

    async def _follow(self, guest: Guest) -> Guest:
        """Let QEMU use the disks that the durable record says; return the guest with its present record."""
        move = self.records.read(guest.instance.uuid)
        if move is None:
            return guest
        switched = await self._use(guest, move, is_new=move.is_moved)
        spec = guest.instance
        for disk in switched if move.is_moved else ():
            spec = replace(with_disk(spec, disk), disk_template=disk.template)
        return self.guests.change(guest, instance=spec) if spec != guest.instance else guest

    async def _use(self, guest: Guest, move: DiskMove, *, is_new: bool) -> list[DiskSpec]:
        """Let all disks use their new storage, or their old one, at once; return the disks that have both."""
        nodes, hvparams = await _nodes(guest), complete(guest.instance.hvparams)
        options, both = list[dict[str, Any]](), list[DiskSpec]()
        for disk, path, side in zip(move.disks, move.paths, move.sides, strict=True):
            if side == ABOVE:
                if {node_name("disk", disk), _source(disk, side)} <= nodes.keys():
                    await _change_device(guest, disk, is_new=is_new)
                    both.append(disk)
                continue
            names = file_nodes(disk)
            if not set(names) <= nodes.keys():
                continue  # it was closed, or the guest has been restarted since
            if is_new and (backend := _backend(guest, disk, path)).direct != _is_direct(
                nodes[names[side]]
            ):
                lower, _ = _new_nodes(guest, disk, side, backend)
                options.append(lower)  # the guest's own cache mode
            upper = nodes[node_name("disk", disk)]
            same = DiskBackend(path="", is_block=False, direct=_is_direct(upper))
            option = backend_nodes(disk, same, hvparams)[1]
            options.append({**option, "file": names[side if is_new else 1 - side]})
            both.append(disk)
        if options:
            await guest.ask("blockdev-reopen", {"options": options})
        return both

    def _known(self, instance: InstanceSpec, token: str) -> DiskMove:
        move = self.records.read(instance.uuid)
        if move is None or move.token != token:
            raise HypervisorError(f"the disks of {instance.name} are not being moved by this job")
        return move


def _backend(guest: Guest, disk: DiskSpec, path: str) -> DiskBackend:
    """Return the way to open a new disk for the guest."""
    cache = str(complete(guest.instance.hvparams)["disk_cache"])
    return resolve_disks(replace(guest.instance, disks=(disk,)), [path], cache)[0]


def _is_direct(node: Mapping[str, Any]) -> bool:
    return bool(node["cache"]["direct"])


def _new_nodes(
    guest: Guest, disk: DiskSpec, side: int, backend: DiskBackend
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the lower node of a new disk, which QEMU opens by a descriptor, and the node above it."""
    place = dataclasses.replace(backend, path=f"/dev/fdset/{_fdset(guest, disk, side)}")
    lower, upper = backend_nodes(disk, place, complete(guest.instance.hvparams))
    return {**lower, "node-name": _lower(disk, side)}, upper


async def _nodes(guest: Guest) -> dict[str, dict[str, Any]]:
    """Return QEMU's block nodes by name."""
    found = await guest.ask("query-named-block-nodes", {"flat": True})
    return {str(one["node-name"]): one for one in found}


def _check_formats(guest: Guest, disks: Sequence[DiskSpec], sides: Sequence[int]) -> None:
    """Refuse images, old and new, if the lower nodes change below a node that stays: it has one format."""
    present = {one.uuid: one for one in guest.instance.disks}
    for disk, side in zip(disks, sides, strict=True):
        forms = {disk_format(one.template, one.params) for one in (disk, present[disk.uuid])}
        if side != ABOVE and forms != {RAW}:
            raise HypervisorError(
                f"disk {disk.index} is or becomes an image ({', '.join(sorted(forms - {RAW}))}), and such a disk"
                " moves to other storage only while the guest is down; first run: gnt-instance shutdown"
                f" {guest.instance.name}"
            )


def _new_side(disk: DiskSpec, nodes: Mapping[str, object]) -> int:
    """Return which name the new storage of a disk gets."""
    return ABOVE if _source(disk, ABOVE) in nodes else 1 - _only_side(disk, nodes)


def _lower(disk: DiskSpec, side: int) -> str:
    """Return the node of the new storage."""
    return node_name("file", disk) if side == ABOVE else file_nodes(disk)[side]


def _target(disk: DiskSpec, side: int) -> str:
    """Return the node to which a disk is copied."""
    return node_name("disk", disk) if side == ABOVE else _lower(disk, side)


def _source(disk: DiskSpec, side: int) -> str:
    """Return the node that the guest uses."""
    return node_name("above" if side == ABOVE else "disk", disk)


async def _change_device(guest: Guest, disk: DiskSpec, *, is_new: bool) -> None:
    """Let the guest's device use its own disk, or the backup and what is above it."""
    path = f"/machine/peripheral/{device_id('disk', disk.uuid)}"
    node = node_name("disk" if is_new else "above", disk)
    drive = {"path": path, "property": "drive"}
    # QEMU 7.2 aborts if a device gets the node that it has.
    if await guest.ask("qom-get", drive) != node:
        await guest.ask("qom-set", {**drive, "value": node})


def _only_side(disk: DiskSpec, nodes: Mapping[str, object]) -> int:
    """Return which name the only lower node of a disk has."""
    present = [side for side, name in enumerate(file_nodes(disk)) if name in nodes]
    if len(present) != 1:
        raise HypervisorError(f"QEMU has {len(present)} copies of disk {disk.index} instead of one")
    return present[0]


async def _is_under_way(guest: Guest, move: DiskMove) -> bool:
    try:
        await mirror.jobs(guest.ask, move.disks)
    except HypervisorError:
        return False
    return True


async def _check_sizes(guest: Guest, move: DiskMove) -> None:
    """Refuse unless the new disks have exactly the sizes of the old ones, as QEMU sees them."""
    nodes = await _nodes(guest)
    for disk, side in zip(move.disks, move.sides, strict=True):
        new, old = (
            int(nodes[name]["image"]["virtual-size"])
            for name in (_target(disk, side), _source(disk, side))
        )
        if new != old:
            raise HypervisorError(
                f"disk {disk.index} has {old / MIB:g} MiB, but the new storage gives it {new / MIB:g} MiB; a disk"
                " of a running guest moves only with the same size: move it while the instance is down, or first"
                " grow it (gnt-instance grow-disk) to a size that both storages can have"
            )


async def _close(guest: Guest, disk: DiskSpec, side: int) -> None:
    """Let QEMU close one of the two lower nodes of a disk, which nothing uses; HypervisorError."""
    nodes = await _nodes(guest)
    if set(file_nodes(disk)) <= nodes.keys():  # otherwise the guest was restarted with another disk
        await _delete(guest, file_nodes(disk)[side])
        await _forget_fdset(guest, disk, side)


async def _close_one(guest: Guest, disk: DiskSpec, *, is_moved: bool) -> None:
    """Let QEMU close the overlay and the backup, or the real disk; the guest uses the other one."""
    nodes = await _nodes(guest)
    if not {node_name("disk", disk), _source(disk, ABOVE)} <= nodes.keys():
        if not is_moved and _source(disk, ABOVE) in nodes:
            await _delete(guest, node_name("file", disk))
            await _forget_fdset(guest, disk, ABOVE)
        return
    if is_moved:
        await _delete(guest, _source(disk, ABOVE))
    else:
        await _delete(guest, node_name("disk", disk))
        await _delete(guest, node_name("file", disk))
        await _forget_fdset(guest, disk, ABOVE)


async def _delete(guest: Guest, name: str) -> None:
    """Remove a node once nothing uses it; HypervisorError."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CLOSE_S
    while name in await _nodes(guest):
        try:
            await guest.ask("blockdev-del", {"node-name": name})
        except CommandRefused:
            if loop.time() >= deadline:
                raise
            await asyncio.sleep(LOOK_EVERY_S)


async def _forget_fdset(guest: Guest, disk: DiskSpec, side: int) -> None:
    with contextlib.suppress(CommandRefused):  # it has none
        await guest.ask("remove-fd", {"fdset-id": _fdset(guest, disk, side)})


def _fdset(guest: Guest, disk: DiskSpec, side: int) -> int:
    return _FDSET_BASES[side] + guest.record.slots[disk.uuid]


def _sync(paths: Sequence[str]) -> None:
    """Make everything durable that was written to these disks; blocks.

    QEMU's mirror has flushed the disks that QEMU opens itself.
    """
    for path in paths:
        if path.startswith("/"):
            with opened(path, read_only=True) as file:
                os.fsync(file)
