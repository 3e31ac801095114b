"""A node's own copy of the state, apart from who writes it."""

import asyncio
import threading
from pathlib import Path

import pytest

from ganeti.store.backend import become_master
from ganeti.store.interface import ZERO, Identity
from ganeti.store.local_log import LocalLog, Options
from tests.support.replicas import Replicas
from tests.unit.store.conformance import CLUSTER, NODE, OTHER, VOTE, put
from tests.unit.store.scripted_connection import Script


@pytest.mark.requirement("G1", "F2")
async def test_a_log_whose_writer_is_cancelled_knows_what_it_has_written(tmp_path: Path) -> None:
    """The end of a session comes while the disk syncs; what is said of the log is what is there."""
    replicas = Replicas(tmp_path, (NODE,), CLUSTER)
    store = await replicas.open(NODE)
    await store.commit(await become_master(store, VOTE), put("a"))
    sent = await store._local.entries_after(ZERO)
    script, is_synced, begins = Script(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        loop.call_soon_threadsafe(begins.set)
        is_synced.wait()

    log = LocalLog(
        tmp_path / "other.db",
        Identity(CLUSTER, OTHER),
        Options(connect=script.connect, sync=script.sync),
        written=lambda entries: None,
        synced=lambda entries: None,
        lost=lambda reason: None,
    )
    await log.open()
    script.waits["SYNC"] = hold
    writing = asyncio.create_task(log.append(sent))
    await begins.wait()
    writing.cancel()
    await asyncio.sleep(0)
    is_synced.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await log.drained()
    await log.commits.run(lambda: None)
    assert log.database.history.position == sent[-1].position
    assert log.tail == log.database.history
    await log.close()
    await replicas.close()
