"""A mirrored disk on two nodes of a DRBD in memory."""

from collections.abc import Callable
from pathlib import Path

from ganeti.model.instance_spec import DiskPeer, DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.drbd.driver import DrbdDisk
from tests.support.model_drbd import DrbdWorld, FileLayer

UUID = "11111111-2222-4333-8444-555555555555"
SIZE = 8
ADDRESSES = {"one": "10.0.0.1", "two": "10.0.0.2"}
MINORS = {"one": 3, "two": 5}


class Pair:
    """Two nodes with one disk; `suffix` names its volumes on each."""

    def __init__(self, directory: Path) -> None:
        self.world = DrbdWorld()
        self.directory = directory
        self.nodes = {
            name: self.world.node(name, address, directory / name)
            for name, address in ADDRESSES.items()
        }
        self.suffix = {"one": "a", "two": "a"}
        self.offline: set[str] = set()
        self.imported = False

    def spec(self, at: str, *, size: int = SIZE) -> DiskSpec:
        (other,) = (name for name in ADDRESSES if name != at)
        below = tuple(
            DiskSpec(
                uuid=f"{use}-{UUID}",
                index=0,
                size=mib,
                template="plain",
                logical_id=(),
                part=("xenvg", f"{self.suffix[at]}.{use}"),
            )
            for use, mib in (("data", size), ("meta", 2))
        )
        return DiskSpec(
            uuid=UUID,
            index=0,
            size=size,
            template="drbd",
            logical_id=(11000,),
            part=(MINORS[at],),
            peers=(
                DiskPeer(
                    name=other,
                    address=ADDRESSES[other],
                    part=(MINORS[other],),
                    offline=other in self.offline,
                ),
            ),
            children=below,
            address=ADDRESSES[at],
            secret="shared",
            params={"protocol": "C"},
            imported=self.imported,
        )

    def disk(self, at: str, change: Callable[[DiskSpec], DiskSpec] = lambda spec: spec) -> DrbdDisk:
        node = self.nodes[at]
        return DrbdDisk(
            change(self.spec(at)),
            lambda layer: FileLayer(node.directory, layer),
            kernel=node.kernel(),
        )

    async def create(self) -> None:
        for at in ("two", "one"):
            await self.disk(at).create(SIZE)

    async def open(self) -> None:
        """As the start of a guest on `one` does."""
        await self.disk("two").open(DiskRole.SECONDARY)
        await self.disk("one").open(DiskRole.PRIMARY)

    def kill(self, at: str) -> None:
        """The node is dead: its kernel forgets everything, its volumes stay."""
        node = self.nodes[at]
        for name in list(node.devices):
            node.drop(name, "StandAlone")
            node.record(node.devices[name])
        node.devices.clear()

    def files(self, at: str) -> set[str]:
        return {path.name for path in self.nodes[at].directory.iterdir()} - {"proc", "helper"}

    def state(self, at: str) -> str:
        node = self.nodes[at]
        return node.disk_state(node.devices[UUID])
