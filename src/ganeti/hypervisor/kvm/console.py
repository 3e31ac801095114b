"""The serial console of a guest: where it is, and that its log stays small."""

from ganeti.hypervisor.kvm.guests import Guest, complete
from ganeti.hypervisor.kvm.runtime import GuestFiles
from ganeti.rpc.procedures.instances import ConsoleInfo


def console_info(guest: Guest) -> ConsoleInfo:
    """The socket to connect to, which serves one client at a time, and the log of all that was said.

    A client must read all the time: QEMU waits for it once its socket is full, and the guest for QEMU.
    """
    files, instance = guest.files, guest.instance
    if not complete(instance.hvparams)["serial_console"]:
        return ConsoleInfo(
            kind="msg", message=f"{instance.name} has no serial console (serial_console=false)"
        )
    return ConsoleInfo(kind="socket", path=str(files.console), log_path=str(files.console_log))


def shorten_logs(files: GuestFiles) -> None:
    """Cut a console log that a talkative guest has made too big."""
    files.shorten_console_log()
