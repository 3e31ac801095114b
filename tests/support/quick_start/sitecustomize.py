"""Every Python that a test's cluster starts reads this first, and has the fork server do its work.

See `tests.support.fork_server`. This process then only waits, hands signals on, and ends as the forked one does.
"""

import os
import sys


def _wait_for_a_fork(door: str) -> None:
    import marshal  # most programs need none of these
    import signal
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        try:
            server.connect(door)
            umask = os.umask(0o077)
            os.umask(umask)
            directory = os.getcwd()  # noqa: PTH109  # pathlib takes long to import
            asked = (sys.orig_argv, directory, {**os.environ}, umask)
            socket.send_fds(server, [marshal.dumps(asked)], [0, 1, 2])
            answer = server.recv(16)
        except OSError:
            return
        if not answer:
            return  # it is none of its programs, or runs as somebody or somewhere else
        child = int(answer)

        def hand_on(number: int, _: object) -> None:
            os.kill(child, number)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, hand_on)
        ended = int(server.recv(16) or b"1")
    if ended < 0:
        signal.signal(-ended, signal.SIG_DFL) if -ended != signal.SIGKILL else None
        os.kill(os.getpid(), -ended)
    os._exit(ended)


if "PYTHON_FORK_SERVER" in os.environ and not any(os.isatty(number) for number in (0, 1, 2)):
    _wait_for_a_fork(os.environ["PYTHON_FORK_SERVER"])
