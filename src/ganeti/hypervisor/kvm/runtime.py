"""A node's data about each running guest: one durable record, sockets and logs.

The record is written before QEMU is started, so that no crash of the node daemon leaves a guest without a record. A
record without a process id is completed by a search for a process with its exact words.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ganeti.base.errors import HypervisorError, InputError
from ganeti.base.files import sync_directory, write_atomically
from ganeti.base.paths import Paths
from ganeti.base.process_table import PROC, ProcessId
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.wire import decode, encode
from ganeti.rpc.procedures.instances import Lowered

SOCKET_PATH_LIMIT = 107
"""The kernel's limit in bytes for the name of a unix socket."""
SHORT_UUID = 13
"""Characters of an instance's UUID in the names of its files: socket names must be short."""
LOG_LIMIT = 16 * 1024 * 1024
"""Bytes of each log of a guest; a guest must not fill the node's disk."""
LOG_KEPT = 1024 * 1024


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One guest on this node; `pid` 0 requires a search for its process."""

    instance: InstanceSpec
    argv: tuple[str, ...]
    accelerator: str
    boot_id: str
    machine: str = ""
    """QEMU's full name of the virtual hardware."""
    qemu_version: str = ""
    taps: tuple[str, ...] = ()
    pool_uid: int = 0
    """Its user id from the pool; 0 if it has none."""
    tpm_argv: tuple[str, ...] = ()
    """The words of its TPM's process, if it has one."""
    tpm_pid: int = 0
    tpm_start_ticks: int = 0
    slots: dict[str, int] = msgspec.field(name="places", default_factory=dict)
    """UUID of a disk or NIC -> its slot (`ganeti.hypervisor.kvm.pci_slots`); existing records use this name."""
    added_cpus: tuple[int, ...] = ()
    """The positions of processors added since its start (`ganeti.hypervisor.kvm.processors`)."""
    memory: int = 0
    """MiB that the running guest still has; 0: all of its memory at the start."""
    lowered: Lowered | None = None
    """That the node has taken memory from the guest (`ganeti.hypervisor.kvm.shares`)."""
    is_adopted: bool = False
    """True if upstream has started it (`ganeti.hypervisor.kvm.adoption`), so its devices have other names."""
    is_prepared: bool = False
    """True once QEMU got all commands that must precede the guest's first instruction."""
    is_incoming: bool = False
    """True while it waits for a guest from another node, or has it and has not resumed it."""
    resume: bool = True
    """True if an incoming guest was running on its former node."""
    stopped_to_move: bool = False
    """True if a running guest is paused for a move."""
    thaw_at: float = 0
    """The latest time at which frozen file systems of the guest are thawed (seconds since the epoch).

    0: none are frozen.
    """
    resume_at: float = 0
    """The latest time at which a guest that is held for snapshots continues; 0: it is not held."""
    is_saved: bool = False
    """True while its memory is written to a file: if that is interrupted, it must continue."""
    is_restored: bool = False
    """True if it was loaded from a file and has not continued yet, so that its clock is that of its moment."""
    port: int = 0
    """The address for an incoming guest."""
    disks_port: int = 0
    """The address for its disks."""
    certificate: str = ""
    """The certificate for the guest's node (PEM)."""
    pid: int = 0
    start_ticks: int = 0

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.start_ticks)


