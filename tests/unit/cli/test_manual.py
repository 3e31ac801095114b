from pathlib import Path

import pytest

from ganeti.cli import manual

DIRECTORY = Path(__file__).parents[3] / "docs" / "man"


@pytest.mark.parametrize("prog", manual.PROGRAMS)
def test_the_man_page_has_every_command_option_and_argument(prog: str) -> None:
    table = manual.table_of(prog)
    page = (DIRECTORY / f"{prog}.md").read_text(encoding="utf-8")
    for name, command in table.commands.items():
        _before, heading, rest = page.partition(f"\n## {name}\n")
        assert heading, f"{prog} {name}: run python -m ganeti.cli.manual docs/man"
        section = rest.partition("\n## ")[0]
        wanted = [flag for one in command.options for flag in one.flags]
        wanted += [one.name for one in command.arguments]
        assert [word for word in wanted if f"`{word}`" not in section] == []
        assert command.summary in section


@pytest.mark.parametrize("prog", manual.PROGRAMS)
def test_the_man_page_has_nothing_that_is_gone(prog: str) -> None:
    headings = {f"\n## {name}\n" for name in manual.table_of(prog).commands}
    page = (DIRECTORY / f"{prog}.md").read_text(encoding="utf-8")
    found = {f"\n## {line[3:]}\n" for line in page.splitlines() if line.startswith("## ")}
    assert found - headings == {"\n## Exit codes\n"}


@pytest.mark.parametrize("prog", manual.TOOLS)
def test_the_page_of_a_command_without_subcommands_is_up_to_date(prog: str) -> None:
    tool = manual.tool_of(prog)
    page = (DIRECTORY / f"{prog}.md").read_text(encoding="utf-8")
    wanted = [flag for one in tool.options for flag in one.flags]
    wanted += [one.name for one in tool.arguments]
    assert [word for word in wanted if f"`{word}`" not in page] == []
    assert page.count("\n| `") == len(tool.options) + len(tool.arguments)
