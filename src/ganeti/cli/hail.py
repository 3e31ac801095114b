"""`hail`: the built-in allocator as a program, called as any allocator is (seed 004)."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ganeti.base.errors import GanetiError
from ganeti.cli.command import EXIT_FAILURE, EXIT_USAGE
from ganeti.model import wire


def main(argv: Sequence[str] | None = None) -> int:
    """Answer the message in the file that is the only argument; 0 even if the answer is no."""
    words = sys.argv[1:] if argv is None else list(argv)
    if len(words) != 1 or words[0].startswith("-"):
        print("Usage: hail FILE, where FILE holds an allocator message", file=sys.stderr)
        return EXIT_USAGE
    try:
        text = answer_text(Path(words[0]).read_bytes())
    except (OSError, GanetiError) as err:
        print(f"hail: {err}", file=sys.stderr)
        return EXIT_FAILURE
    print(text)
    return 0


def answer_text(message: bytes) -> str:
    """The answer to a message, as JSON; InputError if the message is none."""
    from ganeti.placement.allocate import answer

    value = wire.parse_foreign(message, what="message")
    try:
        found = answer(value)
    except (KeyError, TypeError, AttributeError, ValueError) as err:
        what = f"the message cannot be used: {type(err).__name__} {err}"
        found = {"success": False, "info": what, "result": []}
    return json.dumps(found)


if __name__ == "__main__":
    sys.exit(main())
