"""Commits per second of the embedded state store, and how long one takes; on a real disk."""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

from machine import spin_ms, sync_ms

from ganeti.model.objects import NodeUuid
from ganeti.store.backend import become_master
from ganeti.store.embedded import EmbeddedStore
from ganeti.store.interface import Identity, Lease, Put, Transaction
from ganeti.store.ports import alone
from ganeti.store.register import MemoryRegister, Promise, Register

IDENTITY = Identity("cluster", NodeUuid("node"))
VALUE = b"x" * 1500  # a job of one opcode
CONCURRENT = (1, 16, 256)


async def commits(store: EmbeddedStore, lease: Lease, writers: int, seconds: float) -> list[float]:
    """Return how long each commit took, in seconds, with so many writers at once."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def write(writer: int) -> None:
        number = 0
        while (begun := time.perf_counter()) < end:
            key = f"{writers}-{writer}-{number % 50}"
            await store.commit(lease, Transaction((Put("job", key, VALUE),)))
            took.append(time.perf_counter() - begun)
            number += 1

    await asyncio.gather(*(write(writer) for writer in range(writers)))
    return took


async def load(store: EmbeddedStore) -> float:
    """Seconds to load all rows."""
    begun = time.perf_counter()
    async for _ in store.load():
        pass
    return time.perf_counter() - begun


async def measure(directory: Path, seconds: float) -> dict[str, float]:
    """All figures of a new store in `directory`."""
    node = IDENTITY.node_uuid
    ports = alone(node, MemoryRegister(Register(IDENTITY.cluster_uuid, Promise(0, node))))
    store = await EmbeddedStore.open(directory / "state.db", IDENTITY, ports)
    lease = await become_master(store)
    figures: dict[str, float] = {}
    for writers in CONCURRENT:
        before = store.statistics()
        took = await commits(store, lease, writers, seconds)
        after = store.statistics()
        assert after.transactions - before.transactions == len(took)
        figures[f"commits_per_second_{writers}"] = round(len(took) / seconds)
        figures[f"commit_p50_ms_{writers}"] = round(statistics.median(took) * 1000, 3)
        figures[f"commits_per_sync_{writers}"] = round(len(took) / (after.syncs - before.syncs), 1)
    figures["load_ms"] = round(await load(store) * 1000, 1)
    await store.close()
    return figures


def main() -> None:
    """Print the figures, on the disk that holds the current directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    seconds = 0.3 if parser.parse_args().quick else 3.0
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        figures = asyncio.run(measure(Path(name), seconds))
        figures |= {"sync_ms": sync_ms(Path(name)), "spin_ms": spin_ms()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
