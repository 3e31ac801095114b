"""The console of a guest, and its address."""

from ipaddress import ip_address

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.abilities import ConsoleAddress, ServesConsoles
from ganeti.hypervisor.kvm.display import vnc_socket
from ganeti.hypervisor.kvm.guests import Guest, Guests, complete
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from ganeti.rpc.procedures.consoles import ConsoleKind
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


class Consoles(ServesConsoles):
    """The serial and VNC consoles of a node's guests, and what the serial ones have said."""

    def __init__(self, guests: Guests) -> None:
        self._guests = guests

    def console_address(self, instance: InstanceSpec, kind: ConsoleKind) -> ConsoleAddress:
        guest = self._guests.here(instance)
        hvparams = complete(guest.instance.hvparams)
        if kind != "vnc":
            if not hvparams["serial_console"]:
                raise HypervisorError(
                    f"{instance.name} has no serial console; gnt-instance modify -H serial_console=true adds it at"
                    " its next start"
                )
            return guest.files.console if kind == "serial" else guest.files.console_log
        return _vnc_address(guest.instance, hvparams)


def _vnc_address(instance: InstanceSpec, hvparams: Params) -> ConsoleAddress:
    """Return where this node reaches the VNC server of a guest; HypervisorError without one."""
    bound = str(hvparams["vnc_bind_address"])
    if not bound:
        raise HypervisorError(
            f"{instance.name} has no VNC; gnt-instance modify -H vnc_bind_address=127.0.0.1 adds it at its next start"
        )
    if hvparams["vnc_tls"]:
        raise HypervisorError(
            f"{instance.name} has VNC with its own TLS (vnc_tls), which the web console cannot speak"
        )
    if (socket := vnc_socket(instance, hvparams)) is not None:
        return socket
    address = ip_address(bound)
    if address.is_unspecified:
        bound = "127.0.0.1" if address.version == 4 else "::1"  # noqa: PLR2004 - the version of IP
    if instance.network_port is None:
        raise HypervisorError(f"{instance.name} has no network port for VNC")
    return bound, instance.network_port
