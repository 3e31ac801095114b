"""Two questions that only system calls answer: is the clock synchronised, and does KVM work?"""

import ctypes
import fcntl
import os
from pathlib import Path

_STA_UNSYNC = 0x0040
_TIMEX_WORDS = 52
"""A `struct timex` has 26 words of 64 bits; the rest is spare room."""
_STATUS_WORD = 5
"""Before `status`: modes (padded), offset, freq, maxerror, esterror."""

_KVM_GET_API_VERSION = 0xAE00
_KVM_CREATE_VM = 0xAE01
_API_VERSION = 12


def is_clock_synchronised() -> bool | None:
    """Return whether a time service keeps the kernel's clock right; None if the kernel does not tell."""
    words = (ctypes.c_long * _TIMEX_WORDS)()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(words)
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    return not int(words[_STATUS_WORD]) & _STA_UNSYNC


def kvm_problem(device: Path) -> str:
    """Return why the device cannot create a virtual machine; '' if it can."""
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError as err:
        return f"{device}: {err.strerror}"
    try:
        if fcntl.ioctl(descriptor, _KVM_GET_API_VERSION) != _API_VERSION:
            return f"{device}: it has another version than {_API_VERSION}"
        os.close(fcntl.ioctl(descriptor, _KVM_CREATE_VM))
    except OSError as err:
        return f"{device}: it cannot create a virtual machine: {err.strerror}"
    finally:
        os.close(descriptor)
    return ""
