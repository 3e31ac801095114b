"""Where disks are, and what it means to bring an instance elsewhere; pure."""

from pathlib import Path

import pytest

from ganeti.base.errors import PrereqError
from ganeti.base.paths import Paths
from ganeti.config.kinds.instance import INSTANCE
from ganeti.layouts.places import Way, creation_order, growth, holders, relocate, relocated
from ganeti.layouts.registry import PLANNERS
from ganeti.model import wire
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.objects import Cluster, Disk, Instance, InstanceUuid, NodeUuid
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.storage.assemble import device
from ganeti.storage.file import FileDisk
from tests.support.memory_disks import MEMORY, NODES, PAIR, Memory, PairPlanner, add_templates

ONE, TWO, THREE = (NodeUuid(name) for name in ("one", "two", "three"))


@pytest.fixture(autouse=True)
def templates(monkeypatch: pytest.MonkeyPatch) -> None:
    add_templates(monkeypatch)


def instance(template: str, *nodes: NodeUuid, disks: tuple[Disk, ...] = ()) -> Instance:
    return Instance(
        uuid=InstanceUuid("i"),
        name="web1",
        primary_node=nodes[0],
        secondary_nodes=nodes[1:],
        disk_template=template,
        disks=disks,
    )


def test_every_template_that_is_made_here_has_a_planner() -> None:
    assert PLANNERS.keys() == DISK_TEMPLATES.keys()
    assert all(planner.template.name == name for name, planner in PLANNERS.items())


@pytest.mark.parametrize(
    ("template", "target", "way"),
    [
        ("diskless", TWO, Way.SHARED),
        ("sharedfile", TWO, Way.SHARED),
        ("file", TWO, Way.COPY),
        (MEMORY.name, TWO, Way.COPY),
        (PAIR.name, TWO, Way.SWAP),
        (PAIR.name, THREE, Way.REPLACE),
    ],
)
def test_the_way_follows_from_who_has_the_data(template: str, target: NodeUuid, way: Way) -> None:
    nodes = (ONE, TWO) if template == PAIR.name else (ONE,)
    found = relocate(instance(template, *nodes), target)
    assert found.way is way
    assert found.copies == (way is Way.COPY)
    assert found.after.primary_node == target
    assert found.after.secondary_nodes == ((ONE,) if template == PAIR.name else ())


def test_going_back_takes_a_swap_back() -> None:
    before = instance(PAIR.name, ONE, TWO)
    assert relocated(relocated(before, TWO), ONE) == before
    assert relocated(before, ONE) is before


class Names:
    """Counts what it gives."""

    def __init__(self) -> None:
        self.given = 0

    def uuid(self) -> str:
        self.given += 1
        return f"uuid{self.given}"

    def secret(self) -> str:
        return "secret"

    def port(self) -> int:
        return 11000

    def number(self, template: str, node: NodeUuid) -> int:
        self.given += 1
        return self.given


def layered() -> Disk:
    lower = Disk(uuid="l", size=64, template=MEMORY.name)
    disk = Disk(uuid="d", size=64, template=PAIR.name, logical_id=(1, "s"), children=(lower,))
    return PairPlanner().placed(disk, (ONE, TWO), Names())


def test_secondaries_are_made_first_and_layers_below_grow_first() -> None:
    disk = layered()
    here = instance(PAIR.name, ONE, TWO, disks=(disk,))
    assert holders(here) == (ONE, TWO)
    assert creation_order(here) == (TWO, ONE)
    steps = growth(here, disk, PairPlanner().grown(disk, 96))
    assert [(step.node, step.path, step.size) for step in steps] == [
        (TWO, (0,), 96),
        (ONE, (0,), 96),
        (ONE, (), 96),
    ]


def test_a_node_that_stays_keeps_its_parts() -> None:
    before = layered()
    after = PairPlanner().placed(before, (ONE, THREE), Names())
    assert after.parts[ONE] == before.parts[ONE]
    assert after.children[0].parts[ONE] == before.children[0].parts[ONE]
    assert after.parts.keys() == after.children[0].parts.keys() == {ONE, THREE}


def test_what_is_not_layered_has_no_parts_to_replace() -> None:
    disk = Disk(uuid="d", size=1, template="file", logical_id=("loop", "/x"))
    with pytest.raises(PrereqError, match="no parts that could be replaced"):
        PLANNERS["file"].renewed(disk, ONE, Names())


def test_a_disk_that_an_earlier_version_stored_is_one_layer() -> None:
    stored = b'{"uuid":"d","size":7,"template":"file","logical_id":["loop","/x"],"mode":"rw","name":null,"params":{}}'
    disk = wire.decode(stored, Disk, what="a disk")
    assert list(disk.layers()) == [disk]
    assert disk.part(ONE) == ("loop", "/x")


def test_every_layer_claims_its_names_ports_and_parts() -> None:
    cluster = Cluster(uuid="c", name="c", master_node=ONE)
    here = instance(PAIR.name, ONE, TWO, disks=(layered(),))
    claims = {(claim.kind, claim.value) for claim in INSTANCE.claims(cluster, here)}
    assert {("UUID", "d"), ("UUID", "l"), ("network port", "1")} <= claims
    assert len([one for one in claims if one[0] == "memory-pair on a node"]) == 2
    assert len([one for one in claims if one[0] == "memory on a node"]) == 2


async def test_what_not_every_driver_can_do_is_a_part_of_it(tmp_path: Path) -> None:
    NODES["node1"] = Memory(SharedDirectory())
    spec = DiskSpec(uuid="d", index=0, size=8, template=MEMORY.name, logical_id=("pool0", "v"))
    disk = device(Paths(tmp_path / "node1"), "web1", spec)
    await disk.create(8)
    assert disk.mirror is None
    assert disk.snapshots is not None
    assert await disk.snapshots.take("monday") == "/dev/pool0/v@monday"
    await disk.snapshots.drop("monday")
    assert FileDisk.snapshots is None
