"""`fmtjson`: formats JSON for people."""

import json
import sys
from collections.abc import Sequence

from ganeti.base.terminal import Parser, say

PROG = "fmtjson"


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if standard input is not JSON."""
    Parser(
        prog=PROG,
        description="Read JSON from standard input, and write it sorted and indented to standard output.",
    ).parse_args(argv)
    try:
        content = json.loads(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as err:
        say(f"{PROG}: standard input is not JSON: {err}", file=sys.stderr)
        return 1
    say(json.dumps(content, indent=2, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
