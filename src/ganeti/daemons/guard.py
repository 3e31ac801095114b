"""`ganeti-guard`: kills protected guests when the node's lease is over, and lets the watchdog reset a node that cannot.

It reads the lease from a file of the node daemon (`ganeti.node.lease_record`), so the daemon may be dead. It uses few
modules, all loaded and locked in memory before it serves, and after that no disk.
"""

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ganeti.base.clock import BootClock, Clock
from ganeti.base.errors import GanetiError, HostError
from ganeti.base.paths import Paths
from ganeti.base.pidfile import holding_pid_file, pid_file
from ganeti.base.systemd import notify
from ganeti.base.terminal import Parser, say
from ganeti.hypervisor.guest_processes import FoundGuest, living_guests
from ganeti.node.host_restart import restart_of
from ganeti.node.lease_record import LeaseRecord, boot_id, read_lease
from ganeti.node.memory import lock_memory
from ganeti.node.watchdog_device import WatchdogDevice
from ganeti.recovery.lease import DEVICE_S, Guard, GuardAction

PROGRAM = "ganeti-guard"
TICK_S = 0.25
PET_S = 1.0
OPEN_AGAIN_S = 5.0
DIES_WITHIN_S = 0.1
"""How long a killed guest usually takes to end, at most."""
LAST_REQUEST = 2
ENDING = (signal.SIGTERM, signal.SIGINT)
OOM_SCORE = Path("/proc/self/oom_score_adj")
PRIORITY = os.sched_param(50)

log = logging.getLogger(PROGRAM)


class GuardProcess:
    """The work of the process, a step at a time."""

    def __init__(self, paths: Paths, clock: Clock) -> None:
        self._paths, self._clock = paths, clock
        self._restart = restart_of(paths)
        self._boot_id = boot_id(paths)
        self._record = LeaseRecord(self._boot_id)
        self._read_at: tuple[int, ...] = ()
        self._guard = Guard(0.0)
        self._device: WatchdogDevice | None = None
        self._opened_at = float("-inf")
        self._petted_at = float("-inf")
        self._why_unarmed: str | None = None

    def step(self, *, requests: int = 0) -> bool:
        """Do what is due; return False once there is nothing left to protect.

        A request to end waits for the end of the protected guests. If the device cannot be disarmed, the machine would
        be reset 10 s later, so only a second request counts: at a shutdown it comes when all services have ended.
        """
        now = self._clock.monotonic()
        self._open_device(now)
        self._read_record()
        self._guard.ends_at = max(self._guard.ends_at, self._record.ends_at)
        is_over = now >= self._guard.ends_at
        has_guests = bool(self._record.protected) and (not is_over or self._has_guests())
        for action in self._guard.tick(now, has_guests=has_guests):
            if action is GuardAction.KILL:
                self._kill()
            elif action is GuardAction.PET:
                self._pet(now)
            elif self._has_guests():  # those that were killed just now may have ended
                log.critical("a guest survived the lease: resetting the machine")
                self._restart()
        is_held = self._device is not None and not self._device.is_disarmable
        if requests:
            return self._has_guests() or (is_held and requests < LAST_REQUEST)
        return bool(self._record.protected) or not is_over or is_held

    def close(self) -> None:
        """Disarm the device."""
        if self._device is not None:
            self._device.close()
            self._device = None

    def _open_device(self, now: float) -> None:
        if self._device is None and now >= self._opened_at + OPEN_AGAIN_S:
            self._opened_at = now
            try:
                self._device = WatchdogDevice(self._paths, int(DEVICE_S))
            except (HostError, OSError) as err:
                self._report(str(err))
            else:
                self._report("")

    def _pet(self, now: float) -> None:
        if self._device is None or now < self._petted_at + PET_S:
            return
        try:
            self._device.pet()
            self._petted_at = now
        except OSError as err:
            self._report(f"the watchdog device cannot be written: {err.strerror}")

    def _report(self, why_unarmed: str) -> None:
        """Tell the node daemon."""
        if why_unarmed == self._why_unarmed:
            return
        unfinished = self._paths.guard_status.with_suffix(".new")
        content = {"pid": os.getpid(), "why_unarmed": why_unarmed}
        try:
            unfinished.write_text(json.dumps(content), "utf-8")
            unfinished.replace(self._paths.guard_status)
        except OSError as err:
            log.warning("%s cannot be written: %s", self._paths.guard_status, err.strerror)
            return
        self._why_unarmed = why_unarmed
        log.warning("watchdog device: %s", why_unarmed or "armed")

    def _read_record(self) -> None:
        """Take in what the node daemon has written; what was known stays if that cannot be read."""
        try:
            found = self._paths.lease.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._read_at:
                self._record = read_lease(self._paths) or self._record
                self._read_at = seen
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as err:
            log.warning("the node's lease: %s", err)

    def _living(self) -> list[FoundGuest]:
        return living_guests(self._paths, self._record.protected, self._boot_id)

    def _has_guests(self) -> bool:
        """Return whether a protected guest is alive, or that is not known."""
        try:
            return bool(self._record.protected and self._living())
        except (OSError, ValueError) as err:
            log.warning("the guests of this node: %s", err)
            return True

    def _kill(self) -> None:
        """Kill all, and only then log it: a log may be slow."""
        try:
            killed = self._living()
            for guest in killed:
                guest.kill()
        except (OSError, ValueError) as err:
            log.warning("killing guests: %s", err)
            return
        end = time.monotonic() + DIES_WITHIN_S
        while any(one.is_alive for one in killed) and time.monotonic() < end:
            time.sleep(DIES_WITHIN_S / 10)
        for guest in killed:
            state = "is alive still" if guest.is_alive else "has ended"
            log.warning("the lease of this node is over: killed %s, which %s", guest.name, state)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until no instance is protected on this node."""
    _parser().parse_args(argv)
    paths = Paths.from_environment()
    logging.basicConfig(format=f"{PROGRAM}: %(message)s", level=logging.INFO, stream=sys.stderr)
    # Signals are waited for between two steps, and interrupt none.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, signal.SIGHUP))
    try:
        with holding_pid_file(pid_file(paths.run, PROGRAM), PROGRAM) as held:
            _prefer_this_process()
            guard = GuardProcess(paths, BootClock())
            requests, is_on = 0, True
            try:
                is_on = guard.step()
                held.serves()
                notify("READY=1")
                while is_on:
                    requests += signal.sigtimedwait(ENDING, TICK_S) is not None
                    is_on = guard.step(requests=requests)
            finally:
                if (
                    not is_on
                ):  # after a fault the device resets the machine, unless another guard opens it
                    guard.close()
    except (GanetiError, OSError) as err:
        say(f"{PROGRAM}: {err}", file=sys.stderr)
        return 1
    return 0


def _prefer_this_process() -> None:
    """Stay in memory and on a processor, as far as this process may."""
    try:
        lock_memory()
    except HostError as err:
        log.warning("%s", err.message)
    for what, prefer in (
        ("survive a lack of memory", lambda: OOM_SCORE.write_text("-1000", "ascii")),
        ("real-time priority", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, PRIORITY)),
    ):
        try:
            prefer()
        except OSError as err:
            log.warning("this process has no right to %s: %s", what, err.strerror)


def _parser() -> Parser:
    return Parser(
        prog=PROGRAM,
        description="Kill this node's protected guests when its lease is over, and hold its watchdog device."
        " The node daemon starts it.",
    )


if __name__ == "__main__":
    sys.exit(main())
