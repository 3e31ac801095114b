"""A three-node cluster of real daemons for benchmarks, on loopback addresses."""

import contextlib
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from sizes import SETTLED_S

from ganeti.clients.luxi import LuxiClient
from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.vcluster import lifecycle
from ganeti.vcluster.layout import VirtualCluster, plan

BLOCKED = re.compile(r"loop was blocked for (\d+) ms")


@contextlib.contextmanager
def local_cluster(
    nodes: int = 3,
    state: str = "embedded",
    *,
    confd: bool = False,
    settled_s: float = SETTLED_S,
) -> Iterator[VirtualCluster]:
    """A running cluster with the fake hypervisor, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="gnt-bench-") as name:
        cluster = plan(
            Path(name) / "c",
            nodes,
            hypervisor="fake",
            netns=False,
            guest=None,
            state=state,
            confd=confd,
        )
        with contextlib.redirect_stdout(sys.stderr):
            lifecycle.up(cluster, _say)
            # What a fresh cluster still does by itself must not be measured.
            time.sleep(settled_s)
        try:
            yield cluster
        finally:
            with contextlib.redirect_stdout(sys.stderr):
                lifecycle.down(cluster, _say)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def loop_block_ms(cluster: VirtualCluster) -> float:
    """The longest block of the master's loop that its watchdog has seen; 0 if none was above 50 ms.

    What blocked it is said on standard error.
    """
    log = (cluster.master.paths.log / "master-daemon.log").read_text(errors="replace")
    for line in log.splitlines():
        if "the loop was blocked" in line:
            _say(line)
    return max((float(found) for found in BLOCKED.findall(log)), default=0.0)


def run_job(cluster: VirtualCluster, **op: object) -> None:
    """Run a job of one opcode to its end; RuntimeError if it fails."""
    with LuxiClient(cluster.master.paths) as client:
        job = client.submit_job([op])
        for _change in client.wait_for_job(job):
            pass
        [[status, result]] = client.call("QueryJobs", [job], ["status", "opresult"])
    if status != "success":
        raise RuntimeError(str(result))


@contextlib.asynccontextmanager
async def connected(socket: Path) -> AsyncIterator[AsyncLuxiClient]:
    """A connection to the master."""
    client = await AsyncLuxiClient.connect(socket)
    try:
        yield client
    finally:
        await client.close()
