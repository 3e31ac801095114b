"""Backups booted by a real QEMU in its confinement, with the real kernel of the tiny guest."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import HostError
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.names import ProofState
from ganeti.node.backups import drill
from ganeti.node.backups.directory import opened
from ganeti.node.backups.drill import DrillOrder
from ganeti.node.backups.proofs import read_proof
from ganeti.node.carrier.progress import ProgressFile
from ganeti.protocols.backup_encryption import NO_KEYS, BackupKeyring
from ganeti.protocols.backup_proof import judged
from ganeti.rpc.procedures.drills import DrillArgs, DrillResult
from tests.support.backup_store import BLOCK, BackupStore, keyring
from tests.support.kvm_nodes import Node
from tests.support.patience import patience
from tests.support.tiny_guest import install, make_disk, tiny_instance

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(300),
    pytest.mark.requirement("G11", "A51", "A52"),
]

READY = "GANETI-TINY READY"


@pytest.fixture
def store(tmp_path: Path) -> BackupStore:
    return BackupStore(tmp_path / "backups", tmp_path)


@pytest.fixture
def instance(guest: Path) -> InstanceSpec:
    return tiny_instance(guest)


@dataclass
class Watching(ProgressFile):
    """Looks at QEMU while the guest boots."""

    log: Path
    look: Callable[[int], None]
    seen: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.log)

    def of_part(self, part: str, done: int, total: int, *, is_time: bool = False) -> None:
        super().of_part(part, done, total, is_time=is_time)
        if is_time:
            for pid in children(os.getpid()):
                if b"qemu-system" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
                    self.seen.append(pid)
                    self.look(pid)


def children(parent: int) -> list[int]:
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(one) for one in found]


async def order(
    node: Node, store: BackupStore, instance: InstanceSpec, **fields: Any
) -> DrillOrder:
    given: dict[str, Any] = {
        "target": "/srv/ganeti/backup", "instance_name": instance.name, "point": store.names()[-1],
        "hypervisor": "kvm", "hvparams": instance.hvparams, "vcpus": 1, "memory": instance.memory,
        "less_memory": True, "expect": READY, "agent": False, "timeout_s": 60.0 * patience(),
    }  # fmt: skip
    args = DrillArgs(**{**given, **fields})
    drills = node.driver.options.drills
    assert drills is not None
    equipment = await drills.equipment(args.hvparams)
    return DrillOrder(
        args=args,
        directory=str(store.path),
        root=str(store.work / "root"),
        locks=str(store.work / "locks"),
        program=equipment.program,
        accelerator=equipment.accelerator,
        device=equipment.device,
    )


def run(wanted: DrillOrder, store: BackupStore, look: Callable[[int], None] | None = None) -> DrillResult:  # fmt: skip
    watching = Watching(store.work / "log", look or (lambda _pid: None))
    found = drill.run(wanted, watching)
    assert not [pid for pid in watching.seen if Path(f"/proc/{pid}").exists()]
    assert [one.name for one in wanted.work.iterdir()] == ["empty"]
    assert list((store.work / "locks").iterdir()) == []
    return found


def state(store: BackupStore) -> ProofState:
    with opened(store.path) as directory:
        point = directory.contents().find(store.names()[-1])
        return judged(read_proof(directory, point), point).state


def confined(pid: int) -> None:
    """QEMU has no privileges, no network, and no file of the host."""
    facts = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    assert len(set(facts["Uid"].split())) == 1
    assert facts["Uid"].split()[0] not in ("0", str(os.getuid()))
    assert facts["CapEff"] == "0" * 16
    assert facts["NoNewPrivs"] == "1"
    assert facts["Seccomp"] == "2"
    assert Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()


@pytest.mark.parametrize("keys", [NO_KEYS, keyring(instance="backups")], ids=["plain", "encrypted"])
async def test_good_backup_boots_and_does_not_change(
    node: Node,
    guest: Path,
    disk: Path,
    store: BackupStore,
    instance: InstanceSpec,
    keys: BackupKeyring,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.keys = keys
    monkeypatch.setattr(drill, "received_keys", lambda: keys)
    install(guest, disk, instance.name)
    store.save(disk.read_bytes())
    with disk.open("r+b") as file:
        file.seek(20 << 20)
        file.write(b"x" * BLOCK)
    store.save(disk.read_bytes())
    looked = list[int]()

    def look(pid: int) -> None:
        if not looked and b"-sandbox" in Path(f"/proc/{pid}/cmdline").read_bytes():
            confined(pid)
            looked.append(pid)

    found = run(await order(node, store, instance), store, look)
    assert (found.problem, found.seen, found.unrecorded) == ("", READY, "")
    assert any(READY in line for line in found.lines)  # the kernel writes there, too
    assert looked
    assert state(store) is ProofState.GOOD
    store.verify()
    assert await node.driver.running() == []
    assert not node.files(instance).record.exists()


async def test_agent_of_the_guest_is_a_sign_of_life(
    node: Node, guest: Path, disk: Path, store: BackupStore, instance: InstanceSpec
) -> None:
    install(guest, disk, instance.name)
    store.save(disk.read_bytes())
    found = run(await order(node, store, instance, agent=True), store)
    assert (found.problem, found.seen) == ("", "the answer of the agent")
    assert state(store) is ProofState.GOOD


async def test_backup_without_a_system_fails_with_the_last_lines_of_its_console(
    node: Node, store: BackupStore, instance: InstanceSpec
) -> None:
    empty = make_disk(store.work / "empty-disk")
    store.save(empty.read_bytes())
    found = run(await order(node, store, instance), store)
    assert "the console ends: " in found.problem
    assert any("GANETI-TINY FAILED" in line for line in found.lines)
    assert state(store) is ProofState.FAILED


async def test_disk_without_a_boot_loader_fails_with_the_words_of_the_firmware(
    node: Node, store: BackupStore, instance: InstanceSpec
) -> None:
    store.save(make_disk(store.work / "empty-disk").read_bytes())
    hvparams = {**instance.hvparams, "kernel_path": "", "initrd_path": ""}
    wanted = await order(node, store, instance, hvparams=hvparams, timeout_s=15.0 * patience())
    found = run(wanted, store)
    assert "without 'GANETI-TINY READY'" in found.problem
    assert "not a bootable disk" in " ".join(found.lines)
    assert state(store) is ProofState.FAILED


@pytest.mark.parametrize("kind", ["scsi", "ide"])
async def test_other_buses_boot(
    node: Node, guest: Path, disk: Path, store: BackupStore, instance: InstanceSpec, kind: str
) -> None:
    install(guest, disk, instance.name)
    store.save(disk.read_bytes())
    hvparams = {**instance.hvparams, "disk_type": kind, "root_path": "/dev/sda"}
    found = run(await order(node, store, instance, hvparams=hvparams), store)
    assert (found.problem, found.seen) == ("", READY)


async def test_parameters_that_qemu_refuses_are_no_fault_of_the_backup(
    node: Node, store: BackupStore, instance: InstanceSpec
) -> None:
    store.save(b"x" * BLOCK)
    wanted = await order(node, store, instance, hvparams={"machine_version": "pc-i440fx-99"})
    with pytest.raises(HostError, match="QEMU ended with status"):
        run(wanted, store)
    assert state(store) is ProofState.UNPROVEN


async def test_uefi_firmware_begins_with_new_variables(
    node: Node, store: BackupStore, instance: InstanceSpec
) -> None:
    store.save(make_disk(store.work / "empty-disk").read_bytes())
    hvparams = {"firmware": "uefi", "machine_version": "q35"}
    # Without a loader on the disk, it says that nothing can be booted.
    wanted = await order(
        node, store, instance, hvparams=hvparams, memory=256, expect="BdsDxe: failed to load"
    )
    found = run(wanted, store)
    assert (found.problem, found.seen) == ("", "BdsDxe: failed to load")
