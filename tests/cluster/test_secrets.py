"""Where secrets can be found after a working day: in their own files, which nobody else may read (A57)."""

import asyncio
import contextlib
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import CONFD, MASTERD, NODED, Daemons
from ganeti.clients.luxi import LuxiClient
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(900)]

ROUNDS = 6
STATE = ("state.db", "state.db-wal", "archive.db", "archive.db-wal")


class Canaries:
    """Values that occur nowhere else, and the names of the files that may have them."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.secret, self.private, self.password = (secrets.token_hex(16) for _ in range(3))
        paths = cluster.node(1).paths
        self.homes: dict[str, tuple[str, ...]] = {
            self.secret: (),
            self.private: STATE,
            self.password: (paths.rapi_users.name,),
            paths.cluster_domain_secret.read_text().strip(): (paths.cluster_domain_secret.name,),
            paths.confd_key.read_text().strip(): (paths.confd_key.name,),
        }

    def found(self, top: Path) -> list[str]:
        """Files that have one and should not, or that others may read."""
        wrong = []
        for path in (one for one in top.rglob("*") if one.is_file()):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue  # a set of ssconf files that another has replaced
            for value, homes in self.homes.items():
                if value.encode() in content and (
                    path.name not in homes or stat.S_IMODE(path.stat().st_mode) != 0o600
                ):
                    wrong.append(f"{path} ({list(self.homes).index(value)})")
        return wrong


@contextlib.contextmanager
def watched_words(values: list[str]) -> Iterator[list[str]]:
    """The command lines of all processes meanwhile that have one of the values."""
    seen: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError):
                    if entry.name.isdecimal():
                        words = (entry / "cmdline").read_bytes().decode(errors="replace")
                        seen.extend(words for value in values if value in words)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@pytest.fixture
def talkative() -> Iterator[LocalCluster]:
    """A cluster whose daemons log everything."""
    with local_cluster("--confd", "--rapi") as cluster:
        cluster.install_noop()
        for number in (1, 2, 3):
            node = cluster.node(number)
            listed = node.paths.os_search_path[0] / "noop" / "parameters.list"
            listed.write_text(f"{listed.read_text()}password a secret\nkey another\n")
            daemons = Daemons(node.paths, environment=node.environment())
            for name in (CONFD, MASTERD, NODED):
                cluster.stop(name, number)
            for name in (NODED, MASTERD, CONFD):
                asyncio.run(daemons.start(name, ["--debug"]))
        wait_until(
            lambda: cluster.run("gnt-cluster", "master-ping").status == 0, "the master serves"
        )
        yield cluster


def done(client: LuxiClient, op: dict[str, object]) -> str:
    """Run one opcode; how it ended."""
    job = client.call("SubmitJob", [op])
    while (row := client.call("QueryJobs", [job], ["status"])[0])[0] not in ("success", "error"):
        time.sleep(0.02)
    return str(row[0])


@pytest.mark.requirement("A57", "G23")
def test_after_fifty_operations_no_secret_is_outside_its_home(talkative: LocalCluster) -> None:
    canaries = Canaries(talkative)
    users = talkative.node(1).paths.rapi_users
    users.write_text(f"admin {canaries.password} write\n")
    users.chmod(0o600)
    talkative.ok("gnt-cluster", "redist-conf")
    ends: list[str] = []
    with watched_words([*canaries.homes]) as seen, talkative.luxi() as client:
        for number in range(ROUNDS):
            name = f"i{number}.example.com"
            create = {
                "OP_ID": "OP_INSTANCE_CREATE",
                "instance_name": name,
                "mode": "create",
                "disk_template": "file",
                "disks": [{"size": 1}],
                "nics": [],
                "pnode": f"node{number % 3 + 1}.vcluster.test",
                "os_type": "noop",
                "osparams": {
                    "record": str(talkative.record),
                    "fail": "yes" if number % 3 == 2 else "no",
                },
                "osparams_private": {"key": canaries.private},
                "osparams_secret": {"password": canaries.secret},
                "name_check": False,
                "ip_check": False,
                "beparams": {"memory": 16},
            }
            shared = {"instance_name": name}
            ends.append(done(client, create))
            ends += [
                done(client, {"OP_ID": op, **more, **(shared if "_INSTANCE_" in op else {})})
                for op, more in (
                    ("OP_INSTANCE_REBOOT", {"reboot_type": "hard"}),
                    ("OP_INSTANCE_SET_PARAMS", {"osparams_private": {"key": canaries.private}}),
                    ("OP_INSTANCE_SHUTDOWN", {"timeout": 1}),
                    ("OP_INSTANCE_REINSTALL", {"osparams_secret": {"password": canaries.secret}}),
                    ("OP_INSTANCE_STARTUP", {}),
                    ("OP_INSTANCE_MIGRATE", {}),
                    ("OP_TAGS_SET", {"kind": "instance", "name": name, "tags": ["t"]}),
                    ("OP_CLUSTER_VERIFY", {}),
                )
            ]
            job = client.call("SubmitJob", [{**create, "instance_name": f"q{number}.test"}])
            client.call("CancelJob", job)
    assert len(ends) >= 50
    assert {"success", "error"} <= set(ends)
    assert seen == []
    assert canaries.found(talkative.directory) == []
    shown = [
        talkative.ok("gnt-job", "info", row.split()[0]).out
        for row in talkative.ok("gnt-job", "list", "--no-headers", "-o", "id").lines[-12:]
    ]
    shown += [
        talkative.ok(*words).out
        for words in (
            ("gnt-instance", "info", "--all"),
            ("gnt-cluster", "info"),
            ("gnt-instance", "list", "-o", "name,osparams,custom_osparams"),
        )
    ]
    assert not [text for text in shown if any(value in text for value in canaries.homes)]
    log = talkative.master_log()
    assert "DEBUG" in log or "debug" in log
    talkative.kill(MASTERD)
    assert canaries.found(talkative.directory) == []
