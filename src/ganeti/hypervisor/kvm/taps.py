"""Tap devices of running guests: opened here and passed on, moved from one network to another."""

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.network import RULE_FAMILIES, rule_remove
from ganeti.model.instance_spec import NicSpec

_TUN = "/dev/net/tun"
_VHOST = "/dev/vhost-net"
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR, _IFF_MULTI_QUEUE = 0x0002, 0x1000, 0x4000, 0x0100
_REQUEST = struct.Struct("16sH22x")
"""The kernel's `struct ifreq`: a name and flags."""


@contextlib.contextmanager
def open_tap(tap: str, *, queues: int = 1, has_header: bool = True) -> Iterator[list[int]]:
    """Open an existing tap device as QEMU would, once for each queue, for the time of a block."""
    flags = _IFF_TAP | _IFF_NO_PI
    flags |= _IFF_VNET_HDR if has_header else 0
    flags |= _IFF_MULTI_QUEUE if queues > 1 else 0
    with _opened(_TUN, queues) as files:
        try:
            for file in files:
                fcntl.ioctl(file, _TUNSETIFF, _REQUEST.pack(tap.encode(), flags))
        except OSError as err:
            raise HypervisorError(f"the tap device {tap} cannot be opened: {err.strerror}") from err
        yield files


@contextlib.contextmanager
def open_vhost(count: int) -> Iterator[list[int]]:
    """Open the kernel's helper for paravirtual NICs, once for each queue, for the time of a block."""
    with _opened(_VHOST, count) as files:
        yield files


@contextlib.contextmanager
def _opened(path: str, count: int) -> Iterator[list[int]]:
    files: list[int] = []
    try:
        try:
            for _ in range(count):
                file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
                files.append(file)  # at once: files opened before an error must be closed
        except OSError as err:
            raise HypervisorError(f"{path} cannot be opened: {err.strerror}") from err
        yield files
    finally:
        for file in files:
            os.close(file)


def disconnect_commands(tap: str, nic: NicSpec) -> list[list[str]]:
    """Return the commands that disconnect a tap device from its NIC's network; all may fail."""
    if nic.mode == "openvswitch":
        return [["ovs-vsctl", "--if-exists", "del-port", tap]]
    if nic.mode == "bridged":
        return [["ip", "link", "set", "dev", tap, "nomaster"]]
    table = ["table", nic.link] if nic.link else []
    address = nic.ip or "default"
    return [
        ["ip", "route", "delete", address, "dev", tap, *table],
        ["ip", "neighbour", "delete", address, "dev", tap],
        *(rule_remove(tap, family) for family in RULE_FAMILIES),
    ]
