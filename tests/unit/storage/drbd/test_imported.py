"""Mirrored disks that the original has made, and perhaps opened."""

from pathlib import Path

import pytest

from ganeti.base.errors import StorageError
from ganeti.config.fill import disk_spec
from ganeti.config.snapshot import Snapshot
from ganeti.model.names import DiskRole
from ganeti.storage.assemble import device
from ganeti.storage.drbd import metadata
from ganeti.storage.drbd.driver import DrbdDisk
from ganeti.storage.drbd.status import UP_TO_DATE
from ganeti.storage.lvm.volume import LogicalVolume
from ganeti.upstream import forms
from ganeti.upstream.choices import Choices
from ganeti.upstream.reading import translate
from tests.support.drbd_pair import MINORS, UUID, Pair
from tests.support.model_drbd import DrbdNode
from tests.unit.upstream import sample

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G13", "G28")]


@pytest.fixture
async def pair(tmp_path: Path) -> Pair:
    """As the original leaves it: written to by a guest, no mark of ours, closed."""
    made = Pair(tmp_path)
    await made.create()
    await made.open()
    made.nodes["one"].write(UUID)
    for at in made.nodes:
        await made.disk(at).close()
        meta = meta_of(made, at)
        meta.write_bytes(meta.read_bytes()[: -metadata.MARK_SIZE] + bytes(metadata.MARK_SIZE))
        made.nodes[at].calls.clear()
    made.imported = True
    return made


def meta_of(pair: Pair, at: str) -> Path:
    return pair.nodes[at].directory / "a.meta"


def verbs(node: DrbdNode) -> list[str]:
    return [words[1] if words[0] == "drbdsetup" else words[-1] for words in node.calls]


def as_the_original_opens(pair: Pair) -> None:
    """The same resources by the names that it gives them."""
    for at, minor in MINORS.items():
        devices = pair.nodes[at].devices
        devices[f"resource{minor}"] = devices.pop(UUID)


async def test_what_upstream_wrote_is_believed_and_stays(pair: Pair) -> None:
    before = {at: (meta_of(pair, at).read_bytes(), pair.world.copies[str(meta_of(pair, at))].generation)
              for at in pair.nodes}  # fmt: skip
    for at in pair.nodes:
        await pair.disk(at).check_identity()
    await pair.open()
    for at, node in pair.nodes.items():
        assert pair.state(at) == UP_TO_DATE
        assert "create-md" not in verbs(node)
        assert not any("--force" in words for words in node.calls if words[0] == "drbdsetup")
        after = meta_of(pair, at).read_bytes(), pair.world.copies[str(meta_of(pair, at))].generation
        assert after == before[at]


async def test_the_copy_that_missed_something_is_still_the_older_one(pair: Pair) -> None:
    """The two are told apart by their metadata: it must not look like that of new disks."""
    pair.world.copies[str(meta_of(pair, "one"))].outdated = True
    pair.offline = {"two"}
    with pytest.raises(StorageError, match="no copy is known to have all writes"):
        await pair.disk("one").open(DiskRole.PRIMARY)


async def test_metadata_that_is_damaged_is_not_recreated(pair: Pair) -> None:
    meta_of(pair, "one").write_bytes(bytes(2 << 20))
    with pytest.raises(StorageError, match="belongs to another disk"):
        await pair.disk("one").check_identity()
    with pytest.raises(StorageError, match="is damaged; run replace-disks"):
        await pair.disk("one").open(DiskRole.PRIMARY)
    assert "create-md" not in verbs(pair.nodes["one"])


async def test_a_copy_that_is_made_here_has_our_mark(pair: Pair) -> None:
    pair.suffix["two"] = "b"
    await pair.disk("two").create(8)
    assert metadata.is_marked(str(pair.nodes["two"].directory / "b.meta"), UUID)
    await pair.open()
    assert pair.state("two") == UP_TO_DATE


async def test_a_resource_that_upstream_has_opened_continues_until_it_is_closed(
    pair: Pair,
) -> None:
    await pair.open()
    as_the_original_opens(pair)
    for at, minor in MINORS.items():
        pair.nodes[at].calls.clear()
        disk = pair.disk(at)
        found = await disk.sync_status()
        assert found is not None
        assert found.up_to_date
        await disk.close()
        assert pair.nodes[at].devices == {}
        assert ["drbdsetup", "down", f"resource{minor}"] in pair.nodes[at].calls
    await pair.open()
    assert list(pair.nodes["one"].devices) == [UUID]


async def test_it_is_opened_again_without_a_change(pair: Pair) -> None:
    await pair.disk("one").open(DiskRole.SECONDARY)
    pair.offline = {"two"}
    await pair.disk("one").open(DiskRole.PRIMARY)
    device = pair.nodes["one"].devices.pop(UUID)
    pair.nodes["one"].devices["resource3"] = device
    pair.nodes["one"].calls.clear()
    await pair.disk("one").open(DiskRole.PRIMARY)
    assert not {"new-resource", "new-minor", "attach", "down", "create-md"} & set(
        verbs(pair.nodes["one"])
    )
    assert pair.nodes["one"].devices == {"resource3": device}
    # The original knows its peers by another algorithm, so whoever waits for its peer is told ours.
    assert ["connect", "resource3"] in pair.nodes["one"].calls


@pytest.mark.requirement("F25")
async def test_upstreams_resource_over_another_volume_is_not_touched(pair: Pair) -> None:
    await pair.disk("one").open(DiskRole.SECONDARY)
    as_foreign = pair.nodes["one"].devices.pop(UUID)
    as_foreign.data = "/dev/xenvg/another"
    pair.nodes["one"].devices["resource3"] = as_foreign
    with pytest.raises(StorageError, match="minor 3 is that of resource resource3"):
        await pair.disk("one").open(DiskRole.PRIMARY)
    await pair.disk("one").close()
    assert "resource3" in pair.nodes["one"].devices


@pytest.mark.parametrize("is_older", [False, True])
def test_names_minors_port_and_secret_are_those_of_the_file(is_older: bool, tmp_path: Path) -> None:
    given = sample.older(sample.document()) if is_older else sample.document()
    found = translate(forms.parse(sample.encoded(given)), Choices(keep_unknown=True))
    snapshot = Snapshot.of(1, found.cluster, others=found.others)
    nodes = snapshot.nodes_by_name()
    (instance,) = (one for one in snapshot.instances.values() if one.name == "web1.example.com")
    for node, minor, other in zip(nodes, (0, 5), reversed(nodes), strict=True):
        spec = disk_spec(snapshot, instance, 0, node.uuid)
        disk = device(tmp_path, instance.name, spec)  # type: ignore[arg-type] # no path is used
        assert isinstance(disk, DrbdDisk)
        assert disk.path == f"/dev/drbd{minor}"
        assert disk._ends() == ((node.secondary_ip, 11002), (other.secondary_ip, 11002))
        assert spec.secret == "d3c3fd475fcbaf5fd177fb245ac43b71247ada38"
        below = disk._below.data, disk._below.meta
        assert [one.path for one in below if isinstance(one, LogicalVolume)] == [
            f"/dev/xenvg/{sample.DISK}.disk0_{use}" for use in ("data", "meta")
        ]
        assert [child.size for child in spec.children] == [1024, 128]
        assert (spec.imported, spec.params["resync-rate"], spec.params["protocol"]) == (
            True,
            1024,
            "C",
        )
