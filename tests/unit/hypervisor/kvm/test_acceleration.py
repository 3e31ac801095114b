"""The choice between KVM and emulation."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Completed
from ganeti.hypervisor.kvm.acceleration import PROBE_STATUS, Acceleration, probe_command, probe_rom


class Host:
    """Answers every probe alike, and counts."""

    def __init__(self, status: int | None) -> None:
        self.status = status
        self.commands: list[list[str]] = []

    async def __call__(
        self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: bytes | None = None,
        env: Mapping[str, str] | None = None, check: bool = True,
    ) -> Completed:  # fmt: skip
        self.commands.append(list(argv))
        done = Completed(tuple(argv), self.status or 0, b"", b"")
        if self.status is None:
            raise CommandFailed(done, "did not end within 3 s and was killed")
        return done


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "kvm"
    path.touch()
    return path


@pytest.mark.parametrize(
    ("status", "chosen"), [(PROBE_STATUS, "kvm"), (None, "tcg"), (1, "tcg"), (0, "tcg")]
)
async def test_kvm_is_chosen_only_where_a_guest_reaches_its_end(
    tmp_path: Path, device: Path, status: int | None, chosen: str
) -> None:
    host = Host(status)
    acceleration = Acceleration(Paths(tmp_path), host, device=device)
    assert await acceleration.choose("auto", "qemu") == chosen
    assert await Acceleration(Paths(tmp_path), host, device=device).choose("auto", "qemu") == chosen
    assert len(host.commands) == 1  # remembered
    await acceleration.choose("auto", "other-qemu")
    assert len(host.commands) == 2


async def test_without_the_device_nothing_is_tried(tmp_path: Path) -> None:
    host = Host(PROBE_STATUS)
    acceleration = Acceleration(Paths(tmp_path), host, device=tmp_path / "none")
    assert await acceleration.choose("auto", "qemu") == "tcg"
    assert await acceleration.choose("tcg", "qemu") == "tcg"
    with pytest.raises(HypervisorError, match="accelerator=auto"):
        await acceleration.choose("kvm", "qemu")
    assert host.commands == []


async def test_a_damaged_memory_is_recreated(tmp_path: Path, device: Path) -> None:
    host = Host(PROBE_STATUS)
    acceleration = Acceleration(Paths(tmp_path), host, device=device)
    assert await acceleration.kvm_works("qemu")
    (Paths(tmp_path).kvm / "acceleration").write_text("{")
    assert await acceleration.kvm_works("qemu")
    assert len(host.commands) == 2


def test_the_counting_guest_starts_where_a_processor_starts() -> None:
    rom = probe_rom(1)
    assert len(rom) == 0x10000
    jump = int.from_bytes(rom[0xFFF1:0xFFF3], "little")
    assert rom[0xFFF0] == 0xE9
    assert (0xFFF3 + jump) & 0xFFFF == 0x1000
    words = probe_command("qemu", Path("/a,b"))
    assert words[words.index("-bios") + 1] == "/a,,b"
