"""Runs an async test in a process of its own: for what is done to all objects of a process.

The process of the tests has millions of them, which have nothing to do with the test.
"""

import asyncio
import functools
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.support.virtual_time import StrictVirtualTimeLoop

TOP = Path(__file__).resolve().parents[2]


def apart(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test as a plain one, in virtual time; its arguments are numbers or words."""

    @functools.wraps(test)
    def run(**arguments: float | str) -> None:
        words = [__name__, test.__module__, test.__name__, json.dumps(arguments)]
        child = [sys.executable, "-W", "error", "-m", *words]
        done = subprocess.run(child, cwd=TOP, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return run


def main(module: str, name: str, arguments: str) -> None:
    """In the child."""
    test = getattr(importlib.import_module(module), name).__wrapped__
    with asyncio.Runner(debug=True, loop_factory=StrictVirtualTimeLoop) as runner:
        runner.run(test(**json.loads(arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
