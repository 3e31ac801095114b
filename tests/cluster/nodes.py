"""Real daemons of real nodes on loopback addresses, for the cluster tests."""

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ganeti.base import tls
from ganeti.base.paths import Paths
from ganeti.bootstrap import init
from ganeti.bootstrap.daemons import GUARD, MASTERD, NODED, Daemons
from ganeti.model.objects import GroupUuid, Node, NodeUuid
from ganeti.rpc.client import RpcClient
from ganeti.rpc.transport import HttpsTransport

BEFORE_MASTER = init.STEPS[: init.STEPS.index(init.start_master)]
"""What `gnt-cluster init` does up to the node daemon."""


@dataclass(frozen=True)
class TestNode:
    """A node with a directory and an address of its own."""

    __test__ = False

    name: str
    paths: Paths
    address: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "GANETI_ROOTDIR": str(self.paths.root),
            "GANETI_HOSTNAME": self.name,
            "GANETI_ADDRESS": self.address,
        }

    @property
    def daemons(self) -> Daemons:
        return Daemons(self.paths, environment=self.environment)

    @property
    def certificate(self) -> str:
        return tls.fingerprint(self.paths.node_certificate.read_bytes())

    def as_object(self, uuid: str = "") -> Node:
        return Node(
            uuid=NodeUuid(uuid or self.name),
            name=self.name,
            primary_ip=self.address,
            secondary_ip=self.address,
            group=GroupUuid("group"),
            certificate=self.certificate,
        )

    @asynccontextmanager
    async def client(self, epoch: int, master_uuid: str) -> AsyncIterator[RpcClient]:
        """Calls nodes with this node's certificate."""
        context = tls.client_context(
            self.paths.node_certificate, self.paths.node_key, self.paths.authority_certificate
        )
        client = RpcClient(HttpsTransport(context, self.address), lambda: (epoch, master_uuid))
        try:
            yield client
        finally:
            await client.close()

    async def start_command(self, *words: str) -> asyncio.subprocess.Process:
        """A command of this node, as a module of this Python."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *words,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )


class Nodes:
    """Nodes on addresses that nobody else uses; all that was started ends with `close`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._network = f"127.{64 + secrets.randbelow(128)}.{secrets.randbelow(256)}"
        self._made: list[TestNode] = []

    def new(self) -> TestNode:
        number = len(self._made) + 1
        root = self.directory / f"node{number}"
        root.mkdir()
        node = TestNode(f"node{number}.example", Paths(root), f"{self._network}.{number}")
        self._made.append(node)
        return node

    async def cluster(self) -> tuple[TestNode, init.NewCluster]:
        """A node that has made a cluster and runs its node daemon, without a master daemon."""
        node = self.new()
        founded = await init.init_cluster(
            self.options(node), paths=node.paths, daemons=node.daemons, steps=BEFORE_MASTER
        )
        return node, founded

    def options(self, node: TestNode) -> init.InitOptions:
        return init.InitOptions(
            cluster_name="cluster.example",
            node_name=node.name,
            primary_ip=node.address,
            params={
                "enabled_hypervisors": ["fake"],
                "shared_file_storage_dir": str(self.directory / "shared"),
            },
        )

    async def close(self) -> None:
        for node in self._made:
            await node.daemons.stop(MASTERD)
            await node.daemons.stop(NODED)
            await node.daemons.stop(GUARD)
