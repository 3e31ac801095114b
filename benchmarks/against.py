"""Run the benchmarks of the working tree and of a commit in turn, and print old, new and their ratio.

The commit is unpacked below .cache/against with a virtual environment of its own, where later runs find both again.
Each version runs its own benchmarks. The two change places in each round, so that neither is always the first.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from pairs import Figures, compare, one_sided, table

TOP = Path(__file__).resolve().parents[1]
PLACE = TOP / ".cache" / "against"
ROUNDS = 5
FEWEST_ROUNDS = 3
OWN = ("GANETI_", "FORCE_LUXI_", "VIRTUAL_ENV", "PYTHON")
"""Beginnings of the variables of a cluster or of an interpreter that the caller uses."""


def main() -> int:
    """Return 1 if a figure is worse or a benchmark has failed, 2 if the commit or the subject does not exist."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="a commit, branch or tag")
    parser.add_argument("--only", metavar="NAME", help="one subject, as in bench_NAME.py")
    parser.add_argument("--quick", action="store_true", help="short runs")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="pairs of runs (default: %(default)s)"
    )
    args = parser.parse_args()
    if args.rounds < FEWEST_ROUNDS:
        return refuse(f"{args.rounds} rounds do not tell a change from noise: {FEWEST_ROUNDS} do")
    try:
        old = checked_out(args.commit)
    except subprocess.CalledProcessError as err:
        return refuse(f"commit {args.commit}: {' '.join(map(str, err.cmd))} failed")
    subjects = {path.stem for top in (old, TOP) for path in (top / "benchmarks").glob("bench_*.py")}
    chosen = sorted(one.removeprefix("bench_") for one in subjects)
    if args.only is not None:
        if args.only not in chosen:
            return refuse(f"no benchmark {args.only!r}; there are: {', '.join(chosen)}")
        chosen = [args.only]
    return max([judged(old, name, args.rounds, quick=args.quick) for name in chosen])


def refuse(why: str) -> int:
    """Print why nothing is measured."""
    print(why, file=sys.stderr)
    return 2


def checked_out(commit: str) -> Path:
    """Return a directory with the files of the commit and its virtual environment; CalledProcessError."""
    name = ["git", "-C", str(TOP), "rev-parse", "--verify", f"{commit}^{{commit}}"]
    identity = subprocess.run(name, check=True, capture_output=True, text=True).stdout.strip()
    directory = PLACE / identity
    if not (directory / "Makefile").exists():
        directory.mkdir(parents=True, exist_ok=True)
        packed = directory.with_suffix(".tar")
        subprocess.run(["git", "-C", TOP, "archive", "-o", packed, identity], check=True)
        subprocess.run(["tar", "-xf", packed, "-C", directory], check=True)
        packed.unlink()
    python = Path(sys.base_prefix) / "bin" / "python3"
    setup = ["make", "--no-print-directory", "-C", str(directory), "setup", f"PYTHON={python}"]
    subprocess.run(setup, check=True, stdout=sys.stderr, env=environment())
    return directory


def judged(old: Path, name: str, rounds: int, *, quick: bool) -> int:
    """Measure one subject, print its figures, and return 1 if one is worse or a run has failed."""
    pairs: list[tuple[Figures, Figures]] = []
    for number in range(rounds):
        print(f"{name}: round {number + 1} of {rounds}", file=sys.stderr)
        sides = (old, TOP) if number % 2 == 0 else (TOP, old)
        found = {side: measured(side, name, quick=quick) for side in sides}
        if None in found.values():
            return 1
        pairs.append((found[old] or {}, found[TOP] or {}))
    comparisons = compare(pairs)
    print(f"\n{name}")
    print("\n".join(table(comparisons)))
    for side, names in zip(("the commit", "the working tree"), one_sided(pairs), strict=True):
        if names:
            print(f"only in {side}: {', '.join(names)}")
    return int(any(one.verdict == "WORSE" for one in comparisons))


def measured(top: Path, name: str, *, quick: bool) -> Figures | None:
    """Run one benchmark once; empty if this version does not have it, None if it fails."""
    script = top / "benchmarks" / f"bench_{name}.py"
    if not script.exists():
        return {}
    words = [str(top / ".venv" / "bin" / "python"), str(script), *(["--quick"] if quick else [])]
    done = subprocess.run(
        words, cwd=top, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(done.stderr, f"{script} has failed", sep="\n", file=sys.stderr)
        return None
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def environment() -> dict[str, str]:
    """Return the caller's variables but those of a cluster or of an interpreter."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OWN)}


if __name__ == "__main__":
    sys.exit(main())
