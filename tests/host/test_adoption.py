"""A guest that the original's command line has started goes on under our driver."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.adoption import UpstreamGuests, directory
from ganeti.hypervisor.kvm.processes import HostProcesses
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.model.instance_spec import InstanceSpec
from tests.support.debian_ganeti import COMMANDS
from tests.support.debian_packages import PYTHON, environment, unpacked
from tests.support.kvm_nodes import Node, nothing_is_left
from tests.support.local_cluster import wait_until
from tests.support.patience import ran
from tests.support.tiny_guest import (
    are_consecutive,
    disk_heartbeats,
    install,
    tiny_instance,
)

pytestmark = [pytest.mark.host, pytest.mark.in_turn, pytest.mark.timeout(240)]
STARTER = Path(__file__).parents[1] / "support" / "debian_kvm_start.py"


def start_as_the_original(node: Node, instance: InstanceSpec, guest: Path, disk: Path) -> None:
    """Start QEMU with the words that Ganeti 3.0 has for it, and leave the files that it leaves."""
    root, name = directory(node.paths), instance.name
    for one in ("pid", "ctrl", "conf", "uid", "nic"):
        (root / one).mkdir(parents=True, exist_ok=True)
    control = root / "ctrl" / name
    words = [
        Programs.find({}), "-name", name, "-m", str(instance.memory), "-smp", "1",
        "-pidfile", str(root / "pid" / name), "-device", "virtio-balloon", "-daemonize",
        "-D", str(node.paths.log / "original.log"), "-machine", "pc",
        "-drive", f"file={disk},format=raw,if=none,cache=writeback,id=disk-0",
        "-device", "virtio-blk-pci,drive=disk-0,id=disk-0,bus=pci.0,addr=0xc",
        "-kernel", str(guest / "vmlinuz"), "-initrd", str(guest / "initrd"),
        "-append", "root=/dev/vda ro quiet no_timer_check console=ttyS0,38400",
        "-monitor", f"unix:{control}.monitor,server,nowait",
        "-serial", f"unix:{control}.serial,server,nowait",
        "-usb", "-display", "none", "-uuid", instance.uuid,
        "-qmp", f"unix:{control}.qmp,server,nowait",
    ]  # fmt: skip
    node.paths.log.mkdir(parents=True, exist_ok=True)
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, timeout=60)
    mine = {
        "uuid": instance.disks[0].uuid, "dev_type": "file", "size": instance.disks[0].size,
        "logical_id": ["loop", str(disk)], "mode": "rw", "iv_name": "disk/0", "params": {},
    }  # fmt: skip
    hvparams = {**instance.hvparams, "kvm_path": words[0], "of_another_version": 7}
    runtime = [words, [], hvparams, [[mine, str(disk), None]]]
    (root / "conf" / f"{name}.runtime").write_text(json.dumps(runtime))


def start_by_the_original(node: Node, instance: InstanceSpec, guest: Path, disk: Path) -> None:
    """Let the driver of Debian's Ganeti start it, in one of its virtual nodes whose root is the node's."""
    if not Path(PYTHON).exists():
        pytest.skip("the original's driver needs Debian's Python")
    packages = unpacked(*COMMANDS)
    there = environment(packages)
    programs = packages / "usr/share/ganeti/3.0"
    hvparams = {
        "kvm_path": Programs.find({}),
        "kvm_flag": "disabled",
        "kernel_path": str(guest / "vmlinuz"),
        "initrd_path": str(guest / "initrd"),
        "kernel_args": "ro quiet no_timer_check",
        "root_path": "/dev/vda",
    }
    wanted = {
        "name": instance.name, "uuid": instance.uuid, "memory": instance.memory, "hvparams": hvparams,
        "disk": str(disk), "disk_uuid": instance.disks[0].uuid, "size": instance.disks[0].size,
    }  # fmt: skip
    (node.paths.log / "kvm").mkdir(parents=True, exist_ok=True)
    done = ran(
        [PYTHON, "-W", "ignore", str(STARTER)],
        given=json.dumps(wanted),
        limit_s=120,
        env={
            **there,
            "PYTHONPATH": f"{programs}:{there['PYTHONPATH']}",
            "GANETI_ROOTDIR": str(node.paths.root),
            "GANETI_HOSTNAME": node.paths.root.name,
        },
    )
    if done.returncode and "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"Debian's Python lacks a library: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.requirement("G28")
@pytest.mark.parametrize(
    "start", [start_as_the_original, pytest.param(start_by_the_original, marks=pytest.mark.soak)]
)
async def test_upstream_guest_keeps_running_under_this_driver(
    node: Node, guest: Path, disk: Path, start: Callable[[Node, InstanceSpec, Path, Path], None]
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    start(node, instance, guest, disk)
    pid = int((directory(node.paths) / "pid" / instance.name).read_text())
    wait_until(lambda: len(disk_heartbeats(disk)) >= 3, "the guest beats", timeout_s=120)

    done = UpstreamGuests(node.paths, HostProcesses()).adopt()
    assert (done.adopted, done.problems) == ((instance.name,), ())
    before = max(disk_heartbeats(disk))
    [listed] = await node.driver.running()
    assert (listed.name, listed.uuid, listed.state) == (instance.name, instance.uuid, "running")
    wait_until(lambda: max(disk_heartbeats(disk)) > before + 2, "it beats on", timeout_s=120)
    assert are_consecutive(sorted(disk_heartbeats(disk)))
    assert node.record(instance).process.pid == pid
    assert UpstreamGuests(node.paths, HostProcesses()).hidden_guests() == []
    assert UpstreamGuests(node.paths, HostProcesses()).adopt().adopted == (instance.name,)

    with pytest.raises(HypervisorError, match="reboot --type=full"):
        await node.driver.migration_info(instance)
    with pytest.raises(HypervisorError, match="reboot --type=full"):
        await node.driver.hotplug.remove_disk(instance, instance.disks[0])

    process = node.record(instance).process
    await node.driver.stop(instance, 60)
    assert not HostProcesses().is_alive(process)
    assert nothing_is_left(node, instance)
    assert UpstreamGuests(node.paths, HostProcesses()).adopt().adopted == ()
