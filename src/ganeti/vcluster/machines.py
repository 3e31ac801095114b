"""A virtual machine that is a node: it can be started, run commands, and lose its power.

It runs under emulation if the processor supports nothing better, with 256 MiB. Its disks: the system and
the code, which it shares with others and never writes; its own state; the disk of its volume group.
"""

import base64
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import ExecError
from ganeti.vcluster.machine_image import MachineImage, make_disk

CPU = "max,-erms,-fsrm,-la57"
"""All that emulation offers, except

- `rep movsb` for whole blocks, which it does byte by byte: copies take three times as long,
- page tables of five levels: with Debian's kernel of November 2026 above QEMU 7.2, systemd sees no mount and no device.
"""
MEMORY_MIB = 288
GUESTS_MIB = 256
"""More memory, for a machine that runs small guests of its own."""
STATE_MIB = 96
BOOT_S = 240.0
CALL_S = 300.0


@dataclass(frozen=True)
class Machine:
    """One machine; `directory` has its disks, its socket, its process id, and the output of its console."""

    directory: Path
    name: str
    address: str
    tap: str
    """The interface of this host that is its network cable; '' if it has none."""
    disk_mib: int
    memory_mib: int = MEMORY_MIB

    @property
    def socket(self) -> Path:
        return self.directory / "agent"

    @property
    def pid_file(self) -> Path:
        return self.directory / "machine.pid"

    @property
    def console(self) -> Path:
        return self.directory / "console"

    def words(self, image: MachineImage) -> list[str]:
        """Return the command line of its QEMU."""
        octets = [int(part) for part in self.address.split(".")]
        mac = "52:54:" + ":".join(f"{octet:02x}" for octet in octets)
        drives = [
            f"file={image.base},format=raw,readonly=on,cache=unsafe",
            f"file={image.code},format=raw,readonly=on,cache=unsafe",
            f"file={self.directory / 'state.disk'},format=raw,cache=unsafe",
            f"file={self.directory / 'volumes.disk'},format=raw,cache=unsafe,discard=unmap",
        ]
        network = (
            [
                *("-netdev", f"tap,id=n0,ifname={self.tap},script=no,downscript=no"),
                *("-device", f"virtio-net-pci,netdev=n0,mac={mac},romfile="),
            ]
            if self.tap
            else []
        )
        append = (
            "console=ttyS0 quiet panic=1 random.trust_cpu=on rdinit=/node-init no_timer_check"
            f" mitigations=off hostname={self.name} address={self.address}"
        )
        return [
            *("qemu-system-x86_64", "-accel", "tcg,thread=single,tb-size=128", "-cpu", CPU),
            *("-M", "q35", "-m", str(self.memory_mib)),
            *("-nodefaults", "-display", "none", "-no-reboot"),
            *("-monitor", "none", "-serial", f"file:{self.console}"),
            *("-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", append),
            *(word for drive in drives for word in ("-drive", f"{drive},if=virtio")),
            *network,
            *("-device", "virtio-serial-pci", "-device", "virtio-rng-pci"),
            *("-chardev", f"socket,id=agent,path={self.socket},server=on,wait=off"),
            *("-device", "virtserialport,chardev=agent,name=ganeti.agent"),
            *("-pidfile", str(self.pid_file), "-daemonize"),
        ]

    def start(self, image: MachineImage) -> None:
        """Switch it on; a new one gets its disks. ExecError."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        state, volumes = self.directory / "state.disk", self.directory / "volumes.disk"
        if not state.exists():
            make_disk(state, STATE_MIB)
        if not volumes.exists():
            with volumes.open("wb") as file:
                file.truncate(self.disk_mib * 2**20)
        self.socket.unlink(missing_ok=True)
        # QEMU empties it, but after it has written its process id: a reader would take old lines for new ones.
        self.console.write_bytes(b"")
        try:
            done = subprocess.run(
                self.words(image), stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except OSError as err:
            raise ExecError(f"qemu-system-x86_64 cannot be run: {err.strerror}") from err
        if done.returncode:
            raise ExecError(f"machine {self.name}: {done.stderr.decode(errors='replace').strip()}")

    @property
    def pid(self) -> int | None:
        """Return the process, if it is on."""
        try:
            pid = int(self.pid_file.read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if str(self.pid_file).encode() in words else None

    def cut_power(self) -> None:
        """Power it off without notice."""
        pid = self.pid
        if pid is None:
            return
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 10
        while self.pid is not None and time.monotonic() < end:
            time.sleep(0.02)

    def agent(self, timeout_s: float = BOOT_S) -> "MachineAgent":
        """Return a connection, once it has booted; ExecError."""
        end = time.monotonic() + timeout_s
        while not self.socket.exists() and time.monotonic() < end:
            time.sleep(0.05)
        channel = socket.socket(socket.AF_UNIX)
        try:
            channel.settimeout(timeout_s)
            channel.connect(str(self.socket))
            return MachineAgent(self, channel, end)
        except (OSError, ExecError) as err:
            channel.close()
            raise ExecError(
                f"machine {self.name} does not answer: {err}\n{self.last_words()}"
            ) from err

    def last_words(self) -> str:
        """Return the end of its console output."""
        try:
            lines = self.console.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-20:])


class MachineAgent:
    """Runs commands in a machine, one at a time."""

    def __init__(self, machine: Machine, channel: socket.socket, end: float) -> None:
        self._machine, self._channel, self._buffer, self._number = machine, channel, b"", 0
        self._wait_ready(end)

    def _wait_ready(self, end: float) -> None:
        """Wait for the boot: a new machine first sends `ready`; one that is up answers a query."""
        while True:
            self._channel.settimeout(2.0)
            try:
                if self.call("true")[0] == 0:
                    return
            except TimeoutError:
                if time.monotonic() > end or self._machine.pid is None:
                    raise ExecError("it does not boot") from None

    def call(self, script: str, timeout_s: float | None = None) -> tuple[int, str]:
        """Run a script; return its status and its output."""
        self._number += 1
        text = base64.b64encode(script.encode()).decode()
        self._channel.sendall(f"{self._number} {text}\n".encode())
        if timeout_s is not None:
            self._channel.settimeout(timeout_s)
        while True:
            words = self._line().split()
            if words[:1] == [str(self._number)]:
                said = base64.b64decode(words[2]).decode(errors="replace") if words[2:] else ""
                return int(words[1]), said

    def run(self, script: str, timeout_s: float = CALL_S) -> str:
        """Run a script that must succeed; return its output. ExecError."""
        status, said = self.call(script, timeout_s)
        if status:
            raise ExecError(
                f"{self._machine.name}: {script!r:.200} ended with {status}: {said.strip()[-1500:]}"
            )
        return said

    def _line(self) -> str:
        while b"\n" not in self._buffer:
            data = self._channel.recv(65536)
            if not data:
                raise ExecError("it was powered off")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    def close(self) -> None:
        self._channel.close()
