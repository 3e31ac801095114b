"""Mirrored disks of simulated nodes: two copies, the link between them, and synchronisation at a rate.

A copy is its generations, the newest first, as in DRBD: a primary that loses the other copy, or is opened without it,
begins a new generation. A copy whose generation is an ancestor of the other's is synchronised from it. Two copies with
generations of their own have parted, and drop their connection.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ganeti.base.errors import StorageError
from ganeti.model.disk_templates import DRBD
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.rpc.procedures.disks import SyncStatus

JUST_CREATED = 4
_WRITING = (DiskRole.PRIMARY, DiskRole.BOTH)


def is_mirrored(disk: DiskSpec) -> bool:
    """Return whether the disk is one of two copies."""
    return disk.template == DRBD.name


@dataclass(eq=False)
class Copy:
    """One node's copy of a disk."""

    node: str
    disk: DiskSpec
    generations: list[int] = field(default_factory=lambda: [JUST_CREATED])
    is_whole: bool = False
    """It has every write that its node knows of."""
    is_consistent: bool = False
    role: DiskRole | None = None
    """None: closed."""
    is_dropped: bool = False
    is_discarded: bool = False
    """Its own writes do not count at the next connection."""
    alone_since: float | None = None
    """Since when its guest writes without the other copy."""
    missed_mib: float = 0.0
    """How much the other copy lacks."""
    link: "Link | None" = None

    @property
    def is_writing(self) -> bool:
        return self.role in _WRITING

    @property
    def is_mirrored(self) -> bool:
        """Return whether the other copy is connected and has the same data."""
        link = self.link
        return link is not None and not link.is_copying and all(one.is_whole for one in link.ends)

    @property
    def is_new(self) -> bool:
        return self.generations[0] == JUST_CREATED


@dataclass(eq=False)
class Link:
    """Two connected copies; while `total_mib` is not 0, the first one is copied to the second."""

    ends: tuple[Copy, Copy]
    total_mib: float = 0.0
    left_mib: float = 0.0
    rate: float = 0.0
    looked_at: float = 0.0
    timer: asyncio.TimerHandle | None = None

    @property
    def is_copying(self) -> bool:
        return self.total_mib > 0


