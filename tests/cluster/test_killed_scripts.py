"""Scripts that hang on a node end when an administrator kills their job."""

import time
from collections.abc import Iterator

import pytest

from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.patience import patience

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(150),
    pytest.mark.requirement("G9", "G11", "F24"),
]

NAME = "slow.example.com"
IN_TIME_S = 10.0
SCRIPTS = ("create", "attach", "detach", "remove", "grow", "setinfo", "verify")
HANGS = """#!/bin/sh
trap '' TERM
while :; do sleep 1000; done
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(nodes=1) as made:
        made.install_noop()
        provider = made.node(1).paths.extstorage_search_path[0] / "shelf"
        provider.mkdir(parents=True)
        (provider / "parameters.list").write_text("pool Where it lies\n")
        for name in SCRIPTS:
            (provider / name).write_text(HANGS if name == "create" else "#!/bin/sh\nexit 0\n")
            (provider / name).chmod(0o755)
        made.ok("gnt-cluster", "modify", "--enabled-disk-templates=file,sharedfile,diskless,ext")
        yield made


@pytest.mark.parametrize("kind", ["OS", "provider"])
def test_a_hanging_script_ends_with_its_job(cluster: LocalCluster, kind: str) -> None:
    options = cluster.noop_options(sleep="1000")
    word = "/noop/create"
    if kind == "provider":
        word = "/shelf/create"
        options[options.index("-t") + 1] = "ext"
        options[options.index("--disk") + 1] = "0:size=1m,provider=shelf"
    added = cluster.ok("gnt-instance", "add", "--submit", *options, "-n", "node1", NAME)
    job_id = added.out.split()[-1]

    def script_runs() -> bool:
        return any(word in command for command in cluster.processes().values())

    wait_until(script_runs, "the script runs", 30)
    said = cluster.run("gnt-job", "cancel", "--force", job_id)
    assert said.status == 1
    assert "--kill" in said.out
    assert script_runs()
    begun = time.monotonic()
    cluster.ok("gnt-job", "cancel", "--force", "--kill", "--yes-do-it", job_id)
    wait_until(lambda: not script_runs(), "the script has ended", IN_TIME_S)
    assert time.monotonic() - begun < IN_TIME_S * patience()
    failure = cluster.run("gnt-job", "watch", job_id)
    assert failure.status != 0
    assert cluster.value("job", job_id, "status") == "error"
    assert not cluster.disks()
    assert NAME not in cluster.names("instance")
    assert not [words for words in cluster.processes().values() if "sleep 1000" in words]
    cluster.ok("gnt-cluster", "verify")
