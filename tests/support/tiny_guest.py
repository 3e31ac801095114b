"""The small test guest for tests that boot it: built once, installed on disks, listened to."""

import asyncio
import contextlib
import re
import socket
import subprocess
import sys
import uuid
from pathlib import Path

from ganeti.base.process import CLEAN_ENVIRONMENT
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.params import Params
from tests.support.patience import patience, ran

CHECKOUT = Path(__file__).resolve().parents[2]
MIB = 1024 * 1024
RING_AT, RING_SECTORS, SECTOR = 32 * MIB, 1024, 512


def build_tiny_guest() -> Path:
    """The directory with `vmlinuz`, `initrd` and `tiny/`."""
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "guest" / "build.py")],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return Path(done.stdout.splitlines()[-1])


def boot_params(guest: Path, **others: object) -> Params:
    """The hypervisor parameters that boot what `tiny` installs."""
    return hypervisor_defaults("kvm") | {
        "kernel_path": str(guest / "vmlinuz"),
        "initrd_path": str(guest / "initrd"),
        "kernel_args": "quiet " + (guest / "kernel-args").read_text().strip(),
        "root_path": "/dev/vda",
        **others,
    }


def make_disk(path: Path, mib: int = 64) -> Path:
    """A disk of zeros that takes no space."""
    with path.open("wb") as disk:
        disk.truncate(mib * MIB)
    return path


def run_script(
    guest: Path, script: str, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script of the OS definition, as Ganeti does."""
    return ran(
        [str(guest / "tiny" / script), *words],
        env={**CLEAN_ENVIRONMENT, "OS_API_VERSION": "20", **environment},
        limit_s=60,
    )


def install(guest: Path, disk: Path, name: str, **osparams: str) -> None:
    """Run the `create` script on a disk."""
    given = {f"OSP_{key.upper()}": value for key, value in osparams.items()}
    done = run_script(
        guest, "create", INSTANCE_NAME=name, DISK_COUNT="1", DISK_0_PATH=str(disk), **given
    )
    assert done.returncode == 0, done.stderr


def tiny_instance(
    guest: Path, name: str = "web1.example.com", *, template: str = "file", **hvparams: object
) -> InstanceSpec:
    """An instance with one disk, as a node gets it."""
    disk = DiskSpec(
        uuid=str(uuid.uuid4()), index=0, size=64, template=template, logical_id=("file", "x")
    )
    return InstanceSpec(
        name=name,
        uuid=str(uuid.uuid4()),
        hypervisor="kvm",
        os="tiny+default",
        memory=96,
        vcpus=1,
        hvparams=boot_params(guest, **hvparams),
        disk_template=template,
        disks=(disk,),
    )


def said(log: Path) -> str:
    """All of a console log; line ends are plain newlines."""
    return log.read_text(errors="replace") if log.exists() else ""


def power_off(console_socket: Path) -> None:
    """What the guest's user types on its console."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(console_socket))
        client.sendall(b"sync; sleep 1; poweroff -f\n")
        heard = b""
        # QEMU drops what it has not given to the guest when the connection ends: wait for the line's end, too.
        while b"poweroff -f\r" not in heard and (more := client.recv(4096)):
            heard += more


async def wait_for_text(path: Path, pattern: str, timeout_s: float = 60.0) -> re.Match[str]:
    """Wait until a console log has what is looked for."""
    expression = re.compile(pattern)
    text = ""
    try:
        async with asyncio.timeout(timeout_s * patience()):
            while True:
                text = said(path)
                if found := expression.search(text):
                    return found
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(
            f"{pattern!r} did not appear; the console ends {text[-500:]!r}"
        ) from None


def heartbeats(*logs: Path) -> list[int]:
    """The numbers that consoles show, in order; a last line that is being written is left out."""
    joined = "".join(said(log) for log in logs)
    return [int(number) for number in re.findall(r"HEARTBEAT (\d+)\n", joined)]


def disk_heartbeats(disk: Path) -> dict[int, int]:
    """What the guest wrote to its disk: heartbeat -> number of the boot."""
    with disk.open("rb") as file:
        file.seek(RING_AT)
        ring = file.read(RING_SECTORS * SECTOR)
    records = [ring[at : at + SECTOR] for at in range(0, len(ring), SECTOR)]
    found = [record.rstrip(b"\0").split() for record in records if record.strip(b"\0")]
    return {int(beat): int(boot) for beat, boot in found}


def are_consecutive(numbers: list[int]) -> bool:
    """Whether nothing is missing, doubled or out of order."""
    return numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else False


def open_files(pid: int) -> list[str]:
    """What the open descriptors of a process lead to."""
    targets = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.append(str(entry.readlink()))
    return targets
