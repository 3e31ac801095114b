"""Break one rule of the product at a time, in a copy, and demand that a test notices.

`tests/mutations.toml` has the changes: the text that is replaced, and the tests that must fail then. The
last table printed says which test caught which change, after how many histories and seconds, and how to repeat the
history that failed. The exit code is 1 if a change survives, if its text is no longer in the code, or if its tests do
not pass without it. A change with `ordinary` must be noticed by histories alone: those other tests pass in spite of it.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

TOP = Path(__file__).resolve().parents[1]
TABLE = Path("tests/mutations.toml")
LIMIT_S = 900.0
"""A suite that has not failed by then does not notice."""
QUICK = "not soak and not cluster and not host"
"""The tests that are run; a selection with a `-m` of its own says otherwise."""
TESTS_FAILED = 1
"""The exit code of pytest where tests ran and some failed."""
SEED = re.compile(r"GANETI_HISTORY_SEED=(\d+)")
AGAIN = re.compile(r"GANETI_[A-Z]+_SEED=\d+ \S*pytest \S+\.py")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
FIRST_OF_LONG = 1_000_000
"""Where the seeds of long runs begin."""


T = TypeVar("T")


class Stale(Exception):
    """The change cannot be made: the code is no longer what it was written for."""


@dataclass(frozen=True)
class Mutation:
    """One change, and the arguments of pytest for the tests that must notice it."""

    what: str
    file: str
    before: str
    after: str
    tests: str
    ordinary: str = ""
    """Tests that do not notice the change, by which `tests` are histories."""


@dataclass(frozen=True)
class Verdict:
    """What became of one change."""

    what: str
    is_well: bool
    text: str
    seconds: float = 0.0


def mutations(top: Path) -> list[Mutation]:
    """The table; a name is used once."""
    content = tomllib.loads((top / TABLE).read_text("utf-8"))
    found = [Mutation(**entry) for entry in content["mutation"]]
    names = [one.what for one in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise Stale(f"{TABLE} has twice: {', '.join(sorted(twice))}")
    return found


def by_package(mutation: Mutation) -> Mutation:
    """The same change, judged by the fast tests of its package as `make check` runs them: of like cases some."""
    package = Path(mutation.file).relative_to("src/ganeti").parts[0]
    name = package if not package.endswith(".py") else f"test_{package}"
    return replace(mutation, tests=f"tests/unit/{name} --sampled", ordinary="")


def changed(mutation: Mutation, top: Path) -> str:
    """The file's text with the change; Stale unless what it replaces is there exactly once."""
    path = top / mutation.file
    text = path.read_text("utf-8") if path.exists() else ""
    if (count := text.count(mutation.before)) != 1:
        raise Stale(f"its text is {count} times in {mutation.file}, and must be there once")
    return text.replace(mutation.before, mutation.after)


