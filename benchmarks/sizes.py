"""How much a benchmark measures."""

import argparse
import enum

SETTLED_S = 2.0


class Size(enum.IntEnum):
    """The index of a size in (smoke, quick, whole)."""

    SMOKE = 0
    """One of everything, to see that it runs: the figures say nothing."""
    QUICK = 1
    WHOLE = 2

    @property
    def settled_s(self) -> float:
        """Seconds in which a fresh cluster does by itself what must not be measured."""
        return 0.0 if self is Size.SMOKE else SETTLED_S


def chosen_size(description: str | None, quick: str = "a short run") -> Size:
    """Return the size that the words of the command ask for; `quick` says what a short run leaves out."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--smoke", action="store_true", help="one of everything, to see that it runs"
    )
    args = parser.parse_args()
    return Size.SMOKE if args.smoke else Size.QUICK if args.quick else Size.WHOLE
