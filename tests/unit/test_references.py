"""Every rule, page, module and command that a text names exists."""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.cli.manual import PROGRAMS, table_of

TOP = Path(__file__).resolve().parents[2]
SOURCE = TOP / "src" / "ganeti"
PAGES = sorted([TOP / "README.md", *(TOP / "docs").rglob("*.md")])
RULE = re.compile(r"(?<![\w\-\"&])[SGFARXBTD]\d{1,3}(?![\w\"])")
NO_RULE = frozenset({"X509"})
ROOTS = ("src", "tests", "benchmarks", "scripts", "guest")


def _rules() -> frozenset[str]:
    text = (TOP / "docs" / "rules.md").read_text("utf-8")
    return frozenset(re.findall(r"^\| ([A-Z]\d+) \|", text, re.MULTILINE))


def _texts() -> Iterator[Path]:
    yield from PAGES
    yield from sorted(SOURCE.rglob("*.py"))


def test_every_rule_that_a_text_cites_is_in_the_list_of_rules() -> None:
    rules = _rules()
    unknown = [
        f"{path.relative_to(TOP)}: {code}"
        for path in _texts()
        for line in path.read_text("utf-8").splitlines()
        if "noqa" not in line
        for code in RULE.findall(line)
        if code not in rules | NO_RULE
    ]
    assert unknown == []


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _anchors(page: Path) -> set[str]:
    return {_slug(one) for one in re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and anchor not in _anchors(there)):
            broken.append(target)
    assert broken == []


_MODULE = re.compile(r"`((?:\w+/)*\w+\.py)`|`ganeti\.([a-z][a-z_.]*[a-z])`")


def _module_exists(name: str) -> bool:
    return (TOP / name).exists() or any(any((TOP / root).rglob(name)) for root in ROOTS)


def _dotted_exists(name: str) -> bool:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        path = SOURCE.joinpath(*parts[:end])
        if path.is_dir() or path.with_suffix(".py").exists():
            rest = parts[end:]
            if not rest:
                return True
            module = importlib.import_module(".".join(["ganeti", *parts[:end]]))
            return len(rest) == 1 and hasattr(module, rest[0])
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    missing = []
    for path, dotted in _MODULE.findall(page.read_text("utf-8")):
        if path and not _module_exists(path):
            missing.append(path)
        if dotted and not _dotted_exists(dotted):
            missing.append(dotted)
    assert missing == []


_COMMAND = re.compile(r"`((?:%s) [^`]+)`" % "|".join(PROGRAMS))  # noqa: UP031
_PLACEHOLDER = re.compile(r"[A-Z…*|<]")


def _unknown_parts(line: str) -> Iterator[str]:
    """The command and the options of one command line that do not exist."""
    program, name, *words = shlex.split(line.replace("'", " "), comments=True)
    if _PLACEHOLDER.match(name) or name.startswith("-"):
        return
    commands = [table_of(program).find(one) for one in name.split("/")]
    if None in commands:
        yield f"{program} {name}"
        return
    known = {
        flag
        for command in commands
        if command
        for option in command.options
        for flag in option.flags
    }
    for word in words:
        flag = re.split(r"[=\[\]|,]", word)[0]
        if flag.startswith("--") and len(flag) > 2 and flag not in known:
            yield f"{program} {name} {flag}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    lines = _COMMAND.findall(page.read_text("utf-8"))
    assert [part for line in lines for part in _unknown_parts(line)] == []
