import io

import pytest

from ganeti.base.terminal import Parser, escaped, say


@pytest.mark.requirement("A56")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain ä text", "plain ä text"),
        ("a\nb\rc", "a\\nb\\rc"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J \x7f", "\\x9b2J \\x7f"),
        ("\0", "\\x00"),
        ("\u2028 \u202e", "\\u2028 \\u202e"),
        ("\ud800", "\\ud800"),
    ],
)
def test_a_value_stays_on_one_line_of_printable_characters(text: str, line: str) -> None:
    assert escaped(text) == line


@pytest.mark.requirement("A56")
def test_text_keeps_its_lines_but_nothing_that_steers_a_terminal() -> None:
    out = io.StringIO()
    say("one\n\ttwo\x1b]0;title\x07", "\rthree", sep="|", end="!", file=out)
    assert out.getvalue() == "one\n\ttwo\\x1b]0;title\\x07|\\rthree!"


def test_a_separator_that_was_asked_for_is_printed_as_it_is() -> None:
    out = io.StringIO()
    say("a\x1fb\nc", keep="\x1f", file=out)
    assert out.getvalue() == "a\x1fb\\nc\n"


def test_what_the_terminal_cannot_show_is_escaped() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    say("Zürich", file=out, flush=True)
    assert raw.getvalue() == b"Z\\xfcrich\n"


@pytest.mark.requirement("A56")
def test_complaints_about_the_command_line_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Parser(prog="x").parse_args(["--\x1b[2J"])
    assert "\\x1b[2J" in capsys.readouterr().err


def test_usage_is_formatted_for_errors_only_and_then_it_is_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = Parser(prog="x")
    parser.add_argument("name")
    parser.add_argument("--size", required=True)
    with monkeypatch.context() as patch:
        patch.setattr(parser, "format_usage", lambda: pytest.fail("the usage was formatted"))
        given = vars(parser.parse_intermixed_args(["web1", "--size", "3"]))
    assert given == {"name": "web1", "size": "3"}
    for words in (["web1"], ["--size", "3"], ["web1", "--size", "3", "--other"]):
        with pytest.raises(SystemExit):
            parser.parse_intermixed_args(words)
        assert capsys.readouterr().err.startswith("usage: x [-h] --size SIZE name\n")
