"""Clusters as data, to be merged: generated ones, whose numbers keep them apart, and a small one."""

import random
import uuid

import msgspec

from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import (
    Cluster,
    Disk,
    GroupUuid,
    Instance,
    InstanceUuid,
    Network,
    NetworkUuid,
    Nic,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.model.stored import Stored

PORTS = range(11000, 11400)


class Maker:
    """Makes one cluster; `number` is in all names and addresses, `chooser` decides the rest."""

    def __init__(self, number: int, chooser: random.Random) -> None:
        self.number, self.chooser = number, chooser
        self._ports = list(PORTS)
        chooser.shuffle(self._ports)
        self._minors: dict[NodeUuid, int] = {}

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.chooser.getrandbits(128), version=4))

    def snapshot(self, nodes: int, instances: int, **params: object) -> Snapshot:
        number = self.number
        network = Network(
            uuid=NetworkUuid(self.uuid()), name=f"net{number}", network=f"10.{number}.0.0/24"
        )
        group = NodeGroup(
            uuid=GroupUuid(self.uuid()),
            name=f"group{number}",
            networks={network.uuid: {"mode": "bridged", "link": f"br{number}"}},
        )
        members = [self.node(index, group.uuid) for index in range(1, nodes + 1)]
        guests = [self.instance(index, members, network) for index in range(1, instances + 1)]
        cluster = Cluster(
            uuid=self.uuid(),
            name=f"c{number}.example.com",
            master_node=members[0].uuid,
            enabled_disk_templates=("drbd", "plain", "diskless"),
        )
        cluster = msgspec.structs.replace(cluster, **params)
        return Snapshot.of(
            number, cluster, nodes=members, groups=[group], instances=guests, others=[network]
        )

    def node(self, index: int, group: GroupUuid) -> Node:
        address = f"192.168.{self.number}.{index}"
        return Node(
            uuid=NodeUuid(self.uuid()),
            name=f"n{index}.c{self.number}.example.com",
            primary_ip=address,
            secondary_ip=address,
            group=group,
            certificate=f"{self.chooser.getrandbits(256):064x}",
            master_candidate=index == 1 or self.chooser.random() < 0.5,
        )

    def instance(self, index: int, nodes: list[Node], network: Network) -> Instance:
        number, chooser = self.number, self.chooser
        pair = chooser.sample(nodes, 2) if len(nodes) > 1 else nodes
        is_mirrored = len(pair) > 1 and chooser.random() < 0.6
        disks = [
            self.mirror(pair) if is_mirrored else self.volume()
            for _ in range(chooser.randint(1, 3))
        ]
        nic = Nic(
            uuid=self.uuid(),
            mac=f"aa:00:{number:02x}:00:{index // 256:02x}:{index % 256:02x}",
            network=network.uuid if chooser.random() < 0.5 else None,
        )
        if nic.network:
            nic = msgspec.structs.replace(nic, ip=f"10.{number}.0.{index + 1}")
        return Instance(
            uuid=InstanceUuid(self.uuid()),
            name=f"web{index}.c{number}.example.com",
            primary_node=pair[0].uuid,
            secondary_nodes=(pair[1].uuid,) if is_mirrored else (),
            disk_template="drbd" if is_mirrored else "plain",
            disks=tuple(disks),
            nics=(nic,),
            network_port=self._ports.pop() if chooser.random() < 0.5 else None,
        )

    def volume(self) -> Disk:
        name = f"{self.uuid()}.data"
        return Disk(uuid=self.uuid(), size=128, template="plain", logical_id=("xenvg", name))

    def mirror(self, pair: list[Node]) -> Disk:
        return Disk(
            uuid=self.uuid(),
            size=128,
            template="drbd",
            logical_id=(self._ports.pop(),),
            parts={node.uuid: (self.minor(node.uuid),) for node in pair},
            children=(self.volume(), self.volume()),
            secret=f"{self.chooser.getrandbits(160):040x}",
        )

    def minor(self, node: NodeUuid) -> int:
        minor = self._minors.get(node, 0)
        self._minors[node] = minor + 1
        return minor


def cluster(number: int, seed: int = 1, *, nodes: int = 3, instances: int = 4) -> Snapshot:
    """A cluster of its own."""
    return Maker(number, random.Random(f"{number}/{seed}")).snapshot(nodes, instances)


def changed(snapshot: Snapshot, *things: Stored, **cluster_fields: object) -> Snapshot:
    """The same with other objects, or other parameters of the cluster."""
    objects: dict[str, Stored] = {one.uuid: one for one in snapshot.objects()}
    objects.update({one.uuid: one for one in things})
    objects.pop(snapshot.cluster.uuid)
    new = msgspec.structs.replace(snapshot.cluster, **cluster_fields)
    return Snapshot.of(snapshot.position, new, others=objects.values())
