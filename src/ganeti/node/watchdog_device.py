"""The watchdog device of a node: once opened, it resets the machine unless it is written to in time."""

import array
import errno
import fcntl
import os
import stat
from pathlib import Path

from ganeti.base.errors import HostError
from ganeti.base.paths import Paths

DEVICE = "/dev/watchdog"
NO_WAY_OUT = "/sys/class/watchdog/watchdog0/nowayout"
SET_TIMEOUT = 0xC0045706
"""WDIOC_SETTIMEOUT of linux/watchdog.h."""
WRITTEN, DISARMED = b"\0", b"V"


class WatchdogDevice:
    """The opened device. That of a virtual node is a file, to which every write is appended."""

    def __init__(self, paths: Paths, timeout_s: int) -> None:
        """Open and arm it; HostError says what an administrator can do."""
        self._path = path = paths.below(DEVICE)
        is_virtual = paths.root != Path("/")
        try:
            if stat.S_ISCHR(path.stat().st_mode) == is_virtual:
                raise HostError(f"{path} is not the kind of file that a watchdog has here")
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_APPEND)
        except FileNotFoundError:
            raise HostError(
                f"{path} does not exist: load the driver of a watchdog, for example with 'modprobe"
                " softdog', and at each boot by a file in /etc/modules-load.d"
            ) from None
        except OSError as err:
            hint = ""
            if err.errno == errno.EBUSY:
                hint = (
                    "; another program has opened it, for example systemd with RuntimeWatchdogSec="
                )
            raise HostError(f"{path}: {err.strerror}{hint}") from err
        try:
            if not is_virtual:
                self._set_timeout(timeout_s)
        except BaseException:
            self.close()
            raise
        self.is_disarmable = is_virtual or not _has_no_way_out()
        """False if it resets the machine even if it is closed in order."""

    def _set_timeout(self, timeout_s: int) -> None:
        wanted = array.array("i", [timeout_s])
        try:
            fcntl.ioctl(self._descriptor, SET_TIMEOUT, wanted)
        except OSError as err:
            raise HostError(
                f"{self._path} cannot be set to {timeout_s} s: {err.strerror}; use another driver,"
                " for example softdog"
            ) from err
        if not 0 < wanted[0] <= timeout_s:
            raise HostError(
                f"{self._path} resets the machine after {wanted[0]} s only, which is more than"
                f" {timeout_s} s: use another driver, for example softdog"
            )

    def pet(self) -> None:
        """Give the machine the full time again; OSError."""
        os.write(self._descriptor, WRITTEN)

    def close(self) -> None:
        """Disarm and close it."""
        try:
            os.write(self._descriptor, DISARMED)
        finally:
            os.close(self._descriptor)


def _has_no_way_out() -> bool:
    try:
        return Path(NO_WAY_OUT).read_text("ascii").strip() == "1"
    except OSError:
        return False
