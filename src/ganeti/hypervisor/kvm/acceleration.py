"""The test whether KVM works on this host, by using it.

A device that exists proves little: some hosts accept every guest and run it a thousand times slower than software
emulation would. So a guest of 64 KiB, which only counts, must finish within a few seconds.
"""

import asyncio
import struct
from pathlib import Path

import msgspec

from ganeti.base.errors import HostError, HypervisorError, InputError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.base.process import Run
from ganeti.hypervisor.kvm.runtime import boot_id
from ganeti.model.wire import decode, encode

KVM_DEVICE = Path("/dev/kvm")
PROBE_S = 3.0
PROBE_ROUNDS = 20_000_000
"""Rounds of the counting guest: 20 ms on real KVM, 0.1 s by software emulation."""

_EXIT_PORT = 0xF4
_EXIT_VALUE = 0x10
PROBE_STATUS = _EXIT_VALUE << 1 | 1
"""The exit status that QEMU's isa-debug-exit makes of the guest's value."""

_ROM_SIZE = 0x10000
_ROM_BASE = 0xFFFF0000
_REAL_MODE_AT, _PROTECTED_AT, _TABLE_POINTER_AT, _TABLE_AT = 0x1000, 0x1100, 0x2000, 0x2010
_RESET_AT = 0xFFF0
_FLAT_CODE, _FLAT_DATA = 0x00CF9B000000FFFF, 0x00CF93000000FFFF
_CODE_SELECTOR, _DATA_SELECTOR = 8, 16


class _Known(msgspec.Struct, frozen=True):
    """The result, valid while the host is up."""

    boot_id: str
    program: str
    works: bool


def probe_rom(rounds: int = PROBE_ROUNDS) -> bytes:
    """A firmware image whose code enters protected mode, counts down, and ends the emulator."""
    table = struct.pack("<QQQ", 0, _FLAT_CODE, _FLAT_DATA)
    enter = (
        b"\x66\x2e\x0f\x01\x16" + struct.pack("<H", _TABLE_POINTER_AT)  # lgdt cs:[pointer]
        + b"\x0f\x20\xc0\x66\x83\xc8\x01\x0f\x22\xc0"  # set the lowest bit of cr0
        + b"\x66\xea" + struct.pack("<IH", _ROM_BASE + _PROTECTED_AT, _CODE_SELECTOR)  # far jump
    )  # fmt: skip
    count = (
        b"\x66\xb8" + struct.pack("<H", _DATA_SELECTOR) + b"\x8e\xd8"  # ds: all of memory
        + b"\xbf" + struct.pack("<I", 0x100000)  # edi: 1 MiB
        + b"\xb9" + struct.pack("<I", rounds)  # ecx: rounds
        + b"\x89\x0f\x49\x75\xfb"  # store ecx at [edi], decrement it, until zero
        + bytes((0xB0, _EXIT_VALUE, 0xE6, _EXIT_PORT, 0xF4))  # tell the exit device; halt
    )  # fmt: skip
    rom = bytearray(b"\xf4" * _ROM_SIZE)
    for at, part in (
        (_REAL_MODE_AT, enter),
        (_PROTECTED_AT, count),
        (_TABLE_POINTER_AT, struct.pack("<HI", len(table) - 1, _ROM_BASE + _TABLE_AT)),
        (_TABLE_AT, table),
        (_RESET_AT, b"\xe9" + struct.pack("<H", (_REAL_MODE_AT - _RESET_AT - 3) & 0xFFFF)),
    ):
        rom[at : at + len(part)] = part
    return bytes(rom)


def probe_command(program: str, rom: Path, accelerator: str = "kvm") -> list[str]:
    """Return the words that run the counting guest."""
    return [
        program,
        *("-no-user-config", "-nodefaults", "-display", "none"),
        *("-machine", "pc"),
        *("-accel", accelerator),
        *("-m", "16"),
        *("-device", f"isa-debug-exit,iobase={_EXIT_PORT:#x},iosize=0x04"),
        *("-bios", str(rom).replace(",", ",,")),
    ]


class Acceleration:
    """Chooses between KVM and software emulation; tests the host once per boot."""

    def __init__(self, paths: Paths, run: Run, *, device: Path = KVM_DEVICE) -> None:
        self._paths, self._run, self._device = paths, run, device
        self._one_at_a_time = asyncio.Lock()

    async def choose(self, wanted: str, program: str) -> str:
        """Return `kvm` or `tcg`; HypervisorError if KVM is required and does not work."""
        if wanted == "tcg":
            return "tcg"
        if await self.kvm_works(program):
            return "kvm"
        if wanted == "kvm":
            raise HypervisorError(
                "accelerator=kvm, but a guest does not run under KVM on this node"
                " (see kvm-ok, or the settings of its firmware); accelerator=auto uses software emulation"
            )
        return "tcg"

    async def kvm_works(self, program: str) -> bool:
        """Return whether a guest finishes under KVM."""
        if not self._device.exists():
            return False
        async with self._one_at_a_time:
            known = self._recall()
            if known is None or known.boot_id != boot_id() or known.program != program:
                works = await self.runs_to_its_end(program, "kvm")
                known = _Known(boot_id=boot_id(), program=program, works=works)
                write_atomically(self._cache, encode(known))
            return known.works

    async def runs_to_its_end(self, program: str, accelerator: str) -> bool:
        """Run the counting guest under an accelerator."""
        self._paths.kvm.mkdir(mode=0o700, parents=True, exist_ok=True)
        rom = self._paths.kvm / "probe.rom"
        write_atomically(rom, probe_rom())
        try:
            command = probe_command(program, rom, accelerator)
            done = await self._run(command, timeout_s=PROBE_S, check=False)
        except HostError:
            return False
        finally:
            rom.unlink()
        return done.status == PROBE_STATUS

    @property
    def _cache(self) -> Path:
        return self._paths.kvm / "acceleration"

    def _recall(self) -> _Known | None:
        try:
            return decode(self._cache.read_bytes(), _Known, what=str(self._cache))
        except (FileNotFoundError, InputError):
            return None
