import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sampling import chosen

TOP = Path(__file__).resolve().parents[3]
CASES = [f"test_x.py::test_it[{number}]" for number in range(100)]

TESTS = """
import pytest


CASES = [pytest.param(number, marks=[pytest.mark.soak] if number > 2 else []) for number in range(20)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", CASES)
def test_with_many_cases(number):
    pass


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(2))
def test_with_few(number):
    pass


@pytest.mark.parametrize("number", range(5))
def test_that_says_nothing(number):
    pass


@pytest.mark.sampled(5)
@pytest.mark.parametrize("number", range(5))
def test_that_is_always_whole(number):
    pass


@pytest.mark.rotated(2)
@pytest.mark.parametrize("number", range(6))
def test_with_slow_cases(number):
    pass


@pytest.mark.sampled(0)
def test_that_takes_long():
    pass
"""

SLOW_FILE = """
import pytest


@pytest.mark.in_turn
def test_slow_one():
    pass


@pytest.mark.in_turn
def test_slow_two():
    pass


def test_quick():
    pass
"""


def test_the_choice_is_the_same_for_a_seed_in_any_order_and_another_for_another() -> None:
    found = chosen(CASES, 10, 1)
    assert len(found) == 10
    assert chosen(reversed(CASES), 10, 1) == found
    assert chosen(CASES, 10, 2) != found
    assert chosen(CASES, 1000, 1) == set(CASES)


@pytest.mark.sampled(0)
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ([], 39),
        (["--sampled"], 14),
        (["--sampled", "-m", "not soak"], 14),
        (["--rotated"], 35),
    ],
)
def test_only_where_it_is_asked_for_a_part_of_the_cases_is_run(
    tmp_path: Path, options: list[str], count: int
) -> None:
    (tmp_path / "test_many.py").write_text(TESTS)
    said = collected(tmp_path, *options)
    assert said.count("::test_") == count, said


@pytest.mark.sampled(0)
@pytest.mark.parametrize(("options", "count"), [([], 5), (["--rotated"], 2)])
def test_some_of_the_files_that_take_turns_are_run_as_a_whole(
    tmp_path: Path, options: list[str], count: int
) -> None:
    for number in range(5):
        (tmp_path / f"test_{number}.py").write_text(SLOW_FILE)
    said = collected(tmp_path, *options)
    each = [said.count(f"test_{number}.py::test_slow_") for number in range(5)]
    assert sorted(each) == [0] * (5 - count) + [2] * count, said
    assert said.count("::test_quick") == 5, said


def collected(place: Path, *options: str) -> str:
    """Return what a run that only collects prints: a line a test."""
    (place / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n sampled(count): see there\n rotated(count): see there\n in_turn: see there\n soak: long\n"
    )
    words = ["--collect-only", "-q", "-p", "tests.support.sampling", "-p", "no:xdist", *options]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"--rootdir={place}", str(place)],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr
