import pytest

from ganeti.base.errors import LockError
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import ALL, LockRequest, in_order, lock


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("web1", frozenset({"web1"})),
        (("web1", "web2"), frozenset({"web1", "web2"})),
        ([], frozenset()),
        (None, frozenset()),
        (ALL, ALL),
    ],
)
def test_names_are_given_as_one_several_none_or_all(given: object, names: object) -> None:
    assert lock(Level.INSTANCE, given).names == names  # type: ignore[arg-type]  # a table of forms


def test_an_empty_list_asks_for_nothing_and_never_for_all() -> None:
    assert lock(Level.NODE, []).is_empty
    assert in_order([lock(Level.NODE, []), lock(Level.NODE, None)]) == []
    assert not lock(Level.NODE, ALL).is_empty


def test_requests_are_taken_in_the_order_of_levels() -> None:
    asked = [lock(level, "x") for level in reversed(Level)]
    assert [request.level for request in in_order(asked)] == [
        Level.CLUSTER,
        Level.INSTANCE,
        Level.NODE_GROUP,
        Level.NODE,
        Level.NODE_RES,
        Level.NETWORK,
        Level.IMAGE,
    ]


def test_two_requests_of_one_level_are_united() -> None:
    assert in_order([lock(Level.NODE, "a"), lock(Level.NODE, ["b", "a"])]) == [
        LockRequest(Level.NODE, frozenset({"a", "b"}), Mode.EXCLUSIVE)
    ]
    assert in_order([lock(Level.NODE, "a"), lock(Level.NODE, ALL)])[0].names is ALL


def test_one_level_in_two_modes_is_refused() -> None:
    with pytest.raises(LockError, match="requests the nodegroup locks both"):
        in_order([lock(Level.NODE_GROUP, "a"), lock(Level.NODE_GROUP, "b", Mode.SHARED)])


def test_levels_have_the_words_of_lock_listings() -> None:
    assert [level.label for level in Level] == [
        "cluster",
        "instance",
        "nodegroup",
        "node",
        "node-res",
        "network",
        "image",
    ]
