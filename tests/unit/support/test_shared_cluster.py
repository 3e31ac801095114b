"""One cluster for several tests, until one of them fails."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from tests.support.local_cluster import LocalCluster
from tests.support.shared_cluster import shared_cluster


def test_a_cluster_is_lent_again_until_a_test_fails() -> None:
    events: list[str] = []

    class Lent(LocalCluster):
        def check_roles(self) -> None:
            events.append("roles")

    @contextmanager
    def make() -> Iterator[LocalCluster]:
        events.append("up")
        yield Lent(cast("Any", None))
        events.append("down")

    session = SimpleNamespace(testsfailed=1)
    request = cast("Any", SimpleNamespace(session=session))
    with shared_cluster(make, lambda _cluster: events.append("tidy")) as shared:
        for name in ("first", "fails", "last"):
            with shared.lent(request):
                events.append(name)
                session.testsfailed += name == "fails"
    assert events == [
        *("up", "first", "roles", "tidy", "fails", "down"),
        *("up", "last", "roles", "tidy", "down"),
    ]
