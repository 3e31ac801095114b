"""Runs of tests beside each other share the host's user ids."""

import subprocess
import sys
from pathlib import Path

from tests.support.user_ids import COUNT, FIRST, LAST, claimed_user_ids

PROGRAM = """
from tests.support.user_ids import claimed_user_ids
with claimed_user_ids() as ids:
    print(ids[0], flush=True)
    input()
"""


def test_run_beside_this_one_gets_other_user_ids() -> None:
    root = Path(__file__).parents[3]
    with claimed_user_ids() as ids:
        assert len(ids) == COUNT
        assert FIRST <= ids[0] <= ids[-1] <= LAST
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=root,
            input="\n",
            capture_output=True,
            text=True,
            check=True,
        )
    assert int(done.stdout) not in ids
