"""One cluster on the fake hypervisor for all tests of a module: making one takes seconds."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED
from tests.cluster.nodes import Nodes
from tests.support.local_cluster import LocalCluster, local_cluster, short_directory
from tests.support.shared_cluster import SharedCluster, shared_cluster

_numbers = itertools.count(1)


@contextmanager
def with_noop() -> Iterator[LocalCluster]:
    with local_cluster() as cluster:
        cluster.install_noop()
        yield cluster


def tidy(cluster: LocalCluster) -> None:
    for number in (1, 2, 3):
        cluster.start(NODED, number)
    cluster.start(MASTERD)
    for name in sorted(cluster.names("instance")):
        cluster.ok("gnt-instance", "remove", "-f", "--shutdown-timeout=0", name)


@pytest.fixture(scope="module")
def module_cluster() -> Iterator[SharedCluster]:
    with shared_cluster(with_noop, tidy) as shared:
        yield shared


@pytest.fixture
def cluster(
    module_cluster: SharedCluster, request: pytest.FixtureRequest
) -> Iterator[LocalCluster]:
    """The module's cluster, as every test finds it: all daemons run, and there is no instance."""
    with module_cluster.lent(request) as lent:
        yield lent


@pytest.fixture
def new_name() -> Callable[[], str]:
    """Names of instances that nobody else has."""
    return lambda: f"i{next(_numbers)}.example.com"


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    with short_directory() as directory:
        made = Nodes(directory)
        try:
            yield made
        finally:
            await made.close()
