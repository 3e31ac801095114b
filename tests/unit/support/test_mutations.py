"""The script that breaks rules of the product: it finds what survives, and what it cannot change."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).parents[3]
CODE = "def limit():\n    return 3\n"
TEST = """
from limits import limit

def test_the_limit():
    assert limit() == 3

def test_there_is_a_limit():
    assert limit()
"""


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutations", TOP / "scripts" / "mutations.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["mutations"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MUTATIONS = script()


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "limits.py").write_text(CODE)
    (tmp_path / "test_limits.py").write_text(TEST)
    return tmp_path


def verdict(top: Path, before: str, tests: str) -> tuple[bool, str]:
    mutation = MUTATIONS.Mutation("another limit", "src/limits.py", before, "4", tests)
    found = MUTATIONS.judge(mutation, top)
    assert (top / "src" / "limits.py").read_text() == CODE
    return found.is_well, found.text.split(":")[0]


@pytest.mark.sampled(0)
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("test_limits.py", (True, "test_limits.py")),
        ("test_limits.py -k there_is", (False, "SURVIVES")),
        ("test_limits.py -k no_such_test", (False, "NO TEST RAN")),
        ("no_such_file.py", (False, "NO TEST RAN")),
    ],
)
def test_a_change_is_well_only_if_a_test_fails_for_it(
    top: Path, tests: str, said: tuple[bool, str]
) -> None:
    assert verdict(top, "3", tests) == said


@pytest.mark.parametrize("before", ["5", "\n"])
def test_a_change_that_does_not_fit_the_code_once_is_an_error(top: Path, before: str) -> None:
    assert verdict(top, before, "test_limits.py") == (False, "STALE")


def test_the_history_that_noticed_is_counted() -> None:
    output = "Failed: GANETI_HISTORY_SEED=17 .venv/bin/pytest x.py\nFAILED tests/unit/x.py::test_y[0] - z"
    again = "GANETI_HISTORY_SEED=17 .venv/bin/pytest x.py"
    assert MUTATIONS.caught_by(output) == f"unit/x.py::test_y[0], history 18 (again: {again})"


@pytest.mark.sampled(0)
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("ordinary", "said"),
    [
        ("test_limits.py -k there_is", (True, "test_limits.py")),
        ("test_limits.py", (False, "ORDINARY TESTS NOTICE")),
    ],
)
def test_a_change_for_histories_must_pass_the_ordinary_tests(
    top: Path, ordinary: str, said: tuple[bool, str]
) -> None:
    mutation = MUTATIONS.Mutation("x", "src/limits.py", "3", "4", "test_limits.py", ordinary)
    found = MUTATIONS.judge(mutation, top)
    assert (found.is_well, found.text.split(":")[0]) == said


def test_the_table_is_well_formed() -> None:
    for one in MUTATIONS.mutations(TOP):
        assert (TOP / one.file).is_file(), one.what
        assert one.before != one.after, one.what


def test_each_change_has_fast_tests_of_its_package() -> None:
    tests = {MUTATIONS.by_package(one).tests for one in MUTATIONS.mutations(TOP)}
    assert {"tests/unit/store --sampled", "tests/unit/test_uidpool.py --sampled"} <= tests
    for one in tests:
        assert (TOP / one.removesuffix(" --sampled")).exists(), one
