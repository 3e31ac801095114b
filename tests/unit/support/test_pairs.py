"""Which changes of figures `make bench AGAINST=COMMIT` marks, and which it takes for noise."""

import pytest
from pairs import Comparison, Figures, compare, is_greater_better, one_sided, table


def measured(name: str, *pairs: tuple[float, float]) -> Comparison:
    """The comparison of one figure."""
    (found,) = compare([({name: old}, {name: new}) for old, new in pairs])
    return found


@pytest.mark.parametrize(
    ("name", "factor", "verdict"),
    [
        ("job_latency_p50_ms", 1.06, "WORSE"),
        ("job_latency_p50_ms", 0.94, "better"),
        ("job_latency_p50_ms", 1.04, ""),
        ("jobs_per_second", 1.06, "better"),
        ("jobs_per_second", 0.94, "WORSE"),
        ("master_wakeups_per_second", 1.06, "WORSE"),
        ("cpu_us_per_job", 1.06, "WORSE"),
        ("spin_ms", 1.5, ""),
    ],
)
def test_change_of_more_than_5_percent_is_marked(name: str, factor: float, verdict: str) -> None:
    found = measured(name, *[(old, old * factor) for old in (100.0, 104.0, 97.0, 101.0, 99.0)])
    assert found.verdict == verdict
    assert found.ratio == pytest.approx(factor)


def test_machine_that_slows_down_in_the_middle_does_not_count() -> None:
    assert measured("p50_ms", (10, 10.1), (10, 9.9), (20, 20.2), (21, 20.9), (20, 20)).verdict == ""


def test_single_bad_pair_does_not_count() -> None:
    assert measured("p50_ms", (10, 10.1), (10, 9.9), (10, 30), (10, 10), (10, 10)).verdict == ""


def test_change_within_the_spread_of_the_pairs_is_not_marked() -> None:
    found = measured("p50_ms", (10, 9), (10, 13), (10, 8), (10, 12), (10, 10.8))
    assert found.ratio == pytest.approx(1.08)
    assert found.noise > 0.08
    assert found.verdict == ""


def test_figures_that_become_greater_than_zero_are_worse() -> None:
    assert measured("loop_block_ms", (0, 60), (0, 70), (0, 55)).verdict == "WORSE"
    assert measured("loop_block_ms", (0, 0), (0, 0), (0, 60)).verdict == ""


def test_names_of_one_version_are_listed_and_not_compared() -> None:
    first: Figures = {"both_ms": 1, "gone_ms": 1, "kind": "embedded"}
    second: Figures = {"both_ms": 1, "new_ms": 2, "kind": "embedded"}
    pairs = [(first, second)] * 3
    assert [one.name for one in compare(pairs)] == ["both_ms"]
    assert one_sided(pairs) == (["gone_ms"], ["new_ms"])


def test_benchmark_that_one_version_lacks_has_nothing_to_compare() -> None:
    pairs: list[tuple[Figures, Figures]] = [({}, {"new_ms": 2})] * 3
    assert compare(pairs) == []
    assert one_sided(pairs) == ([], ["new_ms"])


def test_line_of_the_table_has_both_figures_the_ratio_and_the_mark() -> None:
    _, line = table([measured("jobs_per_second", (100, 80), (100, 81), (100, 79))])
    assert line.split() == ["jobs_per_second", "100", "80", "0.800", "0.021", "WORSE"]


def test_only_rates_of_work_are_better_when_greater() -> None:
    assert is_greater_better("creates_per_second")
    assert not is_greater_better("master_wakeups_per_second")
    assert not is_greater_better("resident_mib")