@dataclass(frozen=True)
class GuestFiles:
    """The runtime files of one guest."""

    directory: Path
    logs: Path
    short_uuid: str

    @classmethod
    def of(cls, paths: Paths, instance_uuid: str) -> "GuestFiles":
        """Return this node's files of an instance."""
        return cls(paths.kvm, paths.log / "kvm", instance_uuid[:SHORT_UUID])

    @property
    def record(self) -> Path:
        return self.directory / f"{self.short_uuid}.json"

    @property
    def monitor(self) -> Path:
        """The control socket of the driver."""
        return self.directory / f"{self.short_uuid}.m"

    @property
    def people_monitor(self) -> Path:
        """A second control socket, for people: QEMU serves one client at a time on each."""
        return self.directory / f"{self.short_uuid}.q"

    @property
    def console(self) -> Path:
        return self.directory / f"{self.short_uuid}.s"

    @property
    def guest_agent(self) -> Path:
        """The socket of QEMU's agent in the guest, if there is one."""
        return self.directory / f"{self.short_uuid}.a"

    @property
    def tpm(self) -> Path:
        """The socket at which the guest's TPM waits for QEMU."""
        return self.directory / f"{self.short_uuid}.t"

    @property
    def moment(self) -> Path:
        """The socket at which QEMU shows the disks as they were at one moment, during a backup."""
        return self.directory / f"{self.short_uuid}.b"

    @property
    def chroot(self) -> Path:
        """The root directory of a confined QEMU."""
        return self.directory / f"{self.short_uuid}.root"

    @property
    def console_log(self) -> Path:
        """The output of the guest's console; kept after the guest's end."""
        return self.logs / f"{self.short_uuid}.console"

    @property
    def qemu_log(self) -> Path:
        """The output of QEMU; kept after the guest's end."""
        return self.logs / f"{self.short_uuid}.log"

    @property
    def sockets(self) -> tuple[Path, ...]:
        return (
            self.monitor,
            self.people_monitor,
            self.console,
            self.guest_agent,
            self.tpm,
            self.moment,
        )

    def check_lengths(self) -> None:
        """Raise HypervisorError if a socket's name is too long for the kernel."""
        longest = max(len(os.fsencode(path)) for path in self.sockets)
        if longest > SOCKET_PATH_LIMIT:
            raise HypervisorError(
                f"the names of sockets in {self.directory} would have {longest} bytes, but the kernel's"
                f" limit is {SOCKET_PATH_LIMIT}; use a directory with a shorter name (GANETI_ROOTDIR)"
            )

    def prepare(self) -> None:
        """Make the directories and empty logs, accessible to root only; remove old sockets."""
        for directory in (self.directory, self.logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        for log in (self.console_log, self.qemu_log):
            log.unlink(missing_ok=True)
            log.touch(mode=0o600)
        self.remove_sockets()

    def restrict(self) -> None:
        """Restrict the sockets to root, whatever umask QEMU had."""
        for path in self.sockets:
            with contextlib.suppress(FileNotFoundError):
                path.chmod(0o600)

    def remove_sockets(self) -> None:
        for path in self.sockets:
            path.unlink(missing_ok=True)

    def write(self, record: Record) -> None:
        """Make `record` durable."""
        write_atomically(self.record, encode(record))

    def read(self) -> Record | None:
        """Return the record, or None; HypervisorError if it is damaged."""
        try:
            data = self.record.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return decode(data, Record, what=str(self.record))
        except InputError as err:
            raise HypervisorError(
                f"the record of a guest is damaged ({err}); look for its QEMU process, end it,"
                f" and remove {self.record}"
            ) from err

    def forget(self) -> None:
        """Remove the record and the sockets; the logs are kept."""
        self.remove_sockets()
        if self.record.exists():
            self.record.unlink()
            sync_directory(self.directory)

    def qemu_said(self, limit: int = 800) -> str:
        """Return the end of QEMU's own log, for an error message."""
        try:
            return self.qemu_log.read_text(errors="replace")[-limit:].strip()
        except FileNotFoundError:
            return ""

    def shorten_logs(self) -> None:
        """Keep only the end of each large log; QEMU continues to append."""
        for log in (self.console_log, self.qemu_log):
            with contextlib.suppress(FileNotFoundError):
                _shorten(log)


def _shorten(path: Path) -> None:
    if path.stat().st_size <= LOG_LIMIT:
        return
    with path.open("r+b") as log:
        log.seek(-LOG_KEPT, os.SEEK_END)
        end = log.read(LOG_KEPT)
        log.truncate(0)
    # Through O_APPEND like QEMU itself, so that neither overwrites the other.
    with path.open("ab") as log:
        log.write(end)


def all_guest_files(paths: Paths) -> Iterator[GuestFiles]:
    """Return the files of every guest that has a record here."""
    if paths.kvm.is_dir():
        for path in sorted(paths.kvm.glob("*.json")):
            yield GuestFiles.of(paths, path.stem)


def boot_id() -> str:
    """Return a value that changes when the host is booted: processes of an earlier boot are gone."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()
