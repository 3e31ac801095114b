"""The images of the cluster: a whole image or nothing, copies that are verified, and instances made of them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ganeti.model.objects import Image
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.cluster import OpClusterVerifyConfig
from ganeti.model.opcodes.image import (
    OpImageCopy,
    OpImageExport,
    OpImageImport,
    OpImageRemove,
    OpImageRename,
    OpImageSetParams,
)
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.opcodes.instance_system import OpInstanceReinstall
from ganeti.model.opcodes.node import OpNodeRemove
from ganeti.simulation.faulty_store import Crash
from tests.support.export_nodes import ExportNode
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import Master, World, failed, said, succeeded
from tests.unit.units.test_backup import CLONE, contents, node
from tests.unit.units.test_images import image as box

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G11")]

SOURCE = "/srv/ganeti/images/box.ova"
URL = "https://images.example.com/box.qcow2"
DIGEST = "0" * 64


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    one = await Master.begin(World(node_type=ExportNode))
    for number in (1, 2, 3):
        node(one, number).oses["image"] = "1"
    node(one, 2).images[SOURCE] = box()
    node(one, 2).images[URL] = box()
    yield one
    await one.end()


def imported(name: str = "box", **fields: Any) -> OpImageImport:
    given: dict[str, Any] = {"source": SOURCE, "node": "node2.example.com", **fields}
    return OpImageImport(image_name=name, **given)


def add(**fields: Any) -> OpInstanceCreate:
    given: dict[str, Any] = {
        "instance_name": CLONE, "pnode": "node3.example.com", "image": "box", "disk_template": "file",
        "start": False,
    }  # fmt: skip
    return OpInstanceCreate(**{**given, **fields})


def image(master: Master, name: str = "box") -> Image:
    found = master.snapshot.image_by_name(name)
    assert found is not None
    return found


def names(master: Master) -> list[str]:
    return sorted(master.snapshot.nodes[uuid].name[:5] for uuid in image(master).nodes)


def check_stores(master: Master) -> None:
    """Each store has exactly the copies that the configuration records, all with the right content."""
    for number in (1, 2, 3):
        one = node(master, number)
        assert one.storing == {}
        uuid = next(
            u for u, n in master.snapshot.nodes.items() if n.name.startswith(f"node{number}.")
        )
        wanted = {
            known.directory for known in master.snapshot.images.values() if uuid in known.nodes
        }
        assert set(one.copies) == wanted
        assert all(found.files["disk0.raw"] == "the disk of box" for found in one.copies.values())
        assert one.keys == set()


async def run(master: Master, *ops: OpCode) -> None:
    for op in ops:
        succeeded(await master.run(op))


async def test_image_is_imported_described_renamed_and_removed(master: Master) -> None:
    view = await master.run(imported(description="A box", disk_size=2048, cloud_init=False))
    assert succeeded(view) == [disk.sha256 for disk in image(master).disks]
    made = image(master)
    assert [disk.size for disk in made.disks] == [128, 64]
    assert (made.stored, made.nics, made.beparams) == (
        7, 2, {"maxmem": 512, "minmem": 512, "vcpus": 2},
    )  # fmt: skip
    assert names(master) == ["node2"]
    check_stores(master)
    change = OpImageSetParams(image_name="box", disk_size=0, firmware="uefi", description="")
    await run(master, change, OpImageRename(image_name="box", new_name="crate"))
    now = image(master, "crate")
    assert (now.disk_size, now.firmware, now.description, now.cloud_init) == (0, "uefi", "", False)
    await run(master, OpImageSetParams(image_name="crate", firmware="none"))
    assert image(master, "crate").firmware == ""
    await run(master, OpImageRemove(image_name="crate"))
    assert master.snapshot.images == {}
    check_stores(master)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"image_name": "../box"}, "is not a name"),
        ({"image_name": ""}, "is not a name"),
        ({"source": "box.ova"}, "absolute path"),
        ({"source": "/srv/ganeti/images/../../etc/shadow"}, "absolute path"),
        ({"source": "/etc/shadow"}, "is not below a directory"),
        ({"source": "http://images.example.com/box"}, "absolute path"),
        ({"source": "file:///etc/shadow"}, "absolute path"),
        ({"source": "upload:../../etc/shadow"}, "absolute path"),
        ({"source": f"upload:{'0' * 32}"}, "is not below a directory"),
        ({"source": "https://user:word@images.example.com/box", "digest": DIGEST}, "without a user"),
        ({"source": "https://[/box", "digest": DIGEST}, "https://HOST"),
        ({"source": "https:///etc/shadow", "digest": DIGEST}, "https://HOST"),
        ({"source": URL}, "is required for a URL"),
        ({"source": URL, "digest": "0" * 63}, "hexadecimal"),
        ({"source": URL, "digest": "g" * 64}, "hexadecimal"),
        ({"digest": "٣" * 64}, "hexadecimal"),
        ({"description": "a\nb"}, "one line"),
        ({"description": "x" * 1025}, "one line"),
        ({"firmware": "coreboot"}, "must be one of bios, uefi"),
        ({"disk_size": -1}, "must be at least"),
        ({"disk_size": 2**40}, "must be at least"),
        ({"node": "node9.example.com"}, "no node node9"),
    ],
)  # fmt: skip
@pytest.mark.requirement("A41", "A50")
async def test_wrong_import_is_refused_before_anything_is_written(
    master: Master, fields: dict[str, Any], text: str
) -> None:
    master.rpc.reset()
    given = {"name": fields.pop("image_name")} if "image_name" in fields else {}
    _, arguments = failed(await master.run(imported(**given, **fields)))
    assert text in arguments[0]
    assert master.rpc.acts() == []
    assert master.snapshot.images == {}


async def test_second_image_of_a_name_is_refused(master: Master) -> None:
    await run(master, imported())
    _, arguments = failed(await master.run(imported()))
    assert "image box exists already" in arguments[0]
    await run(master, imported("other"))
    _, arguments = failed(await master.run(OpImageRename(image_name="other", new_name="box")))
    assert "box" in arguments[0]
    check_stores(master)


async def test_disk_size_below_the_image_is_refused_without_a_trace(master: Master) -> None:
    _, arguments = failed(await master.run(imported(disk_size=127)))
    assert "at least the 128 MiB" in arguments[0]
    check_stores(master)


async def test_url_is_imported_with_its_digest(master: Master) -> None:
    await run(master, imported(source=URL, digest=DIGEST))
    check_stores(master)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER])
@pytest.mark.parametrize("number", range(1, 7))
async def test_failed_import_leaves_nothing(master: Master, number: int, fault: Fault) -> None:
    master.rpc.reset()
    master.rpc.fail(number, fault)
    view = await master.run(imported())
    await master.nothing_is_left()
    assert (master.snapshot.image_by_name("box") is None) == (view.status.value == "error")
    check_stores(master)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER])
@pytest.mark.parametrize("number", range(1, 12))
async def test_failed_copy_leaves_nothing(master: Master, number: int, fault: Fault) -> None:
    await run(master, imported())
    master.rpc.reset()
    master.rpc.fail(number, fault)
    view = await master.run(OpImageCopy(image_name="box", nodes=["node3"]))
    await master.nothing_is_left()
    wanted = ["node2"] if view.status.value == "error" else ["node2", "node3"]
    assert names(master) == wanted
    check_stores(master)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER])
async def test_copy_that_was_not_removed_is_removed_later(master: Master, fault: Fault) -> None:
    await run(master, imported(), OpImageCopy(image_name="box", nodes=["node1", "node3"]))
    master.rpc.reset()
    master.rpc.fail(1, fault)
    await master.run(OpImageRemove(image_name="box"))
    assert master.snapshot.images == {}
    await master.nothing_is_left()
    check_stores(master)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(0, 12, 2))
@pytest.mark.parametrize("what", ["import", "copy", "remove", "add"])
async def test_master_that_dies_leaves_whole_images(master: Master, what: str, number: int) -> None:
    ops: dict[str, OpCode] = {
        "import": imported(),
        "copy": OpImageCopy(image_name="box", nodes=["node3"]),
        "remove": OpImageRemove(image_name="box"),
        "add": add(),
    }
    if what != "import":
        await run(master, imported())
    await master.submit(ops[what])
    master.store.inject(Crash(written=bool(number % 4)), after=number)
    await master.is_dead_after_a_while()
    after = await master.restart()
    try:
        await after.idle()
        await after.nothing_is_left()
        check_stores(after)
    finally:
        await after.end()


async def test_damaged_copy_is_replaced_from_a_good_one(master: Master) -> None:
    await run(master, imported(), OpImageCopy(image_name="box", nodes=["node3"]))
    directory = image(master).directory
    node(master, 3).copies[directory].files["disk0.raw"] = "flipped"
    view = await master.run(OpImageCopy(image_name="box", nodes=["node2", "node3"]))
    assert succeeded(view) == ["node3.example.com"]
    assert "the copy on node3.example.com is damaged" in said(view)
    check_stores(master)
    del node(master, 3).copies[directory]
    await run(master, OpImageCopy(image_name="box", nodes=["node3"]))
    check_stores(master)


async def test_damaged_copy_is_never_spread(master: Master) -> None:
    await run(master, imported())
    node(master, 2).copies[image(master).directory].files["disk0.raw"] = "flipped"
    for op in (OpImageCopy(image_name="box", nodes=["node3"]), add()):
        _, arguments = failed(await master.run(op))
        assert "cannot be copied to node3" in arguments[0]
        assert "gnt-image copy box NODE" in arguments[0]
        assert names(master) == ["node2"]
        assert node(master, 3).copies == {}
    await master.nothing_is_left()


async def test_image_is_written_to_a_file_of_a_node(master: Master) -> None:
    await run(master, imported())
    path = "/srv/ganeti/images/out.ova"
    view = await master.run(OpImageExport(image_name="box", path=path, target_format="ova"))
    assert succeeded(view) == f"node2.example.com:{path}"
    assert path in node(master, 2).image_files
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"path": "/srv/x.qcow2"}, "can only become an OVA"),
        ({"path": "x.ova", "target_format": "ova"}, "absolute path"),
        ({"path": "/srv/x.ova", "target_format": "ova", "node": "node1"}, "copy it first"),
    )
    for fields, text in wrong:
        _, arguments = failed(await master.run(OpImageExport(image_name="box", **fields)))
        assert text in arguments[0]


async def test_node_with_the_only_copy_stays(master: Master) -> None:
    node(master, 3).images[SOURCE] = box()
    await run(master, imported(node="node3.example.com"))
    _, arguments = failed(await master.run(OpNodeRemove(node_name="node3.example.com")))
    assert "only copy of image box" in arguments[0]
    await run(master, OpImageCopy(image_name="box", nodes=["node1"]))
    await run(master, OpNodeRemove(node_name="node3.example.com"))
    assert names(master) == ["node1"]


# --- instances ---


async def test_instance_gets_the_content_and_the_settings_of_an_image(master: Master) -> None:
    await run(master, imported(disk_size=1000))
    view = await master.run(add(osparams={"ssh_key": "ssh-ed25519 AAAA"}))
    assert succeeded(view) == ["node3.example.com"]
    made = master.instance(CLONE)
    assert [disk.size for disk in made.disks] == [1000, 64, 4]
    assert (made.os, made.osparams["stored_image"], len(made.nics)) == ("image", "box", 2)
    assert (made.beparams["maxmem"], made.beparams["vcpus"]) == (512, 2)
    assert contents(master, CLONE, 3)[0] == "the disk of box"
    assert "copying image box from node2.example.com to node3.example.com" in said(view)
    assert "running the instance OS create scripts" in said(view)
    assert names(master) == ["node2", "node3"]
    check_stores(master)


async def test_instance_of_another_os_gets_only_the_disks(master: Master) -> None:
    await run(master, imported(cloud_init=False))
    view = await master.run(
        add(os_type="tiny", disks=[DiskRequest(size=128), DiskRequest(size=64)])
    )
    succeeded(view)
    made = master.instance(CLONE)
    assert (made.os, made.osparams, len(made.disks)) == ("tiny", {}, 2)
    assert "create scripts" not in said(view)
    assert contents(master, CLONE, 3)[0] == "the disk of box"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"image": "bax"}, "there is no image bax"),
        ({"image": "../box"}, "is not a name"),
        ({"image": None, "osparams": {"stored_image": "bax"}, "os_type": "image"}, "no image bax"),
        ({"osparams": {"stored_image": "bax"}}, "but the OS parameter stored_image is bax"),
        ({"disks": [DiskRequest(size=200)]}, "needs as many"),
        ({"disks": [DiskRequest(size=127), DiskRequest(size=64)]}, "use --disk 0:size=128m"),
        ({"disks": [DiskRequest(size=128, mode="ro"), DiskRequest(size=64)]}, "must be rw"),
        ({"mode": "clone", "src_instance": "x"}, "only with mode create"),
    ],
)
async def test_wrong_instance_of_an_image_is_refused(
    master: Master, fields: dict[str, Any], text: str
) -> None:
    await run(master, imported())
    master.rpc.reset()
    _, arguments = failed(await master.run(add(**fields)))
    assert text in arguments[0]
    assert master.rpc.acts() == []


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER])
@pytest.mark.parametrize("number", range(1, 30))
async def test_failed_creation_leaves_no_instance(
    master: Master, number: int, fault: Fault
) -> None:
    await run(master, imported())
    master.rpc.reset()
    master.rpc.fail(number, fault)
    view = await master.run(add())
    await master.nothing_is_left()
    made = master.snapshot.instance_by_name(CLONE)
    assert (made is None) == (view.status.value == "error")
    check_stores(master)


async def test_reinstallation_writes_the_image_again(master: Master) -> None:
    await run(master, imported(), add())
    node(master, 3).carried.clear()
    await run(master, OpInstanceReinstall(instance_name=CLONE))
    assert len(node(master, 3).carried) == 2
    await run(master, OpImageRemove(image_name="box"))
    _, arguments = failed(await master.run(OpInstanceReinstall(instance_name=CLONE)))
    assert "there is no image box" in arguments[0]


# --- checks ---


async def test_verify_names_missing_and_changed_copies(master: Master) -> None:
    await run(master, imported(), OpImageCopy(image_name="box", nodes=["node1", "node3"]))
    view = await master.run(OpClusterVerifyConfig())
    assert succeeded(view) is True
    directory = image(master).directory
    node(master, 2).touched.add(directory)
    node(master, 1).copies[directory].files.clear()
    left = node(master, 3).copies.pop(directory)
    node(master, 3).copies["image-of-nobody"] = left
    view = await master.run(OpClusterVerifyConfig())
    assert succeeded(view) is False
    for text in (
        "has changed since it was complete; run: gnt-image copy box node2.example.com",
        "the copy of image box is missing; run: gnt-image copy box node3.example.com",
        "is missing, or has the wrong size; run: gnt-image copy box node1.example.com",
        "image-of-nobody in its image store belongs to no image",
    ):
        assert text in said(view)
