"""The transfer of disks in a live migration, by commands to QEMU's monitors.

    target: NBD server with an export for each disk; no other program reads or writes these
    source: a mirror for each disk; when all are synchronised, the memory is sent
    source: is paused before the last bit: the mirrors end, so both sides hold the same
    target: the exports end before the guest resumes

The mirrors run in the background: a guest never waits for a link that may be dead. This module ends a mirror, with an
error, if it makes no progress.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.command_line import node_name
from ganeti.hypervisor.kvm.migration_tls import CREDENTIALS, Link
from ganeti.hypervisor.kvm.monitor import Ask, CommandRefused
from ganeti.model.instance_spec import DiskSpec
from ganeti.rpc.meters import report

LOOK_EVERY_S = 0.05
NO_PROGRESS_S = 30.0
BURST_MIB = 64
"""QEMU sends this amount at once and then pauses as the limit requires; until then it notices no error."""
END_S = 20.0
PORT_TRIES = 5
MIB = 1024 * 1024
_FINAL = frozenset(("concluded", "null"))
_IN_STEP = frozenset(("ready", "standby"))


@dataclass(frozen=True)
class Receiver:
    """The target's address for the disks, and the amount to send for each."""

    address: str
    port: int
    link: Link
    bandwidth_mib_s: int


def check_can_copy(disks: Sequence[DiskSpec]) -> None:
    """Raise HypervisorError if a disk cannot move with the running guest."""
    for disk in disks:
        if disk.mode != "rw":
            raise HypervisorError(
                f"disk {disk.index} is read-only and cannot move with the running guest:"
                " use gnt-instance move"
            )


# --- the target ------------------------------------------------------------------------------


async def offer(ask: Ask, address: str, disks: Sequence[DiskSpec]) -> int:
    """Wait at `address` for the contents of all disks; return the port."""
    port = await _serve(ask, address)
    for disk in disks:
        export = {
            "type": "nbd",
            "id": _name("export", disk),
            "node-name": node_name("disk", disk),
            "name": disk.uuid,
            "writable": True,
        }
        await ask("block-export-add", export)
    return port


async def _serve(ask: Ask, address: str) -> int:
    """QEMU does not report its port, so the caller names a free one; another process may take it first."""
    for _ in range(PORT_TRIES - 1):
        port = free_port(address)
        try:
            await _serve_at(ask, address, port)
        except CommandRefused:
            continue
        return port
    port = free_port(address)
    await _serve_at(ask, address, port)
    return port


async def _serve_at(ask: Ask, address: str, port: int) -> None:
    where = {"type": "inet", "data": {"host": address, "port": str(port)}}
    await ask("nbd-server-start", {"addr": where, "tls-creds": CREDENTIALS})


