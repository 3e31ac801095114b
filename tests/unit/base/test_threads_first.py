"""Who gets the interpreter lock while the loop has long work."""

import sys

import pytest

from ganeti.base.threads_first import SHORT_S, threads_first


def test_threads_wait_less_until_the_last_long_work_ends() -> None:
    usual_s = sys.getswitchinterval()
    with threads_first():
        with pytest.raises(ValueError, match="nested"), threads_first():
            raise ValueError("nested")
        assert sys.getswitchinterval() == pytest.approx(SHORT_S)
    assert sys.getswitchinterval() == usual_s
