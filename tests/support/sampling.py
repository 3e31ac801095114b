"""`make check` runs some of the many cases of a test; `make test` runs all, and of the slowest some.

With `--sampled` at most `USUAL` cases of each test are run, others each time.  `@pytest.mark.sampled(20)`
says another number, for a test whose cases are less alike, or take longer.  `sampled(0)` is for a test that
takes a second of processor time and adds little to its neighbours: it is left out.  hypothesis tries
`EXAMPLES`, where a test does not say how many.

With `--rotated` only a test with `@pytest.mark.rotated(8)` has so many of its cases, others each time: its cases
take many seconds each, and are alike. Of the files whose tests have `@pytest.mark.in_turn` a part is run, others
each time: each needs minutes of a processor, and most of what it proves has faster tests, too.

The choice follows the seed of the random order, which is printed first: `--randomly-seed=SEED --sampled`
chooses the same again.
"""

import random
from collections.abc import Iterable
from math import ceil

import hypothesis
import pytest

USUAL = 2
"""Cases of a test that says nothing else."""

EXAMPLES = 10
"""Instead of a hundred."""

TURNS = 4
"""One of so many files that take turns is run."""


def pytest_configure(config: pytest.Config) -> None:
    """Before test modules are imported: a test has the profile of the moment when it is made."""
    if config.getoption("sampled"):
        hypothesis.settings.register_profile(
            "sampled", hypothesis.settings(), max_examples=EXAMPLES
        )
        hypothesis.settings.load_profile("sampled")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sampled", action="store_true", help="of the cases of each test run some")
    parser.addoption(
        "--rotated", action="store_true", help="of the cases of tests marked as rotated run some"
    )


def chosen(cases: Iterable[str], count: int, seed: object) -> frozenset[str]:
    """`count` of the cases of one test, the same for the same seed, in whatever order they come."""
    names = sorted(cases)
    return frozenset(random.Random(f"{seed} {names[0]}").sample(names, min(count, len(names))))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of what `-m` leaves. The processes of pytest-xdist share the seed, and so choose the same."""
    seed = config.getoption("randomly_seed", 0)
    cases: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for item in items:
        if (count := _most(item)) is not None:
            test = item.nodeid.split("[", 1)[0]
            cases.setdefault(test, []).append(item.nodeid)
            counts[test] = count
    left_out = {
        case
        for test, all_ in cases.items()
        if len(all_) > counts[test]
        for case in set(all_) - chosen(all_, counts[test], seed)
    }
    if config.getoption("rotated"):
        left_out |= _waiting(items, seed)
    if not left_out:
        return
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def _waiting(items: Iterable[pytest.Item], seed: object) -> set[str]:
    """The tests of the files whose turn it is not."""
    files: dict[str, list[str]] = {}
    for item in items:
        if item.get_closest_marker("in_turn"):
            files.setdefault(item.nodeid.split("::", 1)[0], []).append(item.nodeid)
    if not files:
        return set()
    now = chosen(files, ceil(len(files) / TURNS), seed)
    return {test for file, tests in files.items() if file not in now for test in tests}


def _most(item: pytest.Item) -> int | None:
    """How many cases of its test are run; None: all."""
    for name in ("sampled", "rotated"):
        if item.config.getoption(name):
            marker = item.get_closest_marker(name)
            return marker.args[0] if marker else USUAL if name == "sampled" else None
    return None