def free_port(address: str) -> int:
    """Return an unused port of this address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
            return int(probe.getsockname()[1])
    except OSError as err:
        raise HypervisorError(f"no free port at {address}: {err.strerror}") from err


async def withdraw(ask: Ask, disks: Sequence[DiskSpec]) -> None:
    """Stop the exports; afterwards only the guest reads or writes its disks."""
    for disk in disks:
        with contextlib.suppress(CommandRefused):
            await ask("block-export-del", {"id": _name("export", disk), "mode": "hard"})
    with contextlib.suppress(CommandRefused):
        await ask("nbd-server-stop")
    exports = await ask("query-block-exports")
    if exports:
        raise HypervisorError(f"an export of the disks did not stop: {exports[0].get('id')}")


# --- the source ------------------------------------------------------------------------------


async def bring_in_step(ask: Ask, disks: Sequence[DiskSpec], to: Receiver) -> None:
    """Begin to mirror all disks, and return once the other side has all but the latest writes."""
    for disk in disks:
        try:
            await _begin(ask, disk, to)
        except CommandRefused as err:
            raise HypervisorError(f"disk {disk.index} could not be copied: {err}") from err
    patience_s = NO_PROGRESS_S + BURST_MIB / to.bandwidth_mib_s
    loop = asyncio.get_running_loop()
    moved, seen = loop.time(), -1
    while True:
        present = await jobs(ask, disks)
        if are_in_step(present):
            return
        if (done := sum(job["current-progress"] for job in present)) != seen:
            moved, seen = loop.time(), done
        report(done, sum(job.get("total-progress", 0) for job in present), "disks")
        if loop.time() - moved >= patience_s:
            raise HypervisorError(
                f"no data of the disks was sent for {patience_s:.0f} s; check that the other node is reachable"
            )
        await asyncio.sleep(LOOK_EVERY_S)


async def _begin(ask: Ask, disk: DiskSpec, to: Receiver) -> None:
    node = {
        "driver": "nbd",
        "node-name": _name("copy", disk),
        "export": disk.uuid,
        "server": {"type": "inet", "host": to.address, "port": str(to.port)},
        "tls-creds": CREDENTIALS,
        "tls-hostname": to.link.hostname,
        "reconnect-delay": 0,
    }
    await ask("blockdev-add", node)
    await start(ask, disk, _name("copy", disk), to.bandwidth_mib_s)


async def start(
    ask: Ask,
    disk: DiskSpec,
    target: str,
    bandwidth_mib_s: int,
    *,
    source: str = "",
    buffer_bytes: int = 0,
) -> None:
    """Begin to mirror a disk to another node of the same QEMU, at most at this speed; 0: no limit.

    `source` is the node that the guest uses, if it is not that of the disk; `buffer_bytes` is the data that is on its
    way at once; 0: QEMU's default.
    """
    job = {
        "job-id": _name("mirror", disk),
        "device": source or node_name("disk", disk),
        "target": target,
        "sync": "full",
        "speed": bandwidth_mib_s * MIB,
        "on-source-error": "report",
        "on-target-error": "report",
        "auto-dismiss": False,
        **({"buf-size": buffer_bytes} if buffer_bytes else {}),
    }
    await ask("blockdev-mirror", job)


async def finish(ask: Ask, disks: Sequence[DiskSpec]) -> None:
    """While the guest is paused: send the rest, and end all mirrors; HypervisorError if one fails. Idempotent."""
    for disk in disks:
        with contextlib.suppress(CommandRefused):  # it has ended: whether well is asked below
            await ask("block-job-cancel", {"device": _name("mirror", disk), "force": False})
    loop = asyncio.get_running_loop()
    moved, seen = loop.time(), -1
    while True:
        present = await jobs(ask, disks)
        if all(job["status"] in _FINAL for job in present):
            return
        if (done := sum(job["current-progress"] for job in present)) != seen:
            moved, seen = loop.time(), done
        if loop.time() - moved >= END_S:
            raise HypervisorError(f"the last of the disks was not sent within {END_S:g} s")
        await asyncio.sleep(LOOK_EVERY_S / 10)  # the guest is paused


async def jobs(ask: Ask, disks: Sequence[DiskSpec]) -> list[dict[str, Any]]:
    """Return the mirrors of these disks; HypervisorError if one has failed or ended."""
    found = {job["id"]: job for job in await ask("query-jobs")}
    present = []
    for disk in disks:
        job = found.get(_name("mirror", disk))
        if job is None or job.get("error"):
            why = job["error"] if job else "its mirror does not exist"
            raise HypervisorError(f"disk {disk.index} could not be copied: {why}")
        present.append(job)
    return present


def are_in_step(present: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether these mirrors lack at most the latest writes."""
    return all(job["status"] in _IN_STEP for job in present)


async def set_speed(ask: Ask, disks: Sequence[DiskSpec], bandwidth_mib_s: int) -> None:
    """Limit the speed of these mirrors; 0: no limit."""
    speed = bandwidth_mib_s * MIB
    for disk in disks:
        with contextlib.suppress(CommandRefused):  # it has ended
            await ask("block-job-set-speed", {"device": _name("mirror", disk), "speed": speed})


async def clear(ask: Ask, disks: Sequence[DiskSpec]) -> None:
    """Cancel all mirrors to the other node by force; the guest continues on its own disks."""
    await end_all(ask, disks)
    for disk in disks:
        with contextlib.suppress(CommandRefused):
            await ask("blockdev-del", {"node-name": _name("copy", disk)})


async def end_all(ask: Ask, disks: Sequence[DiskSpec]) -> None:
    """Cancel the mirrors of these disks by force."""
    known = {job["id"] for job in await ask("query-jobs")}
    for disk in disks:
        if _name("mirror", disk) in known:
            await _end_by_force(ask, disk)


async def _end_by_force(ask: Ask, disk: DiskSpec) -> None:
    # A dead connection would hold the job until TCP times out.
    instance = {"type": "block-node", "node-name": _name("copy", disk)}
    name = _name("mirror", disk)
    with contextlib.suppress(CommandRefused):
        await ask("block-job-cancel", {"device": name, "force": True})
    loop = asyncio.get_running_loop()
    begun, is_yanked = loop.time(), False
    while loop.time() - begun < END_S:
        job = next((job for job in await ask("query-jobs") if job["id"] == name), None)
        if job is None:
            return
        if job["status"] == "concluded":
            await ask("job-dismiss", {"id": name})
            return
        if not is_yanked and loop.time() - begun > 1:
            is_yanked = True
            with contextlib.suppress(CommandRefused):
                await ask("yank", {"instances": [instance]})
        await asyncio.sleep(LOOK_EVERY_S)
    raise HypervisorError(f"the mirror of disk {disk.index} did not stop")


def _name(kind: str, disk: DiskSpec) -> str:
    """Return a name in QEMU, within its 31 bytes."""
    return f"{kind}-{disk.uuid.replace('-', '')[:20]}"
