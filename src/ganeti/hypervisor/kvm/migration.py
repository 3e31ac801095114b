"""The transfer of a guest to another host, by commands to QEMU's monitors.

The target never resumes a guest without a command: QEMU starts with `-S`, and opens the disks for writing only on
command (`late-block-activate`). So the guest runs on at most one node, whatever is lost on the way: until
`activate` the source may resume it (G5, F20).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.capabilities import set_capabilities
from ganeti.hypervisor.kvm.migration_tls import Link
from ganeti.hypervisor.kvm.monitor import Ask, CommandRefused, Conversing
from ganeti.rpc.meters import report
from ganeti.rpc.procedures.migration import MigrationInfo, MigrationResult

LOOK_EVERY_S = 0.05
SHORTEST_LOOK_S = 0.005
"""The pause between two looks near the end, so that the guest is not kept waiting."""
FIRST_PAUSE_S = 0.001
NO_PROGRESS_S = 30.0
"""A migration without progress for this time is ended: the other node is unreachable."""
HOPELESS_PASSES, HOPELESS_S = 50, 60.0
"""A guest that after these passes and this time still writes faster than the transfer never converges."""
ARRIVAL_S = 10.0
FIGURES_S = 1.0
CANCEL_S = 20.0
_UNDER_WAY = frozenset(
    ("setup", "active", "postcopy-active", "pre-switchover", "device", "wait-unplug", "cancelling")
)
OVER = frozenset(("completed", "failed", "cancelled"))
_GONE = "postmigrate"
_LEAVING = frozenset(("finish-migrate", _GONE))


@dataclass(frozen=True)
class Limits:
    """The limits of a migration."""

    bandwidth_mib_s: int
    downtime_ms: int
    capabilities: Sequence[str] = ()
    """Further capabilities of QEMU, the same on both ends."""


@dataclass(frozen=True)
class Destination:
    """The target's address; without a link, over a connection agreed on before."""

    address: str
    port: int
    link: Link | None = None


BeforeSwitchover = Callable[[], Awaitable[None]]
"""Work to be done while the guest is paused, before the last of its memory is sent."""


def uri(address: str, port: int) -> str:
    """Return a TCP address in QEMU's form."""
    return f"tcp:[{address}]:{port}" if ":" in address else f"tcp:{address}:{port}"


def check_compatible(info: MigrationInfo, *, accelerator: str, version: str) -> None:
    """Raise HypervisorError unless a guest of the node that sent `info` can continue here."""
    if info.accelerator != accelerator:
        raise HypervisorError(
            f"the guest was started with {info.accelerator} and would get {accelerator}"
            " here; it can only continue on a node with the same acceleration"
        )
    theirs = info.qemu_version
    if _numbers(version)[:2] < _numbers(theirs)[:2]:
        raise HypervisorError(
            f"QEMU is {version} here, and the guest was started by {theirs}; a guest cannot continue in an"
            " older one: upgrade this node"
        )


async def listen(
    ask: Ask, address: str, port: int, link: Link, capabilities: Sequence[str] = ()
) -> int:
    """Wait for a guest at `address`, on `port` if it is free; return the port."""
    await set_capabilities(ask, further=capabilities)
    await ask("migrate-set-parameters", link.migration_parameters())
    try:
        await ask("migrate-incoming", {"uri": uri(address, port)})
    except CommandRefused:
        await ask("migrate-incoming", {"uri": uri(address, 0)})
    return await _listening_port(ask)


async def has_begun(ask: Ask) -> bool:
    """On the source: return whether the guest is being sent, or was."""
    # `completed` proves nothing here: QEMU also reports it for the guest's arrival on this node.
    return await _status(ask) == _GONE or await _is_under_way(ask)


async def is_over(ask: Ask, *, is_incoming: bool) -> bool:
    """On either end: return whether the guest runs here, outside of any migration."""
    status = await _status(ask)
    if is_incoming:
        return status == "running"
    return status not in _LEAVING and not await _is_under_way(ask)


