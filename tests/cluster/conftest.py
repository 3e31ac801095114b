"""One cluster on the fake hypervisor for all tests of a module: making one takes seconds."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from tests.support.local_cluster import LocalCluster, local_cluster

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def module_cluster() -> Iterator[LocalCluster]:
    with local_cluster() as cluster:
        cluster.install_noop()
        yield cluster


@pytest.fixture
def cluster(module_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The module's cluster, as every test finds it: all daemons run, and there is no instance."""
    yield module_cluster
    for number in (1, 2, 3):
        module_cluster.start(NODED, number)
    module_cluster.start(MASTERD)
    for name in sorted(module_cluster.names("instance")):
        module_cluster.ok("gnt-instance", "remove", "-f", "--shutdown-timeout=0", name)


@pytest.fixture
def new_name() -> Callable[[], str]:
    """Names of instances that nobody else has."""
    return lambda: f"i{next(_numbers)}.example.com"
