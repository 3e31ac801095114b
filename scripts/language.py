"""List words and phrases that plain technical English does not use: advice, never a gate.

    scripts/language.py [PATH...]     lines of docs, src and tests that may need another wording
    scripts/language.py --errors      every message of an error, with its file, to be read in full
    scripts/language.py --count       candidates per package

A candidate may be right in its sentence: read the line aloud before you change it.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[1]
FOLDERS = ("README.md", "docs", "src", "tests", "scripts", "benchmarks", "guest")
LONGEST_SENTENCE = 25

WORDS = {
    r"anew": "again, recreate, restart",
    r"(is|are|was|be|being) told|told by": "is notified, reports, returns",
    r"heard( of)?": "last heartbeat, last contact",
    r"nobody|somebody|whoever": "no process, another node, a client that",
    r"wish(es)?|is wanted": "request, options, desired",
    r"kept aside|asides?": "preserved divergent state",
    r"the walls?|doors?": "import rules, interfaces",
    r"mend(s|ed|ing)?": "fix, repair",
    r"doomed|stranded|exempt|refuge": "not recoverable, unplaced, excluded, spare node",
    r"first words": "handshake",
    r"left alone|leaves? alone": "ignore, keep unchanged",
    r"(is|are) no(?= [a-z]+\b(?<!longer)(?<!more))": "is not a, are not",
    r"ours|of ours|theirs|of theirs": "local, from the merged cluster",
    r"a second time": "again, idempotent",
    r"as on a crash": "as after a crash",
    r"what is over": "finished",
    r"says so|said so|it is said|is said": "reports, prints",
    r"the original(?!s)": "upstream Ganeti",
    r"this version": "this implementation",
    r"accepted, without effect": "ignored; kept for compatibility with Ganeti 3",
    r"takes? (it|them|this) for": "treats as",
    r"counts? as nothing": "is ignored",
    r"by itself": "automatically",
    r"gives? up": "abandons, stops",
    r"goes on|go on": "continues",
}
_WORDS = re.compile(
    "|".join(f"(?P<w{n}>\\b(?:{one})\\b)" for n, one in enumerate(WORDS)), re.IGNORECASE
)
_NO_SENTENCE = re.compile(r"\||^`| · ")
"""Rows of tables, synopses and lists."""
_ADVICE = tuple(WORDS.values())


class Candidate(NamedTuple):
    """A phrase in a line, and what to write instead."""

    path: Path
    line: int
    phrase: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(TOP)}:{self.line}: {self.phrase!r}: {self.advice}"


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that people read: of Python only comments and strings."""
    lines = path.read_text("utf-8").splitlines()
    if path.suffix != ".py":
        yield from enumerate(lines, 1)
        return
    for number, line in enumerate(lines, 1):
        if "#" in line:
            yield number, line.split("#", 1)[1]
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, text in enumerate(node.value.splitlines()):
                yield node.lineno + offset, text


def candidates(path: Path) -> Iterator[Candidate]:
    """Phrases of the table, and sentences that are too long, in the order of lines."""
    for number, text in sorted(set(prose(path))):
        for match in _WORDS.finditer(text):
            yield Candidate(path, number, match[0], _ADVICE[int((match.lastgroup or "w0")[1:])])
        for sentence in re.split(r"(?<=[.:;!?])\s", text):
            if len(sentence.split()) > LONGEST_SENTENCE and not _NO_SENTENCE.search(sentence):
                yield Candidate(path, number, f"{sentence[:30]}…", "one fact a sentence")


def error_messages(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of exceptions that a file raises."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                if isinstance(argument, ast.JoinedStr | ast.Constant):
                    yield node.lineno, ast.unparse(argument)


def files(names: list[str]) -> Iterator[Path]:
    """All Python and Markdown files below the paths."""
    for name in names:
        path = (TOP / name).resolve()
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (one for one in found if one.suffix in {".py", ".md"} and one != Path(__file__))


def main() -> int:
    """Print what may need another wording; always 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", default=list(FOLDERS), metavar="PATH")
    parser.add_argument("--errors", action="store_true", help="list every message of an error")
    parser.add_argument("--count", action="store_true", help="count candidates per folder")
    args = parser.parse_args()
    lines: list[str] = []
    counts: Counter[str] = Counter()
    for path in files(args.paths):
        place = str(path.relative_to(TOP))
        if args.errors:
            if path.suffix == ".py":
                lines += [f"{place}:{number}: {text}" for number, text in error_messages(path)]
            continue
        for one in candidates(path):
            counts["/".join(place.split("/")[: 3 if place.startswith("src") else 2])] += 1
            lines.append(str(one))
    if args.count:
        lines = [f"{number:6} {folder}" for folder, number in counts.most_common()]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
