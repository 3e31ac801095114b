"""Files that have no end are refused, not read until the memory is used up."""

import sys
from collections.abc import Callable

import pytest

from ganeti.base.errors import InputError, PrereqError
from ganeti.cli import hail, hinfo, input_file, mon_collector
from ganeti.cli.input_file import read_input


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test need not read as much as a command does."""
    monkeypatch.setattr(mon_collector, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(input_file.read_input, "__defaults__", (1 << 20,))


@pytest.mark.parametrize(
    "words", [["diskstats", "-f"], ["lv", "-f"], ["drbd", "-s"], ["drbd", "-p"]]
)
def test_a_collector_refuses_a_file_without_an_end(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mon-collector", *words, "/dev/zero"])
    with pytest.raises(SystemExit) as ended:
        mon_collector.main()
    assert ended.value.code == 1
    err = capsys.readouterr().err
    assert err.startswith("Error: Failed reading: /dev/zero: is larger than 1 MiB")


@pytest.mark.parametrize(
    ("main", "words"), [(hail.main, ["/dev/zero"]), (hinfo.main, ["-t", "/dev/zero"])]
)
def test_a_placement_command_refuses_a_file_without_an_end(
    main: Callable[[list[str]], int], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    assert "/dev/zero: is larger than 1 MiB" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(PrereqError, match=r"^/nonexistent: does not exist$"):
        read_input("/nonexistent")
    with pytest.raises(InputError, match="larger than 0 MiB"):
        read_input("/dev/zero", 10)
