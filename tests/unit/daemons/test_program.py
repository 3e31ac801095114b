"""The skeleton that all daemons share."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.base.errors import ConfigurationError
from ganeti.base.paths import Paths
from ganeti.base.pidfile import is_ending, pid_file, serving_process
from ganeti.daemons.program import DaemonProgram, Ending


def test_daemon_reports_that_it_serves_and_ends(tmp_path: Path) -> None:
    program = DaemonProgram("ganeti-test", "For a test.", "test.log")
    paths = Paths(tmp_path)
    paths.log.mkdir(parents=True)
    path = pid_file(paths.run, program.name)
    seen = []

    async def serve(ready: Callable[[], None], ending: Ending) -> None:
        seen.append(serving_process(path) is not None)
        ready()
        seen.append(serving_process(path) is not None)
        os.kill(os.getpid(), signal.SIGTERM)
        assert not await ending.wait()
        seen.extend([serving_process(path) is not None, is_ending(path)])

    assert program.run(program.parser().parse_args([]), paths, serve) == 0
    assert seen == [False, True, False, True]
    assert not is_ending(path)


def test_signals_that_end_other_programs_do_not_end_a_daemon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = DaemonProgram("ganeti-test", "For a test.", "test.log")
    paths = Paths(tmp_path)
    paths.log.mkdir(parents=True)
    read_again: list[str] = []

    def fail() -> None:
        raise ConfigurationError("the file is damaged")

    async def serve(_ready: Callable[[], None], ending: Ending) -> None:
        ending.on_reload += [fail, lambda: read_again.append("users")]
        log = paths.log / "test.log"
        log.rename(paths.log / "test.log.1")
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.01)
        assert read_again == ["users"]
        # What the guard would say last goes to the file that has the name now.
        opened = {path.resolve() for path in Path("/proc/self/fd").iterdir() if path.exists()}
        assert log in opened
        assert paths.log / "test.log.1" not in opened
        ending.end()

    assert program.run(program.parser().parse_args([]), paths, serve) == 0
    assert "ignoring signal SIGUSR1" in caplog.text
    assert "keeping the previous files: the file is damaged" in caplog.text


def test_failing_daemon_ends_with_1(tmp_path: Path) -> None:
    program = DaemonProgram("ganeti-test", "For a test.", "test.log")
    paths = Paths(tmp_path)
    paths.log.mkdir(parents=True)

    async def serve(_ready: Callable[[], None], ending: Ending) -> None:
        ending.end("the disk is gone")
        ending.end()

    assert program.run(program.parser().parse_args([]), paths, serve) == 1
