"""The pool of user ids, from the command line to the files and programs of every node."""

import subprocess
import sys

import pytest

from ganeti.bootstrap.daemons import MASTERD
from ganeti.vcluster.layout import UID_LOCKS
from tests.support.local_cluster import LocalCluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SEEDS_PROGRAM = """
from ganeti import ssconf
from ganeti import uidpool
ss = ssconf.SimpleStore()
uid_pool = uidpool.ParseUidPool(ss.GetUidPool(), separator="\\n")
all_uids = set(uidpool.ExpandUidPool(uid_pool))
uid = uidpool.RequestUnusedUid(all_uids)
uid.Unlock()
print(uid.GetUid() in all_uids, len(all_uids), uid)
uidpool.ReleaseUid(uid)
"""


def wait_for_facts(cluster: LocalCluster, wanted: str) -> None:
    """Wait until every node says so of the pool."""
    files = [node.paths.data / "ssconf_uid_pool" for node in cluster.cluster.nodes]
    wait_until(
        lambda: all(file.read_text() == wanted for file in files), f"all nodes know {wanted!r}"
    )


def shown(cluster: LocalCluster) -> str:
    lines = cluster.ok("gnt-cluster", "info").lines
    [line] = [line for line in lines if line.strip().startswith("uid pool:")]
    return line.partition(":")[2].strip()


@pytest.mark.requirement("S104", "S105", "S106", "S108", "S109")
def test_each_change_reaches_all_nodes_and_info_shows_what_modify_takes(
    cluster: LocalCluster, own_user_ids: range
) -> None:
    first = own_user_ids[0]
    low, high, more = (
        f"{first}-{first + 4}",
        f"{first + 5}-{first + 9}",
        f"{first + 20}-{first + 21}",
    )
    single = first + 30
    cluster.ok("gnt-cluster", "modify", "--uid-pool=")
    assert shown(cluster) == ""
    for words, wanted in (
        (["--uid-pool", f"{first}-{first + 9},{single}"], f"{first}-{first + 9}\n{single}\n"),
        (["--add-uids", more], f"{first}-{first + 9}\n{more}\n{single}\n"),
        (["--remove-uids", f"{low},{single}"], f"{high}\n{more}\n"),
    ):
        cluster.ok("gnt-cluster", "modify", *words)
        wait_for_facts(cluster, wanted)
    definition = shown(cluster)
    assert definition == f"{high},{more}"
    cluster.ok("gnt-cluster", "modify", "--uid-pool", "70000")
    cluster.ok("gnt-cluster", "modify", "--uid-pool", definition)
    assert shown(cluster) == definition
    wait_for_facts(cluster, f"{high}\n{more}\n")


@pytest.mark.requirement("S106", "S107", "A65")
def test_what_cannot_be_is_refused_and_changes_nothing(
    cluster: LocalCluster, own_user_ids: range
) -> None:
    first = own_user_ids[0]
    pool = f"{first + 5}-{first + 9}"
    cluster.ok("gnt-cluster", "modify", "--uid-pool", pool)
    for words in (
        ["--uid-pool", "5-1"],
        ["--uid-pool", "1-2-3"],
        ["--uid-pool", "x"],
        ["--uid-pool", "0"],
        ["--add-uids", f"{first + 9}-{first + 10}"],
        ["--remove-uids", str(first + 4)],
        ["--uid-pool", "1-10"],  # services of this host
    ):
        done = cluster.run("gnt-cluster", "modify", *words)
        assert done.status != 0, words
        assert "Traceback" not in done.err
    assert shown(cluster) == pool


@pytest.mark.requirement("S101", "S104", "S110")
def test_a_program_on_a_plain_node_gets_an_id_with_the_master_down(
    cluster: LocalCluster, own_user_ids: range
) -> None:
    pool = f"{own_user_ids[5]}-{own_user_ids[9]}"
    cluster.ok("gnt-cluster", "modify", "--uid-pool", pool)
    wait_for_facts(cluster, f"{pool}\n")
    cluster.kill(MASTERD)
    done = subprocess.run(
        [sys.executable, "-c", SEEDS_PROGRAM],
        env=cluster.node(3).environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    is_in_pool, count, uid = done.stdout.split()
    assert (is_in_pool, count) == ("True", "5")
    assert not (UID_LOCKS / uid).exists()
    assert not (cluster.node(3).paths.run / "uid-pool").exists()
