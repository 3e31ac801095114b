"""The script that lists doubtful wording finds what it should, and reads only prose."""

import runpy
from pathlib import Path

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[3] / "scripts" / "language.py"))


def phrases(path: Path) -> list[str]:
    return [one.phrase for one in SCRIPT["candidates"](path)]


def test_words_of_the_table_are_listed_in_pages(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The node is told.\nNobody mends it.\nThe node returns.\n")
    assert phrases(page) == ["is told", "Nobody", "mends"]


def test_of_python_only_strings_and_comments_are_read(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('nobody = 1  # made anew\nfail("the node is told")\n')
    assert phrases(module) == ["anew", "is told"]


def test_a_long_sentence_is_listed_and_a_synopsis_is_not(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    words = " ".join(["word"] * (SCRIPT["LONGEST_SENTENCE"] + 1))
    page.write_text(f"{words}.\n`{words}`\n| {words} |\n")
    assert [one.line for one in SCRIPT["candidates"](page)] == [1]


def test_messages_of_errors_are_listed(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('raise ValueError(f"{name} has no size")\n')
    assert list(SCRIPT["error_messages"](module)) == [(1, "f'{name} has no size'")]
