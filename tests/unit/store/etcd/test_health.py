"""What is wrong with an etcd server, from what all of them say."""

import pytest

from ganeti.store.etcd.health import LAG_ENTRIES, Seen, server_problems, successor
from ganeti.store.etcd.messages import Header, StatusAnswer

ONE, TWO = "https://192.0.2.1:1818", "https://192.0.2.2:1818"
GOOD = StatusAnswer(leader=7, raftIndex=5_000, dbSize=1 << 20)


def said(seen: Seen, url: str = TWO, quota: int = 4 << 30) -> list[tuple[str, bool]]:
    return [(trouble.text, trouble.is_error) for trouble in server_problems(seen, url, quota)]


def test_healthy_servers_have_no_problems() -> None:
    behind = StatusAnswer(leader=7, raftIndex=5_000 - LAG_ENTRIES)
    assert said({ONE: GOOD, TWO: behind}) == []
    assert said({ONE: GOOD, TWO: behind}, ONE) == []


@pytest.mark.parametrize(
    ("status", "text", "is_error"),
    [
        ("connection refused", "does not answer: connection refused", True),
        (StatusAnswer(leader=7, raftIndex=10), "lags: it has 4990 entries fewer", True),
        (StatusAnswer(raftIndex=5_000), "no connection to a majority", True),
        (
            StatusAnswer(leader=7, raftIndex=5_000, errors=("etcdserver: no leader",)),
            "no connection to a majority",
            True,
        ),
        (
            StatusAnswer(leader=7, raftIndex=5_000, errors=("memberID:7 alarm:NOSPACE ",)),
            "out of space",
            True,
        ),
        (
            StatusAnswer(leader=7, raftIndex=5_000, errors=("memberID:7 alarm:CORRUPT ",)),
            "data is damaged",
            True,
        ),
        (StatusAnswer(leader=7, raftIndex=5_000, dbSize=3_900 << 20), "nearly full: 3900", False),
        (StatusAnswer(leader=7, raftIndex=5_000, isLearner=True), "no vote yet", False),
    ],
)
def test_each_trouble_is_named(status: StatusAnswer | str, text: str, is_error: bool) -> None:
    (found,) = said({ONE: GOOD, TWO: status})
    assert text in found[0]
    assert found[1] == is_error
    assert said({ONE: GOOD, TWO: status}, ONE) == []


def test_a_quota_that_is_not_known_is_not_judged() -> None:
    assert said({ONE: StatusAnswer(leader=7, dbSize=9 << 30)}, ONE, quota=0) == []


def status_of(member: int, *, leader: int = 1, index: int = 5_000, error: str = "") -> StatusAnswer:
    errors = (error,) if error else ()
    return StatusAnswer(Header(member_id=member), leader=leader, raftIndex=index, errors=errors)


THREE = "https://192.0.2.3:1818"


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        ({ONE: status_of(1), TWO: status_of(2), THREE: status_of(3, index=5_001)}, 3),
        ({ONE: status_of(1), TWO: status_of(2, index=5_001), THREE: "connection refused"}, 2),
        ({ONE: status_of(1), TWO: status_of(2, index=9), THREE: status_of(3)}, 3),
        ({ONE: status_of(1), TWO: status_of(2, error="alarm:CORRUPT"), THREE: "no"}, 0),
        ({ONE: status_of(1, leader=2), TWO: status_of(2, leader=2)}, 0),
        ({ONE: status_of(0, leader=0), TWO: status_of(2, leader=0)}, 0),
        ({ONE: "connection refused", TWO: status_of(2)}, 0),
    ],
    ids=["newest", "answering", "behind", "damaged", "follower", "no leader", "silent"],
)
def test_the_best_other_server_leads_etcd_instead_of_the_masters(seen: Seen, wanted: int) -> None:
    assert successor(seen, ONE) == wanted
