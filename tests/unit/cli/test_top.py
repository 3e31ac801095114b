"""gnt-instance top and gnt-node top."""

import json
import os
import pty
import termios
import threading
from typing import Any

import pytest

from ganeti.cli.command import run_guarded
from ganeti.cli.gnt_instance import table as gnt_instance
from ganeti.cli.gnt_node import table as gnt_node
from ganeti.cli.top import COLUMNS, Column, shown
from tests.unit.cli.fake_master import FakeMaster, Run

FIGURES: dict[str, list[float | None]] = {
    "web1": [0.5, 128, 4096, 0, 3.2, None, 2_000_000, 0],
    "db1": [1.25, 64, 0, 0, None, None, 0, 0],
    "idle1": [None, 900, None, None, None, None, None, None],
    "down1": [None] * 8,
}


def answer(_kind: str, fields: list[str], _filter: Any = None) -> dict[str, Any]:
    assert len(fields) == 2 + len(COLUMNS)
    data = [
        [[0, name], [0, "node1"], *([0, one] if one is not None else [3, None] for one in figures)]
        for name, figures in FIGURES.items()
    ]
    return {"fields": [], "data": data}


@pytest.fixture(autouse=True)
def _answers(master: FakeMaster) -> None:
    master.replies["Query"] = answer


def test_the_busiest_comes_first_and_instances_without_figures_are_omitted(run: Run) -> None:
    code, out, _ = run(gnt_instance, "top", "--once")
    assert code == 0
    assert (
        out
        == """\
Instance Node  CPU% Memory Read/s Write/s Reads Writes In/s Out/s
db1      node1  125  64.0M      0       0     -      -    0     0
web1     node1   50   128M   4.0K       0     3      - 1.9M     0
idle1    node1    -   900M      -       -     -      -    -     -
"""
    )


@pytest.mark.parametrize(
    ("sort", "first"), [("memory", "idle1"), ("net_in", "web1"), ("name", "db1"), ("cpu", "db1")]
)
def test_a_figure_or_the_name_sorts(run: Run, sort: str, first: str) -> None:
    _, out, _ = run(gnt_node, "top", "--json", f"--sort={sort}")
    found = json.loads(out)
    assert found[0]["name"] == first
    assert len(found) == 3
    assert found[0].keys() == {"name", "group", *(one.figure for one in COLUMNS)}


def test_names_and_filters_select(master: FakeMaster, run: Run) -> None:
    run(gnt_instance, "top", "--once", "web1", "-F", 'pnode == "node1"')
    assert master.args_of("Query")[2] == [
        "&",
        ["|", ["==", "name", "web1"]],
        ["=", "pnode", "node1"],
    ]


@pytest.mark.parametrize("interval", ["0", "-5", "inf", "nan", "4000"])
def test_a_wrong_interval_is_refused(run: Run, interval: str) -> None:
    code, _, err = run(gnt_instance, "top", f"--interval={interval}")
    assert code == 1
    assert "between 1 and 3600" in err


@pytest.mark.parametrize(
    ("value", "scale", "text"),
    [
        (None, 1, "-"),
        (0, 1, "0"),
        (1023, 1, "1023"),
        (1024, 1, "1.0K"),
        (150 * 1024, 1, "150K"),
        (1.5 * 1024**4, 1, "1.5T"),
        (5000 * 1024.0**5, 1, "5000P"),
        (64, 1024 * 1024, "64.0M"),
        (12.6, 0, "13"),
    ],
)
def test_figures_are_short(value: float | None, scale: int, text: str) -> None:
    assert shown(value, Column("x", "X", "x", scale)) == text


class Terminal:
    """A pseudoterminal: what the command writes is collected, and keys follow what it shows."""

    def __init__(self, *keys: tuple[str, bytes]) -> None:
        self.text = ""
        self._keys = list(keys)
        self._own, self._of_command = pty.openpty()
        self.stdin, self.stdout = (os.dup(self._of_command) for _ in range(2))
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._of_command)[3] & termios.ECHO)

    def _follow(self) -> None:
        seen = 0
        while part := self._read():
            self.text += part
            while self._keys and self._keys[0][0] in self.text[seen:]:
                seen = len(self.text)
                os.write(self._own, self._keys.pop(0)[1])

    def _read(self) -> str:
        try:
            return os.read(self._own, 65536).decode()
        except OSError:  # its other end is closed
            return ""

    def close(self) -> None:
        os.close(self._of_command)
        self._thread.join()
        os.close(self._own)


def on(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the command on a terminal of 4 lines with 50 characters; return its exit code."""
    with os.fdopen(terminal.stdin) as stdin, os.fdopen(terminal.stdout, "w") as stdout:
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stdout", stdout)
        monkeypatch.setenv("COLUMNS", "50")
        monkeypatch.setenv("LINES", "4")
        monkeypatch.setenv("TERM", "dumb")
        code = run_guarded(lambda: gnt_instance.run(["top", *words]))
        assert terminal.echoes
    terminal.close()
    return code


def test_keys_sort_and_end_it_on_a_terminal(
    master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(
        ("by cpu", b"m"), ("by memory", b"?"), ("by memory", b"n"), ("by name", b"q")
    )
    assert on(terminal, monkeypatch) == 0
    screens = terminal.text.split("\x1b[H\x1b[2J")[1:]
    assert len(screens) == 4
    assert all(len(one.splitlines()) == 3 for one in screens)
    assert all(len(line) <= 50 for one in screens for line in one.splitlines())
    firsts = [one.splitlines()[2].split()[0] for one in screens]
    assert firsts == ["db1", "idle1", "idle1", "db1"]
    assert master.methods().count("Query") == 1, "a key asks nobody"


def test_it_asks_again_after_the_interval(
    master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.cli.top.SHORTEST_S", 0.0)
    terminal = Terminal(("by cpu", b""), ("by cpu", b"q"))
    assert on(terminal, monkeypatch, "--interval=0.01") == 0
    assert master.methods().count("Query") >= 2
