"""The console of a guest, and its address."""

from ipaddress import ip_address

from ganeti.hypervisor.kvm.display import vnc_socket
from ganeti.hypervisor.kvm.guests import Guest, complete
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.instances import ConsoleInfo


def console_info(guest: Guest) -> ConsoleInfo:
    """Return the serial console if it exists, else the display.

    The serial console is a socket, which serves one client at a time, and a log of all output. A client must read all
    the time: QEMU waits for it once its socket is full, and the guest waits for QEMU.
    """
    files, instance = guest.files, guest.instance
    hvparams = complete(instance.hvparams)
    if not hvparams["serial_console"]:
        return _display(instance, hvparams)
    return ConsoleInfo(kind="socket", path=str(files.console), log_path=str(files.console_log))


def _display(instance: InstanceSpec, hvparams: Params) -> ConsoleInfo:
    if (socket := vnc_socket(instance, hvparams)) is not None:
        return ConsoleInfo(kind="msg", message=f"VNC is served on the socket {socket} of the node")
    for kind, name in (("vnc", "vnc_bind_address"), ("spice", "spice_bind")):
        if hvparams[name]:
            return ConsoleInfo(
                kind=kind, host=_host(str(hvparams[name])), port=instance.network_port or 0
            )
    return ConsoleInfo(
        kind="msg",
        message=f"{instance.name} has no console (serial_console=false, and no VNC or SPICE)",
    )


def _host(bound: str) -> str:
    """Return the display's address for clients: empty if any address of the node serves it."""
    try:
        return "" if ip_address(bound).is_unspecified else bound
    except ValueError:
        return ""  # an interface
