"""The way back: what a master keeps before it changes what an earlier version has written."""

from pathlib import Path

import pytest

from ganeti import __version__
from ganeti.base.paths import Paths
from ganeti.daemons.master import keep_old_state
from ganeti.simulation.faulty_store import FaultyStore
from ganeti.store.backend import become_master
from ganeti.store.backup import read_backup
from ganeti.store.backup_file import BackupFiles
from ganeti.store.interface import Row
from ganeti.store.worker import Worker
from tests.unit.store.conformance import VOTE, put


def rows(path: Path) -> list[str]:
    with path.open("rb") as file:
        return [item.key for item in read_backup(file.read) if isinstance(item, Row)]


@pytest.mark.requirement("F35", "G28")
async def test_the_first_backup_of_a_version_is_private_and_stays(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    store, worker = FaultyStore(), Worker("rest")
    lease = await become_master(store, VOTE)
    await store.commit(lease, put("old", b"1"))
    backups = BackupFiles(store, worker)
    await keep_old_state(paths, backups)
    kept = paths.state_before(__version__)
    assert kept.stat().st_mode & 0o777 == 0o600
    await store.commit(lease, put("new", b"1"))
    await keep_old_state(paths, backups)
    assert rows(kept) == ["old"]
    await worker.close()
    await store.close()
