"""Asynchronous conversations with the master of a local cluster."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ganeti.clients.luxi import FINAL
from ganeti.clients.luxi_async import AsyncLuxiClient
from tests.support.local_cluster import LocalCluster
from tests.support.patience import patience

Op = dict[str, Any]


def delay(duration: float = 0, **more: Any) -> Op:
    """An opcode that sleeps."""
    return {"OP_ID": "OP_TEST_DELAY", "duration": duration, **more}


@contextlib.asynccontextmanager
async def connected(cluster: LocalCluster, count: int = 1) -> AsyncIterator[list[AsyncLuxiClient]]:
    """Connections to the master."""
    asyncio.get_running_loop().set_debug(
        False
    )  # stack traces of thousands of callbacks take seconds
    path = cluster.cluster.master.paths.luxi_socket
    clients: list[AsyncLuxiClient] = []
    try:
        for _ in range(count):
            clients.append(await AsyncLuxiClient.connect(path))  # noqa: PERF401 - all are closed, come what may
        yield clients
    finally:
        for client in clients:
            await client.close()


async def submit_many(client: AsyncLuxiClient, jobs: Sequence[Sequence[Op]]) -> list[int]:
    """The ids of jobs that are all accepted."""
    answers = await client.call("SubmitManyJobs", [list(ops) for ops in jobs])
    assert all(is_accepted for is_accepted, _what in answers)
    return [job_id for _is_accepted, job_id in answers]


async def statuses(client: AsyncLuxiClient, ids: Sequence[int]) -> list[str]:
    return [row[0] for row in await client.call("QueryJobs", list(ids), ["status"])]


async def ended(client: AsyncLuxiClient, job_id: int, timeout_s: float = 30) -> str:
    """The final status of a job."""
    info = None
    async with asyncio.timeout(timeout_s * patience()):
        while info is None or info[0] not in FINAL:
            news = await client.call("WaitForJobChange", job_id, ["status"], info, 2**31, 10)
            info = info if news == "nochange" else news[0]
    return str(info[0])


async def all_running(client: AsyncLuxiClient, ids: Sequence[int]) -> None:
    """Return when all these jobs run."""
    async with asyncio.timeout(20 * patience()):
        while set(await statuses(client, ids)) != {"running"}:  # noqa: ASYNC110 - asked of a daemon
            await asyncio.sleep(0.02)
