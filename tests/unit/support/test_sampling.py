import subprocess
import sys
from pathlib import Path, PurePath

import pytest

from tests.support.sampling import TURNS, changed_files, chosen, concerned_by

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

pytestmark = pytest.mark.in_turn


def test_slow_one():
    pass


def test_slow_two():
    pass
"""

SLOW_TESTS = """
import pytest


@pytest.mark.in_turn
@pytest.mark.parametrize("number", range(3))
def test_slow_one(number):
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


@pytest.mark.sampled(0)
@pytest.mark.parametrize(("options", "count"), [([], 4), (["--rotated"], 1)])
def test_tests_that_are_marked_alone_take_turns_alone(
    tmp_path: Path, options: list[str], count: int
) -> None:
    for number in range(2):
        (tmp_path / f"test_{number}.py").write_text(SLOW_TESTS)
    said = collected(tmp_path, *options)
    ran = [
        said.count(f"test_{number}.py::test_slow_{name}")
        for number in range(2)
        for name in ("one", "two")
    ]
    assert sum(one > 0 for one in ran) == count, said
    assert {*ran} <= {0, 1, 3}, said
    assert said.count("::test_quick") == 2, said


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


def test_concerned_by_changed_packages_are_concerned() -> None:
    changed = [
        "src/ganeti/jobs/queue.py",
        "src/ganeti/store/etcd/writer.py",
        "tests/unit/units/test_drbd.py",
        "tests/unit/cli/fake_master.py",
        "tests/unit/test_house.py",
        "docs/design/jobs.md",
        "README.md",
    ]
    assert concerned_by(changed) == {
        PurePath("tests/unit/jobs"),
        PurePath("tests/unit/store"),
        PurePath("tests/unit/units/test_drbd.py"),
        PurePath("tests/unit/cli"),
        PurePath("tests/unit/test_house.py"),
    }


def test_last_commit_and_what_follows_it_have_changed(tmp_path: Path) -> None:
    assert changed_files(tmp_path) == []
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(("git", "init", "-q"), cwd=tmp_path, check=True)
    for name in ("first", "last"):
        (tmp_path / name).write_text(name)
        subprocess.run(("git", "add", name), cwd=tmp_path, check=True)
        subprocess.run((*git, "commit", "-qm", name), cwd=tmp_path, check=True)
    (tmp_path / "first").write_text("again")
    (tmp_path / "new").write_text("not in git yet")
    assert sorted(changed_files(tmp_path)) == ["first", "last", "new"]


@pytest.mark.sampled(0)
def test_files_of_other_packages_take_turns(tmp_path: Path) -> None:
    """Without git nothing has changed, and all files take turns, but those beside the packages."""
    names = [*(f"other/test_{number}.py" for number in range(40)), "test_always.py"]
    for name in names:
        path = tmp_path / "tests/unit" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def test_it():\n    pass\n")
    first, again, other = (
        collected(tmp_path, "--concerned", f"--randomly-seed={seed}").count("::test_it")
        for seed in (1, 1, 2)
    )
    assert first == again != other
    for count in (first, other):
        assert 1 < count < 2 * len(names) / TURNS
    assert collected(tmp_path).count("::test_it") == len(names)
