"""DRBD's reports about its devices: `drbdsetup events2`, `drbdsetup show`, `/proc/drbd`, and its metadata; pure."""

import re
import struct
from dataclasses import dataclass, replace

from ganeti.storage.drbd.commands import values

UP_TO_DATE = "UpToDate"
OUTDATED = "Outdated"
CONSISTENT = "Consistent"
INCONSISTENT = "Inconsistent"
DISKLESS = "Diskless"
FAILED = "Failed"
UNKNOWN = "DUnknown"
FENCING = "fencing"
CONNECTED = "Connected"
STAND_ALONE = "StandAlone"
PRIMARY = "Primary"
SETTLED = frozenset(
    (
        *("Established", "SyncSource", "SyncTarget", "PausedSyncS", "PausedSyncT"),
        *("VerifyS", "VerifyT", "Ahead", "Behind"),
    )
)
"""States of replication in which the two nodes know of each other's data."""
SYNCHRONISING = SETTLED - {"Established", "VerifyS", "VerifyT"}

_MINOR = re.compile(r"\s*(\d+): cs:")
_SYNC = re.compile(r"sync'ed:\s*([\d.]+)%")
_SPEED = re.compile(r"finish:\s*(\d+):(\d+):(\d+)\s+speed:\s*([\d,]+)")
_ADDRESS = re.compile(r"address\s+ipv[46]\s+\[?([0-9a-fA-F.:]+?)\]?:(\d+);")
_DISK = re.compile(r'^\s+(disk|meta-disk)\s+"([^"]*)";', re.MULTILINE)
_SUPERBLOCK = struct.Struct(">QQQQQQQIII")
MAGIC = (0x8374026B, 0x8374026C)
"""Metadata of 8.4 after a clean shutdown, or without one."""
SUPERBLOCK_SIZE = 4096
JUST_CREATED = f"{4:016X}"
"""The generation of data that was never written."""
_CONSISTENT, _WAS_UP_TO_DATE = 1 << 0, 1 << 4
"""Flags of the metadata."""


@dataclass(frozen=True)
class Resource:
    """One resource with its one device and its one peer, as this node sees it."""

    name: str
    role: str = "Secondary"
    minor: int | None = None
    disk: str = DISKLESS
    size_kib: int = 0
    connection: str = STAND_ALONE
    peer_role: str = "Unknown"
    peer_disk: str = UNKNOWN
    replication: str = "Off"
    out_of_sync_kib: int = 0
    waits: bool = False
    """Writes wait because the peer is lost."""

    @property
    def has_peer(self) -> bool:
        """True if its peer gets every write, and keeps it: its copy is complete, or is being completed."""
        return self.settled and self.peer_disk not in (DISKLESS, FAILED, UNKNOWN)

    @property
    def is_mirrored(self) -> bool:
        """True if both copies have all data."""
        return self.settled and (self.disk, self.peer_disk) == (UP_TO_DATE, UP_TO_DATE)

    @property
    def attached(self) -> bool:
        return self.disk != DISKLESS

    @property
    def consistent(self) -> bool:
        """True if its data is that of one moment."""
        return self.disk in (UP_TO_DATE, OUTDATED, CONSISTENT)

    @property
    def settled(self) -> bool:
        """True if it is connected, and has compared its data with its peer's."""
        return self.connection == CONNECTED and self.replication in SETTLED

    @property
    def synchronising(self) -> bool:
        return self.replication in SYNCHRONISING

    @property
    def words(self) -> str:
        """The state in words for people."""
        own = f"{self.role}, {self.disk}"
        if self.connection != CONNECTED:
            return f"{own}, {self.connection}"
        return f"{own}, peer {self.peer_role}, {self.peer_disk}, {self.replication}"


