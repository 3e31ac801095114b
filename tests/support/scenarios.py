"""Scenario scripts: a text file is a conversation with a pure core, and the test.

    # What this shows.
    a command and its arguments
    another command
    ----
    what the core answers

Blank lines separate the parts. A test runs each block and compares the text below its `----`.
With GANETI_REWRITE_SCENARIOS=1 the answers are written into the file; read the difference before you commit it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).parents[1] / "scenarios"
LINE = "----"


@dataclass
class Block:
    """Some commands, and what they are answered."""

    comments: list[str]
    commands: list[str]
    answer: list[str]

    def __str__(self) -> str:
        return "\n".join([*self.comments, *self.commands, LINE, *self.answer])


def scenarios(subject: str) -> list[Path]:
    """Return the scripts about one subject."""
    return sorted((DIRECTORY / subject).glob("*.txt"))


def run_scenario(path: Path, run: Callable[[str], list[str]]) -> None:
    """Fail where `run` answers the commands of a script other than the script says."""
    blocks = _blocks(path.read_text("utf-8"))
    assert blocks, f"{path} has no block"
    if os.environ.get("GANETI_REWRITE_SCENARIOS"):
        for block in blocks:
            block.answer = _answer(block, run)
        path.write_text("\n\n".join(map(str, blocks)) + "\n", "utf-8")
        return
    for block in blocks:
        assert _answer(block, run) == block.answer, f"{path}, at: {block.commands}"


def _answer(block: Block, run: Callable[[str], list[str]]) -> list[str]:
    return [line for command in block.commands for line in run(command)]


def _blocks(text: str) -> list[Block]:
    blocks = []
    for part in text.strip().split("\n\n"):
        lines = part.splitlines()
        end = lines.index(LINE)
        comments = [line for line in lines[:end] if line.startswith("#")]
        commands = [line for line in lines[:end] if not line.startswith("#")]
        blocks.append(Block(comments, commands, lines[end + 1 :]))
    return blocks
