"""Real guests that fail: their node reports it, and a start brings them back."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.clock import SystemClock
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.model.recovery import GuestFault
from ganeti.node.guest_faults import GuestFaults
from ganeti.node.instance_locks import InstanceLocks
from tests.support.kvm_nodes import READY, Node, boot
from tests.support.patience import patience
from tests.support.tiny_guest import install, tiny_instance, wait_for_text

pytestmark = [pytest.mark.host, pytest.mark.in_turn, pytest.mark.timeout(120)]

PANIC = "while read -r m; do insmod /lib/modules/$m; done </lib/modules/faults; echo c >/proc/sysrq-trigger"
ARM = (
    'for d in /sys/bus/pci/devices/*; do [ "$(cat $d/device)" = 0x25ab ] && c=$d/config; done;'
    r" printf '\4\0' | dd of=$c bs=2 seek=48 conv=notrunc;"
    r" printf '\2' | dd of=$c bs=1 seek=104 conv=notrunc"
)
"""The kernel lacks a driver: select the fast clock of the i6300esb (2 s in all), and enable it."""
BEAT_S = 0.2


def type_line(files: GuestFiles, line: str) -> None:
    """Type on the guest's console; return when the guest has echoed it."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(files.console))
        client.sendall(line.encode() + b"\n")
        heard = b""
        while line[-12:].encode() + b"\r" not in heard and (more := client.recv(4096)):
            heard += more


async def reported(faults: GuestFaults, instance: InstanceSpec) -> GuestFault:
    """Send heartbeats until one reports a fault."""
    async with asyncio.timeout(40 * patience()):
        while not (found := faults([instance.uuid])):  # noqa: ASYNC110 - as the master does
            await asyncio.sleep(BEAT_S)
    return found[instance.uuid]


async def runs_again(node: Node, faults: GuestFaults, instance: InstanceSpec, boots: int) -> None:
    """Wait until the guest has booted so often, as its console shows."""
    assert faults([instance.uuid]) == {}
    await wait_for_text(node.console(instance), f"(?s)({READY}.*){{{boots}}}")
    await node.beats(instance, 1)
    assert faults([instance.uuid]) == {}
    await faults.close()


async def test_killed_guest_is_reported_by_the_next_answer(
    node: Node, guest: Path, disk: Path
) -> None:
    instance = tiny_instance(guest)
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    faults = GuestFaults({"kvm": node.driver}, InstanceLocks(), SystemClock())
    assert faults([instance.uuid]) == {}
    process = node.record(instance).process
    os.kill(process.pid, signal.SIGKILL)
    async with asyncio.timeout(5 * patience()):
        while not faults([instance.uuid]):  # noqa: ASYNC110 - the kernel takes a moment to end it
            await asyncio.sleep(0.01)
    assert faults([instance.uuid]) == {instance.uuid: GuestFault.CRASHED}
    await node.driver.start(instance, [str(disk)])
    await runs_again(node, faults, instance, 1)


@pytest.mark.parametrize(
    ("hvparams", "line", "fault"),
    [
        ({"pvpanic": True}, PANIC, GuestFault.PANICKED),
        ({"watchdog": "i6300esb"}, ARM, GuestFault.HUNG),
    ],
    ids=["pvpanic", "i6300esb"],
)
async def test_guest_that_panics_or_hangs_is_reported_and_runs_again_after_a_reset(
    node: Node,
    guest: Path,
    disk: Path,
    hvparams: Params,
    line: str,
    fault: GuestFault,
) -> None:
    instance = tiny_instance(guest)
    instance = replace(instance, hvparams={**instance.hvparams, **hvparams})
    install(guest, disk, instance.name)
    await boot(node, instance, disk)
    faults = GuestFaults({"kvm": node.driver}, InstanceLocks(), SystemClock())
    assert faults([instance.uuid]) == {}
    await asyncio.to_thread(type_line, node.files(instance), line)
    assert await reported(faults, instance) is fault
    # As the master's job does. A start ends the process instead.
    await node.driver.reboot(instance, soft=False, timeout_s=1)
    await runs_again(node, faults, instance, 2)
