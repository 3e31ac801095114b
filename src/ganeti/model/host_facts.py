"""What a host reports about itself before it may run instances: the question, the facts, and the findings."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec


class HostQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a host that a cluster uses; the defaults are those of a host that is in no cluster."""

    runs_kvm: bool = True
    kvm_path: str = ""
    """The configured QEMU program; '' for the program that the `PATH` has."""
    volume_group: str = ""
    """'' if no disk template needs one."""
    uses_drbd: bool = False
    directories: tuple[str, ...] = ()
    """Directories of disks and of the daemons whose free space matters."""
    links: tuple[str, ...] = ()
    """Network interfaces to which guests are connected."""
    ports: tuple[int, ...] = ()
    """TCP ports that must be free, because no daemon of the cluster runs yet."""


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """The file system of a directory, in MiB."""

    total: int
    free: int
    kind: str = ""
    """For example ext4 or tmpfs."""
    exists: bool = True
    """False: the values are those of the nearest directory above that exists."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface of the host."""

    is_bridge: bool
    is_up: bool
    mtu: int


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one host; a text `…_problem` is '' if the examination found none."""

    name: str
    name_addresses: tuple[str, ...] | None = None
    """Addresses to which the host's own name resolves; None in a virtual cluster, whose names are not the host's."""
    system: str = ""
    """For example `Debian GNU/Linux 12 (bookworm)`."""
    kernel: str = ""
    memory_mib: int = 0
    cpus: int = 0
    cpu_model: str = ""
    cpu_flags: tuple[str, ...] = ()
    uncorrected_memory_errors: int = 0
    degraded_raids: tuple[str, ...] = ()
    is_clock_synchronised: bool | None = None
    """None if the kernel does not tell."""
    time_service: str = ""
    """The running program that sets the clock."""
    filters_bridges: bool = False
    """The host's packet filter also sees the frames of guests on bridges."""
    links: dict[str, Link] = {}
    spaces: dict[str, Space] = {}
    ports_in_use: tuple[int, ...] = ()
    kvm_problem: str = ""
    """Why the kernel's virtualisation cannot be used."""
    qemu_version: str = ""
    qemu_problem: str = ""
    has_tun: bool = True
    has_vhost_net: bool = True
    volume_groups: dict[str, int] = {}
    """Volume group -> free MiB."""
    lvm_problem: str = ""
    drbd_version: str = ""
    drbd_problem: str = ""
    has_systemd: bool = False
    disabled_units: tuple[str, ...] = ()
    """Units of this implementation that are installed and do not start with the host."""


class Level(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """Guests cannot run, or data is at risk."""
    WARNING = "warning"
    """Something works worse than it could, or will fail later."""
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of an examination: about which host, what, and the command that repairs it."""

    host: str
    """'' for a finding about several hosts together."""
    area: str
    """`host`, `network`, `time`, `storage` or `virtualisation`."""
    level: Level
    code: str
    """A stable name for programs, for example `clock-not-synchronised`."""
    text: str
    command: str = ""
    """The command to run as root on the host; '' if no command repairs it."""