async def _is_under_way(ask: Ask) -> bool:
    return (await ask("query-migrate")).get("status") in _UNDER_WAY


async def send(
    ask: Conversing,
    to: Destination,
    limits: Limits,
    before_switchover: BeforeSwitchover | None = None,
) -> MigrationResult:
    """Send the guest, or join the transfer that is under way; return its result.

    After any result but `completed`, the guest runs here as before.
    """
    async with ask.conversation():
        if await _status(ask) == _GONE:
            return await _completed(ask)
        if not await _is_under_way(ask):
            await _begin(ask, to, limits, pauses=before_switchover is not None)
    why = await _watch(ask, before_switchover)
    async with ask.conversation():
        answer = await ask("query-migrate")
        if answer["status"] == "completed":
            return await _completed(ask)
    error = why or str(answer.get("error-desc") or f"QEMU reports: {answer['status']}")
    return MigrationResult(
        status=answer["status"],
        total_ms=0,
        downtime_ms=0,
        transferred=_transferred(answer),
        error=error,
    )


async def _begin(ask: Ask, to: Destination, limits: Limits, *, pauses: bool) -> None:
    await set_capabilities(ask, further=limits.capabilities, pauses=pauses)
    parameters: dict[str, int | str] = {
        "max-bandwidth": limits.bandwidth_mib_s * 1024 * 1024,
        "downtime-limit": limits.downtime_ms,
    }
    if to.link is not None:
        parameters |= to.link.migration_parameters()
    await ask("migrate-set-parameters", parameters)
    await ask("migrate", {"uri": uri(to.address, to.port)})


async def stop_sending(ask: Ask) -> None:
    """End a transfer that is under way, if there is one; the guest continues here."""
    if await _is_under_way(ask):
        await cancel(ask)


async def check_arrived(ask: Ask) -> None:
    """On the target: raise HypervisorError unless all of the guest is here."""
    if await _arrived(ask) == "inmigrate":
        raise HypervisorError(
            "the guest has not arrived here; the migration did not succeed: finish it as failed"
        )


async def activate(ask: Ask, *, resume: bool) -> None:
    """On the target: resume the guest that arrived. From here on only this node may have it."""
    await check_arrived(ask)
    if await _status(ask) == "running":
        return
    if resume:
        await ask("cont")
    if resume and (status := await _status(ask)) != "running":
        raise HypervisorError(f"the guest arrived but does not run: QEMU reports {status}")


async def take_back(ask: Ask, *, resume: bool, was_stopped: bool = False) -> None:
    """On the source: resume the guest here; `was_stopped` if it was stopped for the move.

    The caller must know that the target does not have it: after `MigrationEnd.END_TARGET` on the target, or if that
    node is certainly dead.
    """
    await stop_sending(ask)
    stands = _LEAVING | {"paused"} if was_stopped else _LEAVING
    if resume and await _status(ask) in stands:
        await ask("cont")


async def has_left(ask: Ask) -> bool:
    """On the source: return whether the guest was sent completely and is paused here."""
    looks = _Looks(ARRIVAL_S)
    while True:
        status = await _status(ask)
        if status not in _LEAVING or status == _GONE or not await looks.again():
            return status == _GONE


async def cancel(ask: Ask) -> None:
    """End a migration that is under way; the guest continues here."""
    await ask("migrate_cancel")
    looks = _Looks(CANCEL_S)
    while (await ask("query-migrate")).get("status") not in OVER:
        if not await looks.again():
            raise HypervisorError(f"QEMU did not cancel the migration within {CANCEL_S:g} s")


