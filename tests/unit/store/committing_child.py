"""Commits for ever and prints the key of each acknowledged commit; meant to be killed."""

import asyncio
import itertools
import os
import sys
from pathlib import Path

from ganeti.model.objects import NodeUuid
from ganeti.store.backend import become_master
from ganeti.store.electorate import SoleVoter
from ganeti.store.interface import Identity, Lease, Put, Transaction
from ganeti.store.register import PromiseRequest, RegisterFile
from ganeti.store.sqlite import SqliteStore

IDENTITY = Identity("cluster-1", NodeUuid("node-1"))
WRITERS = 8


async def write(store: SqliteStore, lease: Lease, numbers: "itertools.count[int]") -> None:
    while True:
        key = f"{lease.epoch}-{next(numbers)}"
        await store.commit(lease, Transaction((Put("instance", key, os.urandom(200)),)))
        os.write(1, f"{key}\n".encode())


async def main(path: Path) -> None:
    voter = SoleVoter(RegisterFile(path.with_name("register")))
    await voter.found(PromiseRequest(IDENTITY.cluster_uuid, 0, IDENTITY.node_uuid))
    store = await SqliteStore.open(path, IDENTITY, voter)
    lease = await become_master(store)
    numbers = itertools.count()
    await asyncio.gather(*(write(store, lease, numbers) for _ in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
