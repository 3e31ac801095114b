import logging
import os
import pty
import stat
from pathlib import Path

import pytest

from ganeti.base.logs import RECORD_LIMIT, LineFormatter, LogFile, logging_to


def record(text: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("test", logging.INFO, __file__, 1, text, args, None)


@pytest.mark.requirement("A56")
def test_long_record_is_cut_with_the_number_of_dropped_characters() -> None:
    line = LineFormatter("ganeti-test").format(record("x" * (1 << 20)))
    assert len(line) < RECORD_LIMIT + 200
    assert line.endswith(f"[{(1 << 20) - RECORD_LIMIT} more characters]")


def test_a_line_has_the_moment_the_program_and_the_level() -> None:
    line = LineFormatter("ganeti-test").format(record("hello %s", "you\n"))
    assert line.endswith(f"ganeti-test pid={os.getpid()} INFO test: hello you\\n")


def test_a_traceback_is_on_the_records_line() -> None:
    try:
        int("broken\nhere")
    except ValueError as err:
        failed = logging.LogRecord(
            "test", logging.ERROR, __file__, 1, "failed", (), (type(err), err, err.__traceback__)
        )
    line = LineFormatter("ganeti-test").format(failed)
    assert "\n" not in line
    assert "broken" in line


def test_records_reach_the_file_which_only_its_group_may_read(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    with logging_to(path, "ganeti-test"):
        logging.getLogger("x").info("one %d", 1)
        logging.getLogger("x").debug("not this")
    text = path.read_text()
    assert "INFO x: one 1\n" in text
    assert "not this" not in text
    assert not stat.S_IMODE(path.stat().st_mode) & 0o137


def test_the_level_can_be_lowered(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    with logging_to(path, "ganeti-test", level="debug"):
        logging.getLogger("x").debug("this too")
    assert "this too" in path.read_text()


@pytest.mark.sampled(0)
def test_flood_of_records_is_cut_off_and_the_process_continues(tmp_path: Path) -> None:
    with logging_to(tmp_path / "daemon.log", "ganeti-test"):
        for number in range(20_000):
            logging.getLogger("x").info("%d", number)
    assert (tmp_path / "daemon.log").read_text().count("\n") <= 20_000


@pytest.mark.requirement("S30")
def test_what_the_file_cannot_take_goes_to_the_console(tmp_path: Path) -> None:
    master, console = pty.openpty()
    try:
        handler = LogFile(tmp_path / "no" / "such" / "directory", Path(os.ttyname(console)))
        handler.setFormatter(LineFormatter("ganeti-test"))
        handler.emit(record("the disk is full"))
        assert b"the disk is full" in os.read(master, 4096)
    finally:
        os.close(master)
        os.close(console)


@pytest.mark.requirement("A55")
def test_a_link_in_place_of_the_log_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("")
    (tmp_path / "daemon.log").symlink_to(victim)
    handler = LogFile(tmp_path / "daemon.log", tmp_path / "no-console")
    handler.setFormatter(LineFormatter("ganeti-test"))
    handler.emit(record("hello"))
    assert victim.read_text() == ""
