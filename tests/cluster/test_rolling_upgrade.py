"""A cluster is upgraded node by node, and back: this version and the one before work together (G28).

The version before is the newest release's code, without one that of some changes ago, or of the commit that
`GANETI_FORMER` names; it says of itself that it is older. Each tour makes every changing call that hosts without
real guests can answer; what no tour can do is listed with its reason.
"""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import CONFD, MASTERD, NODED
from ganeti.model.opcode_table import OPCODES
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until

TOP = Path(__file__).resolve().parents[2]
OLDER, SOME_CHANGES = "3.99.0", 20
NODES = (1, 2, 3)
COPIED = "/etc/copied.txt"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.timeout(3000),
    pytest.mark.whole_starts("the programs are those of two versions"),
    pytest.mark.skipif(not (TOP / ".git").exists(), reason="the version before is taken from git"),
]

NOT_TOURED = {
    "OP_CLUSTER_POST_INIT": "for hooks of gnt-cluster init",
    "OP_CLUSTER_DESTROY": "the end of the cluster",
    "OP_BACKUP_PREPARE": "needs a secret that two clusters share",
    "OP_BACKUP_ABANDON": "the same",
    "OP_CLUSTER_RENEW_CRYPTO": "once, between the tours",
    "OP_CLUSTER_ACTIVATE_MASTER_IP": "the cluster's address is that of a host",
    "OP_CLUSTER_DEACTIVATE_MASTER_IP": "the same",
    "OP_OOB_COMMAND": "switches hosts",
    "OP_NODE_POWERCYCLE": "the same",
    "OP_RESTRICTED_COMMAND": "needs a directory of root's",
    "OP_INSTANCE_REPLACE_DISKS": "needs DRBD",
    "OP_INSTANCE_REPAIR": "the same",
    "OP_NODE_MODIFY_STORAGE": "needs LVM",
    "OP_REPAIR_NODE_STORAGE": "the same",
    "OP_NODE_ADD": "a cluster begins with it",
    "OP_NODE_REMOVE": "would end the tour",
    "OP_NODE_RENAME": "never does anything",
    "OP_CLUSTER_COMMAND": "nodes allow it only if their administrators say so",
}


