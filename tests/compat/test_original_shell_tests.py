"""Upstream's shell tests, run from upstream's source tree with the placement commands and mon-collector of this one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
LIMIT_S = 900
PROGRAMS = (
    *("hail", "hbal", "hspace", "hscan", "hinfo", "hcheck", "hroller", "hsqueeze", "harep"),
    *("htools", "mon-collector"),
)
RESULT = re.compile(r"htools-([a-z-]+)\.test:(\d+): \[(OK|Failed)\]")
ALL = 271


def expected_failures() -> set[str]:
    """The first column of the table in docs/design/placement.md."""
    page = (TOP / "docs" / "design" / "placement.md").read_text()
    table = page.split("| shell test | reason |\n|---|---|\n")[1].split("\n\n")[0]
    return {test for row in table.splitlines() for test in row.split("|")[1].strip().split(", ")}


@pytest.mark.soak
@pytest.mark.timeout(LIMIT_S)
def test_shell_tests_of_upstream_fail_only_where_the_table_has_a_reason(tmp_path: Path) -> None:
    source = os.environ.get("GANETI_UPSTREAM")
    if source is None or shutil.which("shelltest") is None:
        pytest.skip("needs upstream's source tree in GANETI_UPSTREAM, and shelltestrunner")
    for part in ("test/hs", "test/data"):
        shutil.copytree(Path(source) / part, tmp_path / part, symlinks=True)
    for name in PROGRAMS:
        link = tmp_path / "test" / "hs" / name
        link.symlink_to(Path(sys.executable).with_name(name))
    for name in ("htools", "mon-collector"):
        (tmp_path / "test" / "hs" / f"hpc-{name}").symlink_to(name)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    done = subprocess.run(
        ["bash", "test/hs/offline-test.sh"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    results = {f"{name}:{number}": how for name, number, how in RESULT.findall(done.stdout)}
    assert len(results) == ALL, done.stdout[-2000:]
    failed = {name for name, how in results.items() if how == "Failed"}
    assert failed == expected_failures()