class Mirrors:
    """All copies of a simulated cluster."""

    def __init__(
        self,
        *,
        rate_mib_s: float,
        write_mib_s: float,
        reaches: Callable[[str, str], bool],
        in_sync: Callable[[DiskSpec, str], None],
    ) -> None:
        """`reaches` returns whether two nodes are up and their link passes; `in_sync` is called for the copy that was filled."""
        self._rate, self._writes = rate_mib_s, write_mib_s
        self._reaches, self._in_sync = reaches, in_sync
        self._copies: dict[str, dict[str, Copy]] = {}
        self._copying: list[Link] = []
        self._last = JUST_CREATED

    # --- copies ---

    def add(self, node: str, disk: DiskSpec, *, is_filled: bool = False) -> Copy:
        """Have a copy, of a disk that was in sync from the beginning or of a new one; the same if it is there."""
        copies = self._copies.setdefault(disk.uuid, {})
        if node not in copies:
            made = copies[node] = Copy(node, disk)
            if is_filled:
                made.is_whole = made.is_consistent = True
                made.generations = [JUST_CREATED + 1]
                self._last = max(self._last, JUST_CREATED + 1)
        return copies[node]

    def remove(self, node: str, disk: DiskSpec) -> None:
        """Have this copy no longer."""
        if (copy := self.find(node, disk)) is not None:
            self.close(copy)
            del self._copies[disk.uuid][node]

    def find(self, node: str, disk: DiskSpec) -> Copy | None:
        """Return the copy on a node."""
        return self.copy_on(node, disk.uuid)

    def copy_on(self, node: str, disk: str) -> Copy | None:
        """Return the copy of a disk, by UUID, on a node."""
        return self._copies.get(disk, {}).get(node)

    def of_node(self, node: str) -> list[Copy]:
        """Return the copies on a node."""
        return [copies[node] for copies in self._copies.values() if node in copies]

    def _other(self, copy: Copy) -> Copy | None:
        copies = self._copies.get(copy.disk.uuid, {})
        return next((copies[one.name] for one in copy.disk.peers if one.name in copies), None)

    # --- opening and closing ---

    def open(self, copy: Copy, disk: DiskSpec, role: DiskRole) -> None:
        """Use a copy in a role; StorageError if it may not be written here."""
        copy.disk = disk
        was_writing = copy.is_writing
        if not was_writing or role is DiskRole.SECONDARY:
            self._count(copy)
            copy.role = DiskRole.SECONDARY
        self.settle([copy])
        if role is DiskRole.SECONDARY:
            return
        if not was_writing:
            self._check_promotion(copy, role)
        copy.role = role
        other = copy.link and self._other(copy)
        if copy.is_new and other and other.is_new and copy.link is not None:
            self._begin_generation(copy)
            copy.is_whole = copy.is_consistent = True
            copy.missed_mib = float(disk.size)
            self._connect(copy, other)
        elif copy.link is None and not was_writing:
            self._write_alone(copy)

    def open_alone(self, copy: Copy, disk: DiskSpec, generation: str, *, force: bool) -> None:
        """Write to a copy without the other one."""
        copy.disk = disk
        copy.role = copy.role or DiskRole.SECONDARY
        self.settle([copy])
        if copy.is_writing:
            return
        if copy.link is None:
            if shown(copy)[:1] != (generation,):
                raise StorageError(f"disk {disk.index}: its data is not of generation {generation}")
            if not (copy.is_whole or force):
                raise StorageError(f"disk {disk.index}: this copy is not up to date")
            copy.is_whole = copy.is_consistent = True
            self._write_alone(copy)
        copy.role = DiskRole.PRIMARY

    def _check_promotion(self, copy: Copy, role: DiskRole) -> None:
        what, other = f"disk {copy.disk.index}", copy.link and self._other(copy)
        if other:
            if other.is_writing and role is not DiskRole.BOTH:
                raise StorageError(f"{what}: {other.node} writes to it")
            if not (copy.is_whole or other.is_whole or (copy.is_new and other.is_new)):
                raise StorageError(f"{what}: no copy is known to have all writes")
            return
        is_dead = all(one.offline for one in copy.disk.peers)
        peers = ", ".join(one.name for one in copy.disk.peers)
        if not is_dead:
            raise StorageError(f"{what}: {peers} does not answer")
        if not copy.is_whole:
            raise StorageError(f"{what}: no copy is known to have all writes; bring {peers} back")

    def close(self, copy: Copy) -> None:
        """Use a copy no longer; also because its node is lost."""
        self._count(copy)
        copy.role, copy.is_dropped = None, False
        self.settle([copy])

    def outdate(self, copy: Copy) -> None:
        """Let a copy know that it lacks writes."""
        if copy.is_writing:
            raise StorageError(f"disk {copy.disk.index}: it is in use")
        copy.is_whole = False

    def discard(self, copy: Copy, disk: DiskSpec) -> None:
        """Give up the writes that only this copy has."""
        copy.disk, copy.role = disk, DiskRole.SECONDARY
        copy.is_dropped, copy.is_discarded = False, True
        if (other := self._other(copy)) is not None:
            other.is_dropped = False
        self.settle([copy])

    # --- the link ---

    def settle_all(self) -> None:
        """Connect and disconnect after nodes or links were lost or are back."""
        self.settle([copy for copies in self._copies.values() for copy in copies.values()])

    def settle(self, copies: Iterable[Copy]) -> None:
        """Connect copies that reach each other, and disconnect others."""
        for copy in copies:
            other = self._other(copy)
            if other is None:
                continue
            may = copy.role and other.role and not (copy.is_dropped or other.is_dropped)
            if may and self._reaches(copy.node, other.node):
                if copy.link is None:
                    self._connect(copy, other)
            elif copy.link is not None:
                self._disconnect(copy.link)

    def _connect(self, one: Copy, other: Copy) -> None:
        for copy in (one, other):
            self._count(copy)
        if one.link is not None:
            self._end(one.link)
        source, target = _direction(one, other)
        if source is None or target is None:
            if one.generations[0] != other.generations[0]:
                one.is_dropped = other.is_dropped = True
                return
            source, target = one, other
            size = 0.0
        else:
            is_known = target.is_consistent and not target.is_discarded
            size = max(source.missed_mib, 1.0) if is_known else float(source.disk.size)
            if not target.is_consistent and source.missed_mib:
                size = source.missed_mib
        target.is_discarded = False
        link = source.link = target.link = Link((source, target), size, size)
        if link.is_copying:
            target.is_whole = target.is_consistent = False
            link.looked_at = _now()
            self._copying.append(link)
            self._share()
        elif source.is_consistent and target.is_consistent:
            source.is_whole = target.is_whole = True
            source.missed_mib = target.missed_mib = 0.0

    def _disconnect(self, link: Link) -> None:
        self._end(link)
        for copy in link.ends:
            copy.link = None
            if copy.is_writing and copy.is_whole:
                self._write_alone(copy)

    def _write_alone(self, copy: Copy) -> None:
        if copy.alone_since is None:
            self._begin_generation(copy)
            copy.alone_since = _now()

    def _begin_generation(self, copy: Copy) -> None:
        self._last += 1
        copy.generations.insert(0, self._last)

    def _count(self, copy: Copy) -> None:
        """Count what was written without the other copy; this has ended."""
        if copy.alone_since is not None:
            written = (_now() - copy.alone_since) * self._writes
            copy.missed_mib = min(copy.missed_mib + written, float(copy.disk.size))
        copy.alone_since = None

    # --- synchronisation ---

    def _end(self, link: Link) -> None:
        """Copy no more; what is left is known."""
        if link.is_copying:
            self._advance(link)
            link.ends[0].missed_mib = link.left_mib
            self._copying.remove(link)
            if link.timer is not None:
                link.timer.cancel()
            link.total_mib = 0.0
            self._share()

    def _share(self) -> None:
        """Let the synchronisations of each node share its rate."""
        busy: dict[str, int] = {}
        for link in self._copying:
            for end in link.ends:
                busy[end.node] = busy.get(end.node, 0) + 1
        loop = asyncio.get_running_loop()
        for link in self._copying:
            self._advance(link)
            link.rate = self._rate / max(busy[end.node] for end in link.ends)
            if link.timer is not None:
                link.timer.cancel()
            link.timer = loop.call_later(link.left_mib / link.rate, self._filled, link)

    def _advance(self, link: Link) -> None:
        now = _now()
        link.left_mib = max(link.left_mib - (now - link.looked_at) * link.rate, 0.0)
        link.looked_at = now

    def _filled(self, link: Link) -> None:
        source, target = link.ends
        link.left_mib, link.looked_at = 0.0, _now()
        self._end(link)
        target.generations = list(source.generations)
        target.is_whole = target.is_consistent = True
        source.missed_mib = target.missed_mib = 0.0
        self._in_sync(target.disk, target.node)

    # --- looking ---

    def status(self, copy: Copy) -> SyncStatus:
        """Return what its node tells of a copy."""
        link = copy.link
        percent = seconds = rate = None
        if link is not None and link.is_copying:
            self._advance(link)
            percent = round(100 * (1 - link.left_mib / link.total_mib), 2)
            seconds, rate = link.left_mib / link.rate, int(link.rate * 1024)
        missed = link.left_mib if link is not None else copy.missed_mib
        return SyncStatus(
            up_to_date=copy.is_whole,
            connected=link is not None,
            percent=percent,
            seconds_left=seconds,
            rate=rate,
            state=_words(copy),
            generations=shown(copy),
            consistent=copy.is_consistent,
            dropped=copy.is_dropped,
            writing=copy.is_writing,
            missed_kib=int(missed * 1024) if copy.is_whole else 0,
        )


def shown(copy: Copy) -> tuple[str, ...]:
    """Return the generations of a copy in DRBD's form."""
    return tuple(f"{one:016X}" for one in copy.generations)


def _direction(one: Copy, other: Copy) -> tuple[Copy | None, Copy | None]:
    """Return the source and the target of a synchronisation; two None if both are the same, or have parted."""
    for source, target in ((one, other), (other, one)):
        if target.is_discarded and source.is_consistent:
            return source, target
    for source, target in ((one, other), (other, one)):
        if source.is_consistent and not target.is_consistent:
            return source, target
    if one.is_consistent:
        for source, target in ((one, other), (other, one)):
            if target.generations[0] in source.generations[1:]:
                return source, target
    return None, None


def _words(copy: Copy) -> str:
    role = "Primary" if copy.is_writing else "Secondary"
    disk = "UpToDate" if copy.is_whole else "Outdated" if copy.is_consistent else "Inconsistent"
    if copy.link is not None:
        return f"{role}, {disk}, Connected"
    return f"{role}, {disk}, {'StandAlone' if copy.is_dropped else 'Connecting'}"


def _now() -> float:
    return asyncio.get_running_loop().time()