def commit() -> str:
    """The version before."""
    if given := os.environ.get("GANETI_FORMER"):
        return given
    words = ["git", "-C", str(TOP), "describe", "--tags", "--abbrev=0", "--match=v*"]
    tagged = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return tagged or f"HEAD~{SOME_CHANGES}"


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with that version's packages."""
    place = tmp_path_factory.mktemp("former")
    packed = subprocess.run(
        ["git", "-C", str(TOP), "archive", commit(), "src"], capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", place], input=packed, check=True)
    facts = place / "src" / "ganeti" / "__init__.py"
    text, count = re.subn(r'__version__ = ".*"', f'__version__ = "{OLDER}"', facts.read_text())
    assert count == 1
    facts.write_text(text)
    return place / "src"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with this version's packages, as they are now."""
    place = tmp_path_factory.mktemp("ours") / "src"
    shutil.copytree(TOP / "src", place, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return place


class Mixed(LocalCluster):
    """A cluster whose nodes run one of two versions each."""

    def __init__(self, cluster: LocalCluster, former: Path) -> None:
        super().__init__(cluster.cluster)
        self.sources = dict.fromkeys(NODES, former)
        self.tours = 0

    def environment(self, number: int) -> dict[str, str]:
        return {**super().environment(number), "PYTHONPATH": str(self.sources[number])}

    def change(self, number: int, source: Path) -> None:
        """A node ends its daemons, has the other version, and starts them again."""
        self.end(number)
        self.sources[number] = source
        self.begin(number)

    def end(self, number: int) -> None:
        for daemon in (CONFD, MASTERD, NODED):
            self.stop(daemon, number)

    def begin(self, number: int) -> None:
        self.start(NODED, number)
        self.start(MASTERD, number)
        self.start(CONFD, number)

    def force(self, number: int) -> None:
        """Make a node the master whatever versions others have run."""
        words = ["--no-voting", "--yes-do-it"]
        asyncio.run(self._daemons(number).start(MASTERD, words))
        self.start(CONFD, number)

    def version(self, number: int) -> str:
        said = self.run("gnt-cluster", "--version", node=number)
        assert said.status == 0, said.err
        return said.out.strip()

    def do(self, master: int, line: str) -> str:
        """A command on the master."""
        done = self.run(*line.split(), node=master, timeout_s=180)
        assert done.status == 0, f"{line}\n{done.out}{done.err}\n{self.versions()}"
        return done.out

    def versions(self) -> str:
        return ", ".join(f"node{number}: {self.version(number)}" for number in NODES)

    def serves(self, number: int) -> bool:
        return self.run("gnt-cluster", "master-ping", node=number).status == 0


LOSE = "the disks are lost"
TOUR = """
gnt-cluster modify -B memory=32m
gnt-cluster redist-conf
gnt-cluster copyfile {file}
gnt-cluster rename --force --master-ip {address} renamed{tag}.vcluster.test
gnt-cluster rename --force --master-ip {address} cluster.vcluster.test
gnt-cluster repair-disk-sizes
gnt-group add g{tag}
gnt-group modify --alloc-policy last_resort g{tag}
gnt-group assign-nodes g{tag} {other}
gnt-group assign-nodes default {other}
gnt-group rename g{tag} h{tag}
gnt-network add --network 10.9.{tag}.0/24 n{tag}
gnt-network modify --gateway 10.9.{tag}.1 n{tag}
gnt-network rename n{tag} m{tag}
gnt-network connect -N mode=bridged,link=br0 m{tag} default
gnt-network disconnect m{tag} default
gnt-network remove m{tag}
gnt-group remove h{tag}
gnt-instance add -n {first} {noop} --no-name-check --no-ip-check i{tag}.test
gnt-instance shutdown i{tag}.test
gnt-instance modify -B memory=20m,vcpus=2 i{tag}.test
gnt-instance modify --disk add:size=1m i{tag}.test
gnt-instance deactivate-disks i{tag}.test
gnt-instance activate-disks i{tag}.test
gnt-instance grow-disk i{tag}.test 0 1m
gnt-instance reinstall -f i{tag}.test
the disks are lost
gnt-instance recreate-disks i{tag}.test
gnt-instance rename --no-name-check --no-ip-check i{tag}.test j{tag}.test
gnt-instance add-tags j{tag}.test a
gnt-instance remove-tags j{tag}.test a
gnt-instance startup j{tag}.test
gnt-instance reboot j{tag}.test
gnt-backup export -n {second} --shutdown-timeout 1 j{tag}.test
gnt-instance move -f -n {second} --shutdown-timeout 1 j{tag}.test
gnt-instance remove -f j{tag}.test
gnt-backup import -n {third} --src-node {second} --src-dir j{tag}.test -t file --no-name-check --no-ip-check j{tag}.test
gnt-backup remove j{tag}.test
gnt-instance remove -f --shutdown-timeout 1 j{tag}.test
gnt-instance add -n {third} -t sharedfile --disk 0:size=1m --no-install --no-nics --no-name-check --no-ip-check k{tag}.test
gnt-instance startup k{tag}.test
gnt-instance migrate -f k{tag}.test -n {second}
gnt-instance failover -f --shutdown-timeout 1 -n {first} k{tag}.test
gnt-instance remove -f --shutdown-timeout 1 k{tag}.test
gnt-node modify --drained=yes --auto-promote {other}
gnt-node modify --drained=no {other}
gnt-node modify --master-candidate=yes {other}
gnt-node modify --master-candidate=no --auto-promote {other}
gnt-node modify --master-candidate=yes {other}
gnt-cluster verify
"""


def tour(cluster: Mixed, master: int) -> set[str]:
    """Every changing call once; the opcodes that were run."""
    cluster.tours += 1
    names = [cluster.node(number).name for number in NODES]
    other = next(cluster.node(number).name for number in reversed(NODES) if number != master)
    shared = cluster.node(master).paths.below(COPIED)
    shared.parent.mkdir(parents=True, exist_ok=True)
    shared.write_text("copied\n")
    before = int(cluster.do(master, "gnt-job list --no-headers -o id").split()[-1])
    words = {"tag": cluster.tours, "other": other, "file": COPIED}
    words |= dict(zip(("first", "second", "third"), names, strict=True))
    words["address"] = cluster.cluster.master.address
    words["noop"] = " ".join(cluster.noop_options())
    for line in TOUR.strip().splitlines():
        if line == LOSE:
            for path in cluster.disks():
                path.unlink()
        else:
            cluster.do(master, line.format(**words))
    rows = cluster.do(master, "gnt-job list --no-headers --separator=| -o id,summary").splitlines()
    jobs = {int(number): text for number, text in (row.split("|", 1) for row in rows)}
    done = {text for number, text in jobs.items() if number > before}
    return {f"OP_{word.partition('(')[0]}" for text in done for word in text.split(",")}


def lists(cluster: Mixed, master: int) -> dict[str, str]:
    """What the configuration and the queue say, but for what changes by itself."""
    kinds = {
        "node": "name,role,pip,sip,group,tags",
        "group": "name,alloc_policy,node_list",
        "instance": "name,admin_state,pnode,disk.sizes,be/memory,tags,os",
        "job": "id,status,summary",
        "network": "name,network,gateway",
    }
    found = {
        kind: cluster.do(master, f"gnt-{kind} list --no-headers --separator=| -o {fields}")
        for kind, fields in kinds.items()
    }
    cluster_info = cluster.do(master, "gnt-cluster info").splitlines()
    changing = ("Modification time", "State:", "State kept by:")
    # A line is its own key: the other version may show more lines.
    return found | {one: one for one in cluster_info if not one.startswith(changing)}


@pytest.fixture
def cluster(former: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mixed]:
    """Three candidates, made by the version before."""
    monkeypatch.setenv("PYTHONPATH", str(former))
    with local_cluster("--confd", nodes=len(NODES)) as made:
        made.install_noop()
        for node in made.cluster.nodes:
            node.paths.allowed_uploads.write_text(f"{COPIED}\n")
        yield Mixed(made, former)


@pytest.mark.requirement("G28")
def test_node_by_node_and_back(cluster: Mixed, former: Path, ours: Path) -> None:
    assert OLDER in cluster.version(1)
    done = tour(cluster, 1)
    for number in (3, 2):
        cluster.change(number, ours)
        done |= tour(cluster, 1)
    assert cluster.run("gnt-cluster", "master-failover", node=2).status == 0
    done |= tour(cluster, 2)
    refused = cluster.run("gnt-cluster", "master-failover", node=1)
    assert refused.status == 1, "an older version does not follow a newer one unasked"
    assert OLDER in refused.err
    cluster.change(1, ours)
    done |= tour(cluster, 2)
    cluster.do(2, "gnt-cluster renew-crypto --force --new-cluster-certificate")
    changing = {name for name, op in OPCODES.items() if op.host_changing}
    assert changing - done == NOT_TOURED.keys()

    before = lists(cluster, 2)
    for number in NODES:
        cluster.end(number)
        cluster.sources[number] = former
    for number in NODES:
        cluster.start(NODED, number)
    cluster.force(2)
    for number in (1, 3):
        cluster.begin(number)
    wait_until(lambda: cluster.serves(2), "the master of the version before serves")
    assert OLDER in cluster.version(2)
    assert lists(cluster, 2).items() <= before.items()
    tour(cluster, 2)
