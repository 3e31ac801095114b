"""What a node daemon can say about the state that a master daemon writes."""

from pathlib import Path

import pytest

from ganeti.jobs.record import JOB_KIND, job_key
from ganeti.store.backend import become_master
from ganeti.store.embedded import EmbeddedStore
from ganeti.store.interface import Identity, Put, Transaction
from ganeti.store.ports import alone
from ganeti.store.register import MemoryRegister, Promise, Register
from ganeti.store.stored_tail import read_stored_tail
from tests.unit.store.conformance import CLUSTER, NODE


@pytest.mark.requirement("G8")
async def test_the_tail_is_that_of_the_owner_while_it_has_the_file_open(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    ports = alone(NODE, MemoryRegister(Register(CLUSTER, Promise(0, NODE))))
    store = await EmbeddedStore.open(path, Identity(CLUSTER, NODE), ports)
    try:
        lease = await become_master(store)
        rows = [Put(JOB_KIND, job_key(number), b"{}") for number in (9, 100, 11)]
        receipt = await store.commit(lease, Transaction((*rows, Put("node", "9999", b"{}"))))
        found = read_stored_tail(path)
        assert found is not None
        assert found.tail.position == receipt.position
        assert found.tail.digest == store.statistics().digest
        assert found.last_job_id == 100
    finally:
        await store.close()
    assert read_stored_tail(path) == found


def test_there_is_no_tail_without_a_state_or_with_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    assert read_stored_tail(path) is None
    assert not path.exists()
    path.write_bytes(b"garbage" * 1000)
    assert read_stored_tail(path) is None
    path.unlink()
    path.mkdir()
    assert read_stored_tail(path) is None
