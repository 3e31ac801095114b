"""A real TPM 2.0 beside a real QEMU: confined, moved with the guest, ended with it."""

import os
import re
import signal
from pathlib import Path

import pytest

from ganeti import ssconf
from ganeti.base.process import run
from ganeti.hypervisor.kvm import tpm
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.processes import HostProcesses
from ganeti.model.instance_spec import InstanceSpec
from tests.support.kvm_nodes import Node, boot, migrate, nothing_is_left
from tests.support.tiny_guest import install, tiny_instance

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give rights up"),
]


@pytest.fixture(autouse=True)
def pool(nodes: list[Node], tmp_path: Path, own_user_ids: range) -> None:
    for node in nodes:
        ssconf.write_set(node.paths, 1, {"uid_pool": f"{own_user_ids[40]}-{own_user_ids[49]}"})
    tmp_path.chmod(0o700)  # as a local cluster's own directory


def swtpm(node: Node, instance: InstanceSpec) -> int:
    """The process of a guest's TPM; 0 if there is none."""
    found = HostProcesses().find(node.record(instance).tpm_argv)
    return found.pid if found else 0


def state(node: Node, instance: InstanceSpec) -> bytes | None:
    return tpm.read(node.paths, instance.uuid)


def with_tpm(guest: Path, *, confined: bool) -> InstanceSpec:
    model = "pool" if confined else "none"
    return tiny_instance(
        guest, template="sharedfile", tpm=True, security_model=model, use_chroot=confined
    )


@pytest.mark.requirement("G5", "G11", "S229", "S230")
@pytest.mark.parametrize("confined", [pytest.param(False, marks=pytest.mark.soak), True])
async def test_a_tpm_lives_and_moves_with_its_guest(
    nodes: list[Node], guest: Path, disk: Path, *, confined: bool
) -> None:
    here, there = nodes
    instance = with_tpm(guest, confined=confined)
    install(guest, disk, instance.name)
    await boot(here, instance, disk)
    pid = swtpm(here, instance)
    status = Path(f"/proc/{pid}/status").read_text()
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    uid = here.record(instance).pool_uid if confined else 0
    assert re.search(rf"^Uid:\t{uid}\t{uid}\t{uid}\t{uid}$", status, re.MULTILINE)
    models = await here.ask(instance)("query-tpm")
    assert [one["model"] for one in models] == ["tpm-crb"]
    made = state(here, instance)
    assert made
    await migrate(here, there, instance, disk)
    await there.beats(instance)
    assert nothing_is_left(here, instance)
    assert not Path(f"/proc/{pid}").exists() or "State:\tZ" in status_of(pid)
    assert swtpm(there, instance)
    assert state(there, instance), "it came with the guest"
    await here.driver.nvram.forget_nvram(instance, [str(disk)], everywhere=False)
    assert state(here, instance) is None
    await there.driver.stop(instance, 0)
    kept = state(there, instance)
    carried = await there.driver.nvram.read_nvram(instance, [str(disk)])
    assert carried is not None
    await here.driver.nvram.write_nvram(instance, [str(disk)], carried)
    await here.driver.start(instance, [str(disk)], paused=True)
    assert state(here, instance) == kept
    await here.driver.stop(instance, 0)
    assert nothing_is_left(here, instance)


def status_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "State:\tZ"


@pytest.mark.requirement("G11", "F23")
async def test_a_tpm_that_no_qemu_came_for_ends_with_what_is_left_of_the_start(
    nodes: list[Node], guest: Path, disk: Path
) -> None:
    node = nodes[0]
    instance = with_tpm(guest, confined=True)
    await node.driver.start(instance, [str(disk)], paused=True)
    record = node.record(instance)
    pid = swtpm(node, instance)
    os.kill(pid, signal.SIGSTOP)  # it will not notice that its QEMU ends
    os.kill(record.pid, signal.SIGKILL)
    successor = KvmHypervisor(node.paths, run)
    for _ in range(50):
        if not await successor.running():
            break
    assert nothing_is_left(node, instance)
    assert "State:\tZ" in status_of(pid)
    await successor.start(instance, [str(disk)], paused=True)
    await successor.stop(instance, 0)
