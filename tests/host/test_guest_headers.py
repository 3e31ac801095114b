"""What a guest writes at the beginning of its disk is bytes to the host, also if it looks like an image (A50)."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.instance_spec import InstanceSpec
from ganeti.node.carrier.ends import open_source
from ganeti.node.carrier.order import EndOrder
from ganeti.rpc.procedures.migration import MigrationEnd
from tests.support.kvm_nodes import Node, accept, boot, send
from tests.support.tiny_guest import MIB, install, make_disk, tiny_instance

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(180),
    pytest.mark.requirement("A50"),
]

SECTOR = 512
Header = Callable[[Path, Path], bytes]
RAW = {"raw", "file", "host_device", "throttle", "nbd"}


def qcow2(secret: Path, directory: Path) -> bytes:
    """An image whose data comes from a file of the host."""
    image = directory / "q"
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(secret)]
    subprocess.run([*words, str(image)], check=True)
    head = bytearray(image.read_bytes()[:SECTOR])
    # The name is behind the first sector where it has extensions: here it shall be in it.
    name = str(secret).encode()
    place = SECTOR - len(name)
    head[8:20] = place.to_bytes(8, "big") + len(name).to_bytes(4, "big")
    head[place:] = name
    return bytes(head)


def vmdk(secret: Path, _directory: Path) -> bytes:
    """A descriptor that names a file of the host."""
    text = (
        f'# Disk DescriptorFile\nversion=1\ncreateType="monolithicFlat"\nRW 64 FLAT "{secret}" 0\n'
    )
    return text.encode().ljust(SECTOR, b"\n")


def luks(_secret: Path, _directory: Path) -> bytes:
    return b"LUKS\xba\xbe\x00\x01aes".ljust(SECTOR, b"\0")


async def formats(node: Node, instance: InstanceSpec) -> set[str]:
    """The drivers of all that QEMU reads from or writes to."""
    answer: Any = await node.ask(instance)("query-named-block-nodes")
    assert not any(one.get("backing_file") for one in answer)
    return {one["drv"] for one in answer}


@pytest.mark.parametrize(
    "header", [qcow2, *(pytest.param(one, marks=pytest.mark.soak) for one in (vmdk, luks))]
)
async def test_an_image_that_a_guest_has_written_is_never_read_as_one(
    nodes: list[Node], guest: Path, disk: Path, tmp_path: Path, header: Header
) -> None:
    here, there = nodes
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(MIB))
    before, looked_at = secret.read_bytes(), secret.stat()
    planted = header(secret, tmp_path)
    instance = tiny_instance(guest, migration_bandwidth=256)
    install(guest, disk, instance.name)
    await boot(here, instance, disk)
    with disk.open("r+b") as file:
        file.write(planted)

    size = disk.stat().st_size + MIB
    os.truncate(disk, size)
    (spec,) = instance.disks
    grown = replace(instance, disks=(replace(spec, size=size // MIB),))
    await here.driver.hotplug.resize_disk(instance, grown.disks[0])
    copied = bytearray()  # what export and conversion read
    with open_source(EndOrder(path=str(disk)), size, {}) as source:
        for zeros, data in source.pieces():
            copied += bytes(zeros) + data
    assert copied[:SECTOR] == planted

    copy = make_disk(tmp_path / "copy", size // MIB)
    info = await here.driver.migration_info(instance)
    incoming = await accept(there, grown, copy, info, copies_disks=True)
    assert (await send(here, grown, incoming)).status == "completed"
    assert await formats(here, instance) | await formats(there, instance) <= RAW
    assert copy.read_bytes() == disk.read_bytes()
    assert copy.read_bytes()[:SECTOR] == planted
    await there.driver.finish_migration(grown, MigrationEnd.RESUME_TARGET)
    await here.driver.finish_migration(grown, MigrationEnd.END_SOURCE)
    await there.driver.stop(grown, 0)
    await here.driver.start(
        grown, [str(disk)], paused=True
    )  # its header is there from the beginning
    assert await formats(here, grown) <= RAW
    await here.driver.stop(grown, 0)
    assert disk.read_bytes() == copy.read_bytes()

    assert secret.read_bytes() == before
    assert secret.stat().st_mtime_ns == looked_at.st_mtime_ns
