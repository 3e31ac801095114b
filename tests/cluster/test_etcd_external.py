"""An etcd that somebody else runs, with TLS and a password, from the cluster's making to a failover."""

import contextlib
import sqlite3
from collections.abc import Iterator

import pytest

from ganeti.base import tls
from ganeti.bootstrap.daemons import MASTERD
from ganeti.store.etcd.files import EtcdFiles
from ganeti.store.etcd.gateway import Gateway, Nothing
from ganeti.store.etcd.messages import put
from ganeti.store.etcd.settings import Access
from ganeti.store.settings import state_settings
from tests.support.etcd_servers import SecuredEtcd, secured_etcd
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.masters import (
    NODES,
    Load,
    fail_over,
    first_job,
    master_of,
    serves,
    verified,
)

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(400)]
SOON_S = 90.0


@pytest.fixture(scope="module")
def etcd() -> Iterator[SecuredEtcd]:
    with secured_etcd() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(etcd: SecuredEtcd) -> Iterator[LocalCluster]:
    options = (
        f"--state-urls={etcd.url}",
        f"--state-authority={etcd.authority}",
        f"--state-credentials={etcd.credentials}",
    )
    words = [f"--init-option={option}" for option in options]
    with local_cluster("--state", "etcd", *words, nodes=3) as made:
        yield made


async def test_a_signed_token_that_is_older_than_a_change_of_users_is_renewed() -> None:
    with secured_etcd(has_signed_tokens=True) as etcd:
        context = tls.authority_context(etcd.authority)
        ours, of_root = (
            Gateway(Access((etcd.url,), context, user, password))
            for user, password in (("cluster", "its password"), ("root", "of-root"))
        )
        await ours.txn([], [put(b"/ganeti/x", b"1")])
        body = {"name": "another", "password": "x"}
        await of_root._write("/v3/auth/user/add", body, Nothing, 5.0)
        await ours.txn([], [put(b"/ganeti/x", b"2")])
        assert (await ours.range(b"/ganeti/x")).kvs[0].value == b"2"
        await ours.close()
        await of_root.close()


def test_a_cluster_is_made_in_an_etcd_of_others_and_runs_no_server(cluster: LocalCluster) -> None:
    for node in NODES:
        settings = state_settings(cluster.node(node).paths)
        assert (settings.kind, settings.is_managed) == ("etcd", False)
        assert not EtcdFiles(cluster.node(node).paths).data.exists()
    shown = cluster.run("gnt-cluster", "info", node=master_of(cluster))
    assert "State kept by: etcd (on other hosts)" in shown.out, shown.err
    verified(cluster)


@pytest.mark.requirement("G1", "G2", "G4", "G19")
def test_masters_are_handed_over_and_replaced_and_lose_nothing(cluster: LocalCluster) -> None:
    target = next(node for node in NODES if node != master_of(cluster))
    with Load(cluster) as load:
        fail_over(cluster, target)
        assert master_of(cluster) == target
        cluster.kill(MASTERD, target)
        first_job(cluster, *[node for node in NODES if node != target])
        cluster.start(MASTERD, target)
        load.judge(master_of(cluster))


@pytest.mark.requirement("G1", "G17")
def test_jobs_are_archived_while_a_candidate_is_down_and_it_gets_them_when_it_is_back(
    cluster: LocalCluster,
) -> None:
    master = master_of(cluster)
    away = next(node for node in NODES if node != master)
    cluster.kill(MASTERD, away)
    done = cluster.run("gnt-debug", "delay", "0", "--submit", node=master)
    job = done.out.split()[-1]
    for words in (("wait", job), ("archive", job)):
        done = cluster.run("gnt-job", *words, node=master, timeout_s=SOON_S)
        assert done.status == 0, done.out + done.err
    cluster.start(MASTERD, away)

    def has_it() -> bool:
        path = cluster.node(away).paths.job_archive
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as archive:
            found = archive.execute("SELECT count(*) FROM jobs WHERE id = ?", (int(job),))
            return bool(found.fetchone()[0])

    wait_until(has_it, "it has what was archived in its absence", SOON_S)


@pytest.mark.leaks_allowed("the server of etcd is another one afterwards")
@pytest.mark.requirement("G1", "G16")
def test_cluster_continues_after_an_outage_of_etcd(
    cluster: LocalCluster, etcd: SecuredEtcd
) -> None:
    master = master_of(cluster)
    with Load(cluster) as load:
        etcd.server.kill()
        try:
            wait_until(lambda: not serves(cluster, master), "there is no master", SOON_S)
        finally:
            etcd.start()
        first_job(cluster, *NODES)
        load.judge(master_of(cluster))
    verified(cluster)
