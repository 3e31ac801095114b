"""Commits for ever and prints the key of each acknowledged commit; meant to be killed."""

import asyncio
import itertools
import os
import sys
from pathlib import Path

from ganeti.model.objects import NodeUuid
from ganeti.store.backend import become_master
from ganeti.store.backends import join_cluster
from ganeti.store.embedded import EmbeddedStore
from ganeti.store.interface import Identity, Lease, Put, Transaction
from ganeti.store.ports import alone
from ganeti.store.register import RegisterFile

IDENTITY = Identity("cluster-1", NodeUuid("node-1"))
WRITERS = 8


async def write(store: EmbeddedStore, lease: Lease, numbers: "itertools.count[int]") -> None:
    while True:
        key = f"{lease.epoch}-{next(numbers)}"
        await store.commit(lease, Transaction((Put("instance", key, os.urandom(200)),)))
        os.write(1, f"{key}\n".encode())


async def main(path: Path) -> None:
    register = RegisterFile(path.with_name("register"))
    join_cluster(register, IDENTITY)
    store = await EmbeddedStore.open(path, IDENTITY, alone(IDENTITY.node_uuid, register))
    lease = await become_master(store)
    numbers = itertools.count()
    await asyncio.gather(*(write(store, lease, numbers) for _ in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
