"""A three-node cluster of real daemons for benchmarks, on loopback addresses."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.vcluster import lifecycle
from ganeti.vcluster.layout import VirtualCluster, plan


@contextlib.contextmanager
def local_cluster(nodes: int = 3) -> Iterator[VirtualCluster]:
    """A running cluster with the fake hypervisor, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="gnt-bench-") as name:
        cluster = plan(Path(name) / "c", nodes, hypervisor="fake", netns=False, guest=None)
        with contextlib.redirect_stdout(sys.stderr):
            lifecycle.up(cluster, _say)
            # What a fresh cluster still does by itself must not be measured.
            asyncio.run(asyncio.sleep(2))
        try:
            yield cluster
        finally:
            with contextlib.redirect_stdout(sys.stderr):
                lifecycle.down(cluster, _say)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


@contextlib.asynccontextmanager
async def connected(socket: Path) -> AsyncIterator[AsyncLuxiClient]:
    """A connection to the master."""
    client = await AsyncLuxiClient.connect(socket)
    try:
        yield client
    finally:
        await client.close()