@contextmanager
def copies(count: int) -> Iterator[list[Path]]:
    """Copies of what git has of this checkout, and would have after `git add`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.split("\0") if name and (TOP / name).is_file()]
    with tempfile.TemporaryDirectory(prefix="mutations-") as directory:
        tops = [Path(directory) / str(number) for number in range(count)]
        for top in tops:
            for name in names:
                (top / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(TOP / name, top / name)
        yield tops


def run_tests(top: Path, tests: str) -> tuple[int, str]:
    """The exit code and output of pytest; 0 where it was stopped at the limit."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", QUICK]
    command = [sys.executable, "-m", "pytest", *options, *shlex.split(tests)]
    # What is imported is the copy's, and not what this environment has installed.
    environment = {**os.environ, "PYTHONPATH": str(top / "src")}
    try:
        done = subprocess.run(
            command,
            cwd=top,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 0, f"no test has failed in {LIMIT_S:.0f} s"
    return done.returncode, done.stdout


def judge(mutation: Mutation, top: Path) -> Verdict:
    """Make one change in a copy, run its tests, and take it back."""
    path = top / mutation.file
    try:
        text = changed(mutation, top)
    except Stale as err:
        return Verdict(mutation.what, False, f"STALE: {err}")
    original = path.read_text("utf-8")
    begun = time.monotonic()
    try:
        path.write_text(text, "utf-8")
        code, output = run_tests(top, mutation.tests)
        if code == TESTS_FAILED and mutation.ordinary:
            others, said = run_tests(top, mutation.ordinary)
            if others:
                what = f"ORDINARY TESTS NOTICE: {said[-400:]}"
                return Verdict(mutation.what, False, what, time.monotonic() - begun)
    finally:
        path.write_text(original, "utf-8")
    seconds = time.monotonic() - begun
    if code == 0:
        return Verdict(mutation.what, False, f"SURVIVES: {mutation.tests}", seconds)
    if code != TESTS_FAILED:
        return Verdict(mutation.what, False, f"NO TEST RAN: {output[-400:]}", seconds)
    return Verdict(mutation.what, True, caught_by(output), seconds)


def caught_by(output: str) -> str:
    """The test that failed, and in the how manieth history."""
    names = FAILED.findall(output)
    name = names[0].removeprefix("tests/") if names else "a test"
    if seed := SEED.search(output):
        name += f", history {int(seed[1]) % FIRST_OF_LONG + 1}"
    if again := AGAIN.search(output):
        name += f" (again: {again[0]})"
    return name


def each(
    act: Callable[[T, Path], Verdict], things: Iterable[T], tops: Sequence[Path]
) -> Iterator[Verdict]:
    """Yield what `act` says of each thing, in order; as many at a time as there are copies."""
    free: SimpleQueue[Path] = SimpleQueue()
    for top in tops:
        free.put(top)

    def with_a_copy(thing: T) -> Verdict:
        top = free.get()
        try:
            return act(thing, top)
        finally:
            free.put(top)

    with ThreadPoolExecutor(len(tops)) as pool:
        yield from pool.map(with_a_copy, things)


def unchanged(tests: str, top: Path) -> Verdict:
    """Return whether tests pass as long as nothing is changed; only then their failure means something."""
    code, output = run_tests(top, tests)
    return Verdict(f"nothing changed: {tests}", code == 0, output[-2000:])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="WORD", help="changes with this word in their name"
    )
    parser.add_argument("--check", action="store_true", help="only whether each change can be made")
    parser.add_argument(
        "--trust", action="store_true", help="the tests are known to pass without a change"
    )
    parser.add_argument(
        "--packages",
        action="store_true",
        help="run the fast tests of the changed package, as make check does, not the tests of the table",
    )
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, metavar="N")
    args = parser.parse_args(argv)
    table = [one for one in mutations(TOP) if args.only in one.what]
    if args.packages:
        table = [by_package(one) for one in table]
    if args.check:
        return 1 if [one for one in table if not _can_be_made(one)] else 0
    with copies(max(1, min(args.at_once, len(table)))) as tops:
        suites = [] if args.trust else sorted({one.tests for one in table})
        wrong = [verdict for verdict in each(unchanged, suites, tops) if not verdict.is_well]
        for verdict in wrong:
            print(f"{verdict.what}\n{verdict.text}", flush=True)
        verdicts = []
        for verdict in each(judge, table, tops):
            verdicts.append(verdict)
            print(f"{verdict.what} -> {verdict.text} -> {verdict.seconds:.0f} s", flush=True)
    survivors = [verdict for verdict in verdicts if not verdict.is_well]
    print(f"\n{len(verdicts)} changes, {len(survivors)} not noticed or not made")
    for verdict in survivors:
        print(f"  {verdict.what}: {verdict.text}")
    return 1 if wrong or survivors or not table else 0


def _can_be_made(mutation: Mutation) -> bool:
    try:
        changed(mutation, TOP)
    except Stale as err:
        print(f"{mutation.what}: {err}")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
