"""Restarts the host at once without its disk: starts no program and opens no file on a disk (S31, S32)."""

import ctypes
import logging
import os
from collections.abc import Callable
from pathlib import Path

from ganeti.base.paths import Paths

TRIGGER = "/proc/sysrq-trigger"
RESTART_NOW = b"b"
RB_AUTOBOOT = 0x01234567

# Loaded now, because the disk may have failed when it is needed.
_libc = ctypes.CDLL(None, use_errno=True)

log = logging.getLogger(__name__)


def restart_of(paths: Paths) -> Callable[[], None]:
    """Return the function that restarts this node.

    A virtual node only has a trigger of its own below its root, and never the host's.
    """
    trigger = paths.below(TRIGGER)
    reboot = _reboot if paths.root == Path("/") else None
    return lambda: restart_host(trigger, reboot)


def restart_host(trigger: Path, reboot: Callable[[], None] | None) -> None:
    """Ask the kernel by its trigger file, and by a system call if that fails."""
    try:
        descriptor = os.open(trigger, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, RESTART_NOW)
        finally:
            os.close(descriptor)
    except OSError as err:
        log.critical("%s: %s", trigger, err.strerror)
        if reboot is not None:
            reboot()


def _reboot() -> None:
    """Restart without syncing disks: a hanging disk would block the restart."""
    if _libc.reboot(RB_AUTOBOOT):
        log.critical("cannot restart the host: %s", os.strerror(ctypes.get_errno()))
