"""Tap devices of guests that run: opened here and handed over, taken from one network to another."""

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.network import RULE_FAMILIES, rule_remove
from ganeti.model.instance_spec import NicSpec

_TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_REQUEST = struct.Struct("16sH22x")
"""The kernel's `struct ifreq`: a name and flags."""


@contextlib.contextmanager
def open_tap(tap: str) -> Iterator[int]:
    """An existing tap device as QEMU opens it by itself, for the time of a block."""
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
    try:
        file = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as err:
        raise HypervisorError(f"{_TUN} cannot be opened: {err.strerror}") from err
    try:
        fcntl.ioctl(file, _TUNSETIFF, _REQUEST.pack(tap.encode(), flags))
    except OSError as err:
        os.close(file)
        raise HypervisorError(f"the tap device {tap} cannot be opened: {err.strerror}") from err
    try:
        yield file
    finally:
        os.close(file)


def disconnect_commands(tap: str, nic: NicSpec) -> list[list[str]]:
    """What takes a tap device from the network that its NIC was connected to; all may fail."""
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
