"""The loss of privileges of a process that reads what images and clients contain."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


def drop_rights(uid: int) -> None:
    """Drop all privileges for good, and end with the parent process; OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.getuid() != uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    for what, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_PDEATHSIG, signal.SIGKILL)):
        if libc.prctl(what, int(value), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
