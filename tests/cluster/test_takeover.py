"""A cluster becomes a configuration of the original, and a cluster of it again."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import CONFD, MASTERD, NODED, Daemons
from ganeti.bootstrap.destroy import forget_cluster
from tests.support.debian_ganeti import opened_by_the_original
from tests.support.local_cluster import LocalCluster, local_cluster
from tests.support.patience import text_of

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(300)]
TOKEN_LENGTH = 100
CHANGES = {"ctime", "mtime", "serial_no", "master_candidate"}
"""Fields that each change of an object changes, and who is a candidate, which the cluster decides."""


def meaning(path: Path) -> Any:
    """A configuration without what each change changes."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without(one) for name, one in value.items() if name not in CHANGES}
        return [without(one) for one in value] if isinstance(value, list) else value

    return without(json.loads(path.read_text()))


def forget(cluster: LocalCluster) -> None:
    """Both nodes are fresh hosts again; what runs on them runs on."""
    for node in cluster.cluster.nodes:
        daemons = Daemons(node.paths, environment=node.environment())
        for name in (CONFD, MASTERD, NODED):
            asyncio.run(daemons.stop(name))
        forget_cluster(node.paths)


def add_again(cluster: LocalCluster, number: int) -> None:
    node = cluster.node(number)
    with subprocess.Popen(
        node.words(["ganeti-node-join"]),
        env=node.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as listener:  # fmt: skip
        token = next(
            word for line in listener.stdout or () if len(word := line.strip()) > TOKEN_LENGTH
        )
        add = ["gnt-node", "add", "--readd", "--token-file=-", node.name]
        done = cluster.run(*add, stdin=token + "\n")
        assert done.status == 0, done.err
        text_of(listener, 60)


def test_a_cluster_is_exported_imported_and_the_same_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first.data", tmp_path / "second.data"
    with local_cluster(nodes=2) as cluster:
        for number in (1, 2):
            cluster.ok(
                "gnt-instance", "add", "-t", "diskless", "--no-install", "-n", f"node{number}",
                "-B", "memory=256,vcpus=2", "-O", "a=b", "--tags=one", f"i{number}.example.com",
            )  # fmt: skip
        cluster.ok("gnt-cluster", "modify", "--candidate-pool-size=2", "--uid-pool=61000-61010")
        cluster.ok("gnt-network", "add", "--network=192.0.2.0/24", "--gateway=192.0.2.1", "lan")
        cluster.ok("gnt-network", "connect", "lan", "--nic-parameters=mode=routed,link=100")
        cluster.ok(
            "gnt-filter",
            "add",
            "--action=ACCEPT",
            '--predicates=[["jobid", [">", "id", "watermark"]]]',
        )
        mark = int(cluster.ok("gnt-filter", "list", "--no-headers", "-o", "watermark").out)
        assert mark
        cluster.ok("gnt-cluster", "export", str(first))
        assert first.stat().st_mode & 0o777 == 0o600
        shown = tmp_path / "shown"
        cluster.ok("python", "-m", "ganeti.tools.sanitize_config", str(shown))
        left = shown.read_text()
        assert [one for one in ("i1.example.com", "vcluster.test", "192.0.2.") if one in left] == []
        assert '"name": "instance2.example.com"' in left
        before = cluster.ok("gnt-instance", "list", "-o", "name,pnode,status,os,be/memory").lines
        forget(cluster)

        plan = cluster.ok("gnt-cluster", "import", "--dry-run", str(first)).out
        assert "becomes the master" in plan
        assert "add --readd node2" in plan
        assert not Paths(Path(cluster.node(1).root)).node_certificate.exists()
        cluster.ok("gnt-cluster", "import", str(first))
        assert "watcher" in cluster.ok("gnt-cluster", "watcher", "info").out
        assert cluster.value("node", "node2", "role") == "O"
        # A node that has not joined yet is not offline for the original, whose node it is still.
        cluster.ok("gnt-cluster", "export", str(second))
        assert meaning(second)["nodes"] == meaning(first)["nodes"]
        add_again(cluster, 2)
        assert (
            cluster.ok("gnt-instance", "list", "-o", "name,pnode,status,os,be/memory").lines
            == before
        )
        cluster.ok("gnt-cluster", "verify")
        jobs = cluster.ok("gnt-job", "list", "--no-headers", "-o", "id").lines
        assert min(map(int, jobs)) > mark
        cluster.ok("gnt-cluster", "export", str(second))
        for table, things in meaning(first).items():
            assert meaning(second)[table] == things
        assert "already" in cluster.fails("gnt-cluster", "import", str(first))
    said = opened_by_the_original(second)
    # A virtual cluster has no address of its own.
    assert [one for one in said["wrong"] if "cluster_ip" not in one] == []
    assert said["upgrade"] == 0
    assert sorted(said["instances"]) == ["i1.example.com", "i2.example.com"]
    assert set(said["memory"].values()) == {256}
