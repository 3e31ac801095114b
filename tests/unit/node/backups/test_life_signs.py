"""What counts as a sign of life in the output of a guest that may send anything."""

import json

import pytest

from ganeti.node.backups.life_signs import KEPT, AgentAnswer, ConsoleText
from ganeti.protocols.backup_proof import LONGEST, MOST_TEXTS

pytestmark = pytest.mark.requirement("A64", "A56")


@pytest.mark.parametrize("length", [1, 2, 7, 1000])
def test_text_is_found_however_it_arrives(length: int) -> None:
    output = b"Booting\r\n\x1b[0;32mweb1\x1b[0m lo\x1b[1mgin\x1b[0m: "
    console = ConsoleText("web1 login:")
    for at in range(0, len(output), length):
        console.take(output[at : at + length])
    assert console.is_there
    assert console.lines == ["Booting", "web1 login:"]


def test_other_text_is_no_sign_and_the_pattern_is_plain() -> None:
    console = ConsoleText("lo.in:")
    console.take(b"web1 login: ")
    assert not console.is_there
    nothing = ConsoleText("")
    nothing.take(b"anything")
    assert not nothing.is_there


def test_text_across_a_large_output_is_found_and_only_the_end_is_kept() -> None:
    console = ConsoleText("login:")
    console.take(b"x" * KEPT + b"log")
    console.take(b"in:" + b"y" * (10 * KEPT))
    assert console.is_there
    for _ in range(50):
        console.take(b"z\n" * KEPT)
    assert len(console.lines) == MOST_TEXTS


def test_hostile_console_becomes_short_printable_lines() -> None:
    console = ConsoleText("login:")
    console.take(b"\x1b]0;title\x07\xff\xfe\x00\x1b[2J" + "\u202e".encode() + b"q" * 5000 + b"\n")
    (line,) = console.lines
    assert line.isprintable()
    assert len(line) <= LONGEST


def test_answer_of_the_agent_has_a_token_that_was_sent() -> None:
    agent = AgentAnswer()
    assert b"guest-sync-delimited" in agent.question(7)
    agent.question(8)
    for other in (
        b'{"return": 9}',
        b'{"return": true}',
        b'{"return": {"x": 7}}',
        b"[" * 9000,
        b"7",
    ):
        agent.take(b"\xff" + other + b"\n")
    assert not agent.is_there
    answer = b"rubbish\xff" + json.dumps({"return": 8}).encode() + b"\n"
    agent.take(answer[:5])
    assert not agent.is_there
    agent.take(answer[5:])
    assert agent.is_there


def test_endless_line_of_the_agent_is_bounded() -> None:
    agent = AgentAnswer()
    for _ in range(100):
        agent.take(b"x" * KEPT)
    assert len(agent._raw) <= KEPT
    assert not agent.is_there
