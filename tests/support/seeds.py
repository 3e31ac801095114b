"""Seeded histories: which ones are run, and how a failure says how to repeat it."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator

import pytest

FIRST = int(os.environ.get("GANETI_HISTORY_SEED", "0"))
"""The first seed: a failure names the seed to begin with."""


def run_seeds(history: Callable[[int], int], module: str, first: int, count: int) -> int:
    """The sum of what the histories return; fails with the seed of the first that breaks a promise.

    `module` is the name of the test's. Nothing is logged: what fails on purpose would fill the log.
    """
    total = 0
    with _quiet():
        for seed in range(first, first + count):
            try:
                total += history(seed)
            except Exception as err:  # noqa: BLE001 - whatever it is, the seed must be known
                again = f"GANETI_HISTORY_SEED={seed} .venv/bin/pytest {module.replace('.', '/')}.py"
                pytest.fail(f"{again}: {type(err).__name__}: {err}")
    return total


def breaks(history: Callable[[int], int], seeds: Iterable[int], violation: type[Exception]) -> bool:
    """Whether one of these histories breaks a promise, as it should without one of the rules."""
    with _quiet():
        for seed in seeds:
            try:
                history(seed)
            except violation:
                return True
    return False


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