def parse_events(text: str) -> dict[str, Resource]:
    """Return all resources by their names."""
    found: dict[str, Resource] = {}
    for line in text.splitlines():
        what, _, rest = line.partition(" ")
        kind, _, rest = rest.partition(" ")
        told = values(rest)
        name = told.get("name")
        if what != "exists" or name is None:
            continue
        one = found.get(name, Resource(name))
        if kind == "resource":
            waits = FENCING in told.get("suspended", "").split(",")
            one = replace(one, role=told.get("role", one.role), waits=waits)
        elif kind == "connection":
            one = replace(
                one,
                connection=told.get("connection", STAND_ALONE),
                peer_role=told.get("role", "Unknown"),
            )
        elif kind == "device":
            one = replace(
                one,
                minor=_number(told.get("minor"), None),
                disk=told.get("disk", DISKLESS),
                size_kib=_number(told.get("size"), 0) or 0,
            )
        elif kind == "peer-device":
            one = replace(
                one,
                replication=told.get("replication", "Off"),
                peer_disk=told.get("peer-disk", UNKNOWN),
                out_of_sync_kib=_number(told.get("out-of-sync"), 0) or 0,
            )
        found[name] = one
    return found


def _number(text: str | None, default: int | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else default


@dataclass(frozen=True)
class Settings:
    """The settings of a resource."""

    data: str = ""
    meta: str = ""
    own: tuple[str, int] | None = None
    peer: tuple[str, int] | None = None
    two_primaries: bool = False


def parse_show(text: str) -> Settings:
    """Return the settings of the one resource in the text; its secret is skipped."""
    disks = dict(_DISK.findall(text))
    ends: dict[str, tuple[str, int]] = {}
    for host in ("_this_host", "_remote_host"):
        _, _, section = text.partition(host)
        other = section.find("_remote_host" if host == "_this_host" else "_this_host")
        if match := _ADDRESS.search(section if other < 0 else section[:other]):
            ends[host] = (match[1], int(match[2]))
    return Settings(
        data=disks.get("disk", ""),
        meta=disks.get("meta-disk", ""),
        own=ends.get("_this_host"),
        peer=ends.get("_remote_host"),
        two_primaries=re.search(r"allow-two-primaries\s+yes;", text) is not None,
    )


@dataclass(frozen=True)
class Progress:
    """The progress of a synchronisation; rate in KiB/s."""

    percent: float
    seconds_left: float | None = None
    rate: int | None = None


def parse_progress(text: str, minor: int) -> Progress | None:
    """Return the progress of a minor in `/proc/drbd`; None if there is none."""
    found: Progress | None = None
    is_own = False
    for line in text.splitlines():
        if match := _MINOR.match(line):
            is_own = int(match[1]) == minor
        elif is_own and (match := _SYNC.search(line)):
            found = Progress(float(match[1]))
        elif is_own and found is not None and (match := _SPEED.search(line)):
            hours, minutes, seconds = (int(match[at]) for at in (1, 2, 3))
            rate = int(match[4].replace(",", ""))
            found = Progress(found.percent, hours * 3600.0 + minutes * 60 + seconds, rate)
    return found


def parse_protocol(text: str, minor: int) -> str:
    """Return the protocol of a minor's connection in `/proc/drbd`; '' if it is not there."""
    for line in text.splitlines():
        if (match := _MINOR.match(line)) and int(match[1]) == minor:
            words = line.split()
            return words[4] if len(words) > 4 else ""  # noqa: PLR2004 - minor, cs, ro, ds, protocol
    return ""


@dataclass(frozen=True)
class Superblock:
    """The content of metadata on a volume that is not in use."""

    size_sectors: int
    """The size that both nodes agreed on; 0 if it was never used."""
    generations: tuple[str, ...] = ()
    consistent: bool = False
    up_to_date: bool = False
    """True if the copy had all data when it was last in use."""


def parse_superblock(block: bytes) -> Superblock | None:
    """Read metadata; None if it is not of 8.4."""
    if len(block) < _SUPERBLOCK.size:
        return None
    size, *found, _device, _reserved, flags, magic, _md_size = _SUPERBLOCK.unpack_from(block)
    if magic not in MAGIC:
        return None
    consistent = bool(flags & _CONSISTENT)
    up_to_date = consistent and bool(flags & _WAS_UP_TO_DATE)
    return Superblock(size, tuple(map(_generation, found)), consistent, up_to_date)


def _generation(number: int) -> str:
    """The lowest bit only tells whether the node is primary."""
    return f"{number & ~1:016X}"


def parse_generations(text: str) -> tuple[str, ...]:
    """Return the generation of the data on this node, and its ancestors, as `drbdsetup get-gi` prints them."""
    found = []
    for word in text.strip().split(":")[:4]:
        if not re.fullmatch(r"[0-9A-Fa-f]{16}", word):
            return ()
        found.append(_generation(int(word, 16)))
    return tuple(found)
