"""`check-cert-expired`: a test for scripts that remove expired certificates."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ganeti.base.certificate_facts import validity
from ganeti.base.terminal import Parser, say
from ganeti.tools.program import ended, read

PROG = "check-cert-expired"
CLOCK_SKEW_S = 300.0
"""The tolerated difference from the clock of the certificate's creator."""
VALID = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if the certificate is not valid; 1 if it is, or cannot be read."""
    path = Path(parser().parse_args(argv).file)
    return ended(PROG, lambda: _judge(path, time.time()))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the only argument."""
    made = Parser(
        prog=PROG,
        description="Exit with 0 if a certificate has expired or is not valid yet, and with 1 if it is valid"
        " or cannot be read.",
    )
    made.add_argument("file", help="a certificate in PEM form")
    return made


def _judge(path: Path, now: float) -> int:
    begin, end = validity(read(path))
    if end < now:
        say(f"{path}: the certificate has expired", file=sys.stderr)
        return 0
    if begin > now + CLOCK_SKEW_S:
        say(f"{path}: the certificate is not valid yet", file=sys.stderr)
        return 0
    return VALID


if __name__ == "__main__":
    sys.exit(main())
