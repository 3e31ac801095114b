"""Results that are kept for objects that are the same."""

from ganeti.base.kept_results import KeptResults


class Counted:
    """Joins words, and counts how often."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, name: str, one: list[str]) -> str:
        self.made.append(name)
        return "".join(one)


def test_same_object_is_computed_once() -> None:
    kept, make, one, other = KeptResults[list[str], str](), Counted(), ["a"], ["b"]
    assert kept.of({"1": one}, make) == {"1": "a"}
    assert kept.of({"2": other, "1": one}, make) == {"2": "b", "1": "a"}
    assert make.made == ["1", "2"]


def test_equal_object_under_the_same_name_is_computed_again() -> None:
    kept, make = KeptResults[list[str], str](), Counted()
    kept.of({"1": ["a"]}, make)
    kept.of({"1": ["a"]}, make)
    assert make.made == ["1", "1"]


def test_object_that_was_missing_once_is_computed_again() -> None:
    kept, make, one = KeptResults[list[str], str](), Counted(), ["a"]
    kept.of({"1": one}, make)
    assert kept.of({}, make) == {}
    kept.of({"1": one}, make)
    assert make.made == ["1", "1"]


def test_nothing_is_kept_for_another_dependency() -> None:
    kept, make, one, first, second = KeptResults[list[str], str](), Counted(), ["a"], [1], [2]
    kept.of({"1": one}, make, first, second)
    kept.of({"1": one}, make, first, second)
    kept.of({"1": one}, make, first, [2])
    kept.of({"1": one}, make, first)
    assert make.made == ["1", "1", "1"]
