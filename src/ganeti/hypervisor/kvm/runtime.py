"""What a node keeps about each guest while it runs: one durable record, sockets and logs.

The record is written before QEMU is started, so that no crash of the node daemon leaves a guest
that has no record: a record without a process id is completed by looking for a process with
its very words.
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
from ganeti.hypervisor.kvm.processes import PROC, ProcessId
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.wire import decode, encode

SOCKET_PATH_LIMIT = 107
"""Bytes that the kernel leaves for the name of a unix socket."""
SHORT_UUID = 13
"""Characters of an instance's UUID in the names of its files: socket names must be short."""
LOG_LIMIT = 16 * 1024 * 1024
"""Bytes of each log of a guest; a guest must not fill the node's disk."""
LOG_KEPT = 1024 * 1024


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One guest on this node; `pid` 0 means that its process has to be looked for."""

    instance: InstanceSpec
    argv: tuple[str, ...]
    accelerator: str
    boot_id: str
    machine: str = ""
    """QEMU's full name of the virtual hardware."""
    qemu_version: str = ""
    taps: tuple[str, ...] = ()
    pool_uid: int = 0
    """The user id that it has from the pool; 0 without one."""
    tpm_argv: tuple[str, ...] = ()
    """The words of its TPM's process, where it has one."""
    tpm_pid: int = 0
    tpm_start_ticks: int = 0
    slots: dict[str, int] = msgspec.field(name="places", default_factory=dict)
    """UUID of a disk or NIC -> its slot (`ganeti.hypervisor.kvm.pci_slots`); the name is that of records of running guests."""
    memory: int = 0
    """MiB that were left to the running guest; 0: all that it was started with."""
    is_adopted: bool = False
    """Upstream has started it (`ganeti.hypervisor.kvm.adoption`), so its devices have other names."""
    is_prepared: bool = False
    """Got all commands that must come before the guest's first instruction."""
    is_incoming: bool = False
    """Waits for a guest from another node, or has it and was not resumed yet."""
    resume: bool = True
    """Whether a guest that came was running where it came from."""
    stopped_to_move: bool = False
    """A guest that ran stands still because it is being moved."""
    thaw_at: float = 0
    """The latest time at which frozen file systems of the guest are thawed (seconds since the epoch); 0: none are frozen."""
    port: int = 0
    """Where an incoming guest is waited for."""
    disks_port: int = 0
    """Where its disks are waited for."""
    certificate: str = ""
    """What it shows to the guest's node (PEM)."""
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
        """Return where this node keeps the files of an instance."""
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
        """The way to QEMU's agent in the guest, where there is one."""
        return self.directory / f"{self.short_uuid}.a"

    @property
    def tpm(self) -> Path:
        """Where the guest's TPM waits for QEMU."""
        return self.directory / f"{self.short_uuid}.t"

    @property
    def chroot(self) -> Path:
        """What a confined QEMU sees as the root of all files."""
        return self.directory / f"{self.short_uuid}.root"

    @property
    def console_log(self) -> Path:
        """Everything that the guest said; stays when the guest ends."""
        return self.logs / f"{self.short_uuid}.console"

    @property
    def qemu_log(self) -> Path:
        """What QEMU itself said; stays when the guest ends."""
        return self.logs / f"{self.short_uuid}.log"

    @property
    def sockets(self) -> tuple[Path, ...]:
        return (self.monitor, self.people_monitor, self.console, self.guest_agent, self.tpm)

    def check_lengths(self) -> None:
        """HypervisorError if a socket's name is too long for the kernel."""
        longest = max(len(os.fsencode(path)) for path in self.sockets)
        if longest > SOCKET_PATH_LIMIT:
            raise HypervisorError(
                f"the names of sockets in {self.directory} would have {longest} bytes, and the kernel"
                f" takes {SOCKET_PATH_LIMIT}; use a directory with a shorter name (GANETI_ROOTDIR)"
            )

    def prepare(self) -> None:
        """Make the directories and empty logs, for root's eyes only; old sockets go."""
        for directory in (self.directory, self.logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        for log in (self.console_log, self.qemu_log):
            log.unlink(missing_ok=True)
            log.touch(mode=0o600)
        self.remove_sockets()

    def restrict(self) -> None:
        """Close the sockets to everybody but root, whatever umask QEMU had."""
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
        """The record, or None; HypervisorError if it is damaged."""
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
        """Remove the record and the sockets; the logs stay."""
        self.remove_sockets()
        if self.record.exists():
            self.record.unlink()
            sync_directory(self.directory)

    def qemu_said(self, limit: int = 800) -> str:
        """The end of QEMU's own log, for an error message."""
        try:
            return self.qemu_log.read_text(errors="replace")[-limit:].strip()
        except FileNotFoundError:
            return ""

    def shorten_logs(self) -> None:
        """Keep the end of each log that has grown too big; QEMU keeps appending."""
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
    """The files of every guest that has a record here."""
    if paths.kvm.is_dir():
        for path in sorted(paths.kvm.glob("*.json")):
            yield GuestFiles.of(paths, path.stem)


def boot_id() -> str:
    """Changes when the host is booted: processes of an earlier boot are gone."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()
