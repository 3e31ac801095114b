"""The skeleton that all daemons share."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from ganeti.base.paths import Paths
from ganeti.base.pidfile import is_ending, pid_file, serving_process
from ganeti.daemons.program import DaemonProgram, Ending


def test_a_daemon_says_that_it_serves_and_that_it_ends(tmp_path: Path) -> None:
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


def test_a_daemon_that_cannot_go_on_ends_with_1(tmp_path: Path) -> None:
    program = DaemonProgram("ganeti-test", "For a test.", "test.log")
    paths = Paths(tmp_path)
    paths.log.mkdir(parents=True)

    async def serve(_ready: Callable[[], None], ending: Ending) -> None:
        ending.end("the disk is gone")
        ending.end()

    assert program.run(program.parser().parse_args([]), paths, serve) == 1