async def _watch(ask: Ask, before_switchover: BeforeSwitchover | None) -> str:
    """Wait for the end of a migration; return why it was ended early, or ''."""
    loop = asyncio.get_running_loop()
    began = moved = loop.time()
    seen: Any = None
    is_continued = False
    while True:
        answer = await ask("query-migrate")
        if answer.get("status") in OVER:
            return ""
        if answer.get("status") == "pre-switchover" and before_switchover is not None:
            if not is_continued:
                await before_switchover()
                await ask("migrate-continue", {"state": "pre-switchover"})
                is_continued = True
            await asyncio.sleep(FIRST_PAUSE_S)  # a thread of QEMU leaves that state, soon
            continue
        report_memory(answer.get("ram", {}))
        now = loop.time()
        if (progress := _progress(answer)) != seen:
            seen, moved = progress, now
        if why := _hopeless(answer, standing_s=now - moved, running_s=now - began):
            await cancel(ask)
            return why
        # QEMU's events would need a connection of their own for as long as the migration lasts.
        await asyncio.sleep(until_next_look(answer.get("ram", {})))


class _Looks:
    """The pauses between looks at QEMU; they begin short, because the guest is paused meanwhile."""

    def __init__(self, limit_s: float) -> None:
        self._end = asyncio.get_running_loop().time() + limit_s
        self._pause_s = FIRST_PAUSE_S

    async def again(self) -> bool:
        """Wait for the next look; False if the time is over."""
        if asyncio.get_running_loop().time() >= self._end:
            return False
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LOOK_EVERY_S)
        return True


def until_next_look(memory: Mapping[str, Any]) -> float:
    """Return the seconds in which half of what is left can be sent, within bounds."""
    bits_per_s = memory.get("mbps", 0) * 1e6
    left_s = memory.get("remaining", 0) * 8 / bits_per_s if bits_per_s else 0.0
    return min(max(left_s / 2, SHORTEST_LOOK_S), LOOK_EVERY_S)


def report_memory(memory: Mapping[str, Any]) -> None:
    """Report the transferred share of the memory: pages of zeros count, rewritten pages do not."""
    if total := memory.get("total"):
        report(total - memory.get("remaining", 0), total, "memory")


def _hopeless(answer: Mapping[str, Any], *, standing_s: float, running_s: float) -> str:
    if standing_s >= NO_PROGRESS_S:
        return f"nothing was sent for {NO_PROGRESS_S:g} s; check that the other node is reachable"
    passes = answer.get("ram", {}).get("dirty-sync-count", 0)
    if passes >= HOPELESS_PASSES and running_s >= HOPELESS_S:
        return (
            f"the guest writes its memory faster than it can be sent ({passes} passes);"
            " raise migration_bandwidth or migration_downtime"
        )
    return ""


def _progress(answer: Mapping[str, Any]) -> tuple[Any, ...]:
    memory = answer.get("ram", {})
    names = ("transferred", "remaining", "dirty-sync-count")
    return (answer.get("status"), *(memory.get(name) for name in names))


async def _completed(ask: Ask) -> MigrationResult:
    """Return the figures: QEMU may report `completed` a moment before it has them, and is then paused."""
    await has_left(ask)
    looks = _Looks(FIGURES_S)
    answer = await ask("query-migrate")
    while not {"total-time", "downtime"} <= answer.keys() and await looks.again():
        answer = await ask("query-migrate")
    return MigrationResult(
        status="completed",
        total_ms=int(answer.get("total-time", 0)),
        downtime_ms=int(answer.get("downtime", 0)),
        transferred=_transferred(answer),
    )


async def _arrived(ask: Ask) -> str:
    """Return the run state once the last bytes were read; `inmigrate` if they do not arrive."""
    looks = _Looks(ARRIVAL_S)
    while (status := await _status(ask)) == "inmigrate":
        if (await ask("query-migrate")).get("status") not in _UNDER_WAY | {"completed"}:
            break
        if not await looks.again():
            break
    return status


async def _status(ask: Ask) -> str:
    return str((await ask("query-status"))["status"])


async def _listening_port(ask: Ask) -> int:
    for address in (await ask("query-migrate")).get("socket-address", ()):
        if address.get("type") == "inet":
            return int(address["port"])
    raise HypervisorError("QEMU did not report the port on which it waits for the guest")


def _transferred(answer: Mapping[str, Any]) -> int:
    return int(answer.get("ram", {}).get("transferred", 0))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
