"""One cluster for several tests: the next one gets a new one if a test has failed, whatever that left."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from tests.support.local_cluster import LocalCluster


class SharedCluster:
    """Made when it is first asked for."""

    def __init__(
        self,
        make: Callable[[], AbstractContextManager[LocalCluster]],
        tidy: Callable[[LocalCluster], None],
    ) -> None:
        self._make, self._tidy, self._stack = make, tidy, ExitStack()
        self._cluster: LocalCluster | None = None

    @contextmanager
    def lent(self, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
        """For one test, from a fixture of that test."""
        before = request.session.testsfailed
        if self._cluster is None:
            self._cluster = self._stack.enter_context(self._make())
        yield self._cluster
        if request.session.testsfailed > before:
            self.end()
        else:
            self._cluster.check_roles()
            self._tidy(self._cluster)

    def end(self) -> None:
        """Nothing is left of it."""
        self._cluster = None
        self._stack.close()


@contextmanager
def shared_cluster(
    make: Callable[[], AbstractContextManager[LocalCluster]],
    tidy: Callable[[LocalCluster], None] = lambda _cluster: None,
) -> Iterator[SharedCluster]:
    """For a fixture of a module; `tidy` takes away what a test that has passed left."""
    shared = SharedCluster(make, tidy)
    try:
        yield shared
    finally:
        shared.end()
