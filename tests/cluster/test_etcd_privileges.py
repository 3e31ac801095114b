"""A cluster in etcd whose daemons run under users of their own: root's rights are nowhere needed for the state."""

import os
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.permissions import problems
from ganeti.base.state_kinds import ETCD_SERVER
from ganeti.bootstrap.daemons import MASTERD, NODED, Daemons
from ganeti.store.etcd.files import EtcdFiles
from ganeti.store.settings import state_settings
from tests.cluster.test_privileges import Separated, as_user, python, rights
from tests.support.etcd_servers import require_etcd

__all__ = ["python"]  # a fixture
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(200),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make users"),
]
ADDRESS = f"127.78.{os.getpid() // 254 % 256}.{os.getpid() % 254 + 1}"


class SeparatedEtcd(Separated):
    """At an address of its own."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "GANETI_ADDRESS": ADDRESS}


@pytest.fixture(scope="module")
def separated(python: str) -> Iterator[Separated]:
    require_etcd()
    root = Path(tempfile.mkdtemp(prefix="gnt"))
    root.chmod(0o755)
    made = SeparatedEtcd(python, root, f"gt{secrets.token_hex(3)}")
    try:
        made.setup("--prefix", made.prefix)
        made.cluster(
            "init", "--enabled-hypervisors=fake", "--enabled-disk-templates=diskless",
            f"--primary-ip={ADDRESS}", "--file-storage-dir=", "--shared-file-storage-dir=",
            "--node-port=21812", "--state=etcd", "cluster.example",
        )  # fmt: skip
        yield made
    finally:
        made.run("ganeti.cli.gnt_cluster", "destroy", "--yes-do-it")
        for name in (MASTERD, NODED, ETCD_SERVER.daemon):
            process = Daemons(made.paths).status(name).process
            if process is not None:
                os.kill(process.pid, 9)
        made.run("ganeti.bootstrap.users_setup", "--remove")
        shutil.rmtree(root)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def works(separated: Separated) -> None:
    """Jobs run, verify finds nothing, and every file belongs to whom it should."""
    member = (os.getpid() + 100_000, separated.users.admin)
    separated.cluster("add-tags", secrets.token_hex(4), user=member)
    separated.cluster("verify")
    assert problems(separated.paths, separated.users) == []


@pytest.mark.requirement("S224", "S227", "G23")
def test_etcd_runs_as_the_masters_user_with_private_data(separated: Separated) -> None:
    account = separated.users.accounts["masterd"]
    supervisor = separated.pid(ETCD_SERVER.daemon)
    (server,) = children(supervisor)
    for pid in (separated.pid(MASTERD), supervisor, server):
        found = rights(pid)
        assert set(found["Uid"].split()) == {str(account.uid)}
        assert int(found["CapEff"], 16) == int(found["CapPrm"], 16) == 0
    paths = separated.paths
    assert stat.S_IMODE(EtcdFiles(paths).directory.stat().st_mode) == 0o700
    stranger = (separated.users.accounts["rapi"].uid, separated.users.daemons)
    for path in (EtcdFiles(paths).key, EtcdFiles(paths).settings, EtcdFiles(paths).data):
        words = as_user(*stranger, ["test", "-r", str(path)])
        assert subprocess.run(words, check=False).returncode != 0, path
    works(separated)


@pytest.mark.requirement("S224", "G1")
def test_state_moves_keep_the_users_of_daemons(
    separated: Separated,
) -> None:
    for kind in ("embedded", "etcd"):
        separated.cluster("modify", f"--state={kind}")
        assert state_settings(separated.paths).kind == kind
        uid = separated.users.accounts["masterd"].uid
        assert set(rights(separated.pid(MASTERD))["Uid"].split()) == {str(uid)}
        works(separated)


@pytest.mark.requirement("S224", "G1")
def test_a_backup_is_restored_and_a_killed_server_comes_back_under_its_user(
    separated: Separated,
) -> None:
    path = separated.paths.data / "backup"
    separated.cluster("backup", str(path))
    (server,) = children(separated.pid(ETCD_SERVER.daemon))
    os.kill(server, signal.SIGKILL)
    os.kill(separated.pid(MASTERD), signal.SIGKILL)
    separated.cluster("restore", "--yes-do-it", str(path))
    assert children(separated.pid(ETCD_SERVER.daemon)) != [server]
    works(separated)
