import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.requirements_plugin import (
    CACHE_FILE,
    known_rows,
    merged,
    read_cache,
    rows_of_item,
    write_cache,
)

TOP = Path(__file__).resolve().parents[3]


class _Item:
    """As much of a pytest item as the look at its markers needs."""

    nodeid = "tests/test_x.py::test_y"

    def __init__(self, *rows: str) -> None:
        self._rows = rows

    def iter_markers(self, name: str) -> Iterator[Any]:
        assert name == "requirement"
        yield SimpleNamespace(args=self._rows)


def _rows(*rows: str) -> frozenset[str]:
    return rows_of_item(cast("pytest.Item", _Item(*rows)), known_rows())


def test_every_kind_of_row_is_known() -> None:
    assert _rows("S16", "G1", "F40", "A66") == {"S16", "G1", "F40", "A66"}


def test_unknown_row_is_an_error_that_names_test_and_row() -> None:
    with pytest.raises(pytest.UsageError, match=r"test_y: no rule S9999 "):
        _rows("S1", "S9999")


def test_a_run_replaces_what_it_ran_and_keeps_the_rest() -> None:
    old = {"S1": ["kept", "now_fails"], "S2": ["now_for_s3"]}
    rows_of = {
        "now_fails": frozenset({"S1"}),
        "now_for_s3": frozenset({"S3"}),
    }
    assert merged(old, rows_of, frozenset({"now_for_s3"})) == {
        "S1": ["kept"],
        "S3": ["now_for_s3"],
    }


def test_cache_reads_back_what_was_written(tmp_path: Path) -> None:
    cache = tmp_path / "new" / "passed.json"
    assert read_cache(cache) == {}
    write_cache(cache, {"S1": ["a"]})
    assert read_cache(cache) == {"S1": ["a"]}
    assert [path.name for path in cache.parent.iterdir()] == ["passed.json"]


@pytest.mark.sampled(0)
def test_only_functions_of_which_all_parameters_passed_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "test_rows.py").write_text(
        "import pytest\n"
        "@pytest.mark.requirement('S1')\n"
        "@pytest.mark.parametrize('good', [True, True])\n"
        "def test_good(good): assert good\n"
        "@pytest.mark.requirement('S1', 'S2')\n"
        "@pytest.mark.parametrize('good', [True, False])\n"
        "def test_half(good): assert good\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.requirements_plugin"]
    command += ["-p", "no:cacheprovider", "-o", "markers=requirement", "--noconftest"]
    command += ["--rootdir", str(tmp_path), "-c", str(tmp_path / "pytest.ini"), str(tmp_path)]
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert "1 failed, 3 passed" in done.stdout, done.stdout
    assert read_cache(tmp_path / CACHE_FILE) == {"S1": ["test_rows.py::test_good"]}
