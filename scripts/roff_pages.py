"""Manual pages for man(1) from those in Markdown: roff_pages.py SOURCE-DIRECTORY OUTPUT-DIRECTORY.

Understands what docs/man uses: headings, paragraphs, tables, lists, indented and fenced examples, `code`, **strong**
and links. Each page goes to OUTPUT/manN/NAME.N.gz.
"""

import gzip
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

TITLE = re.compile(r"# ([\w.-]+)\((\d)\)(?:: (.*))?")
_CELLS = re.compile(r"(?<!\\)\|")


def inline(text: str) -> str:
    """One line of running text."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        r"\fB" + escaped(part[1:-1]) + r"\fR" if index % 2 else _plain(part)
        for index, part in enumerate(parts)
    )


def _plain(text: str) -> str:
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    pieces = re.split(r"\*\*(.+?)\*\*", text)
    return "".join(
        r"\fB" + escaped(piece) + r"\fR" if index % 2 else escaped(piece)
        for index, piece in enumerate(pieces)
    )


def escaped(text: str) -> str:
    """Text without a meaning for roff."""
    text = text.replace("\\|", "|").replace("\\", "\\e").replace("-", "\\-")
    return (
        text.replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    )


def line(text: str) -> str:
    """A line that begins with text, and never with a request."""
    made = inline(text.strip())
    return "\\&" + made if made.startswith((".", "'")) else made


def page(text: str, fallback: str) -> tuple[str, str, str]:
    """(name, section, roff) of a page in Markdown."""
    lines = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split("\n")
    name, section, what = fallback, "8", ""
    while lines and not (match := TITLE.match(lines[0])):
        lines.pop(0)
    if lines and match:
        name, section, what = match[1], match[2], match[3] or ""
        lines.pop(0)
    summary = what or _first_sentence(lines) or name
    head = [f'.TH "{name.upper()}" {section} "" "Ganeti" "Ganeti"', ".nh", ".ad l", ".SH NAME"]
    head.append(f"{escaped(name)} \\- {line(summary.rstrip('.'))}")
    return name, section, "\n".join([*head, ".SH DESCRIPTION", *_body(lines), ""])


def _first_sentence(lines: list[str]) -> str:
    text = "\n".join(lines).strip().split("\n\n")[0].replace("\n", " ")
    return "" if text.startswith(("`", "|", "#")) else re.split(r"[.:;](?: |$)", text)[0]


def _body(lines: list[str]) -> Iterator[str]:
    at = 0
    while at < len(lines):
        text = lines[at]
        if not text.strip():
            at += 1
        elif text.startswith("```"):
            end = _end(lines, at + 1, lambda one: not one.startswith("```"))
            yield from _example(lines[at + 1 : end])
            at = end + 1
        elif text.startswith("    "):
            end = _end(lines, at, lambda one: one.startswith("    ") or not one.strip())
            yield from _example([one[4:] for one in lines[at:end]])
            at = end
        elif text.startswith("|"):
            end = _end(lines, at, lambda one: one.startswith("|"))
            yield from _table(lines[at:end])
            at = end
        else:
            end = _end(lines, at + 1, lambda one: bool(one.strip()) and one[0] not in "|#`-*")
            yield from _paragraph(lines[at:end])
            at = end


def _end(lines: list[str], start: int, belongs: Callable[[str], bool]) -> int:
    return next((at for at in range(start, len(lines)) if not belongs(lines[at])), len(lines))


def _paragraph(lines: list[str]) -> Iterator[str]:
    first, rest = lines[0], lines[1:]
    if first.startswith("#"):
        yield f"{'.SH' if first.startswith('## ') else '.SS'} {line(first.lstrip('#'))}"
        if rest:
            yield ".PP"
    elif re.match(r"[-*] |\d+\. ", first):
        mark, _, first = first.partition(" ")
        yield ".IP " + ("\\(bu" if mark in "-*" else mark) + " 4"
        yield line(first)
    else:
        yield ".PP"
        yield line(first)
    yield from (line(one) for one in rest)


def _example(lines: list[str]) -> Iterator[str]:
    yield from (".PP", ".RS 4", ".nf")
    for one in "\n".join(lines).strip("\n").split("\n"):
        text = escaped(one)
        yield "\\&" + text if text.startswith(".") else text
    yield from (".fi", ".RE")


def _table(rows: list[str]) -> Iterator[str]:
    cells = [[cell.strip() for cell in _CELLS.split(row.strip().strip("|"))] for row in rows]
    for number, row in enumerate(cells):
        if all(re.fullmatch(r":?-+:?", cell) for cell in row) or not any(row):
            continue
        if number == 0 and len(cells) > 1 and any(row):
            yield ".PP"
            yield "\\fI" + " · ".join(escaped(cell) for cell in row if cell) + "\\fR"
            continue
        yield ".TP"
        first = line(row[0]) or "\\&"
        yield first if first.startswith("\\fB") else f"\\fB{first}\\fR"
        yield line(" \u2014 ".join(cell for cell in row[1:] if cell)) or "\\&"


def main() -> int:
    """Write all pages."""
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    for path in sorted(source.glob("*.md")):
        name, section, roff = page(path.read_text(encoding="utf-8"), path.stem)
        directory = output / f"man{section}"
        directory.mkdir(parents=True, exist_ok=True)
        packed = gzip.compress(roff.encode(), mtime=0)
        (directory / f"{name}.{section}.gz").write_bytes(packed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
