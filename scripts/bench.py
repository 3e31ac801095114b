"""Run the benchmarks, one after the other; each prints its figures as JSON on its last line."""

import argparse
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


def main() -> int:
    """Exit code 1 if one of them failed, 2 if there is none of that name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="one subject, as in bench_NAME.py")
    parser.add_argument("--quick", action="store_true", help="a short run")
    args = parser.parse_args()

    scripts = {path.stem.removeprefix("bench_"): path for path in sorted(FOLDER.glob("bench_*.py"))}
    if args.only is not None and args.only not in scripts:
        print(f"no benchmark {args.only!r}; there are: {', '.join(scripts)}", file=sys.stderr)
        return 2
    failed = []
    for name in [args.only] if args.only is not None else scripts:
        command = [sys.executable, str(scripts[name]), *(["--quick"] if args.quick else [])]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
