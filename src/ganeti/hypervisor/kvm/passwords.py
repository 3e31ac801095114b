"""Passwords of displays: read from files of the node, passed to QEMU only through its monitor (G23)."""

import asyncio
import os
import stat

from ganeti.base.errors import HypervisorError
from ganeti.base.paths import Paths
from ganeti.hypervisor.kvm.monitor import Ask
from ganeti.model.params import Params

SIZE_LIMIT = 4096
_PARAMETERS = (
    ("vnc", "vnc_bind_address", "vnc_password_file"),
    ("spice", "spice_bind", "spice_password_file"),
)


def password_files(hvparams: Params) -> list[tuple[str, str, str]]:
    """Return protocol, parameter and file of each password that a guest with these parameters needs."""
    return [
        (protocol, name, str(hvparams[name]))
        for protocol, address, name in _PARAMETERS
        if hvparams[address] and hvparams[name]
    ]


def read_password(paths: Paths, name: str, path: str) -> str:
    """Return the first line of a file that only root can read; HypervisorError never shows any of it. Blocks."""
    try:
        descriptor = os.open(
            paths.below(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError as err:
        raise HypervisorError(
            f"{name}: the password cannot be read from {path}: {err.strerror}; write it there (mode 0600) on the"
            f" master and run gnt-cluster redist-conf, which copies it to all nodes if it is in {paths.shared_files};"
            f" or set {name} to empty for no password"
        ) from err
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise HypervisorError(f"{name}: {path} is not a regular file")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise HypervisorError(f"{name}: other users may access {path}; run: chmod 600 {path}")
        content = os.read(descriptor, SIZE_LIMIT)
    finally:
        os.close(descriptor)
    line = content.split(b"\n", 1)[0].rstrip(b"\r")
    try:
        password = line.decode()
    except UnicodeDecodeError:
        password = ""
    if not password or not password.isprintable():
        raise HypervisorError(f"{name}: the first line of {path} is not a password")
    return password


async def set_passwords(paths: Paths, hvparams: Params, ask: Ask) -> None:
    """Send QEMU the passwords, before the guest's first instruction."""
    for protocol, name, path in password_files(hvparams):
        password = await asyncio.to_thread(read_password, paths, name, path)
        await ask("set_password", {"protocol": protocol, "password": password})
