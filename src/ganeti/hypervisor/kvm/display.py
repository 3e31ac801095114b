"""The user interface of a guest: graphics, VNC, SPICE, sound, keyboard and pointer; pure.

Passwords are not part of it: they reach QEMU only through its monitor (G23), before the guest's first instruction
and before any client could know the port.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.machine import AUDIO
from ganeti.hypervisor.kvm.options import option
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params

FIRST_VNC_PORT = 5900
"""The port of VNC's display 0."""
LAST_PORT = 65535

_CARDS = {"std": "VGA", "cirrus": "cirrus-vga", "vmware": "vmware-svga", "qxl": "qxl-vga",
          "virtio": "virtio-vga"}  # fmt: skip
_SOUND = {
    "ac97": ("AC97",), "es1370": ("ES1370",), "sb16": ("sb16",), "adlib": ("adlib",),
    "cs4231a": ("cs4231a",), "gus": ("gus",), "hda": ("intel-hda", "hda-duplex"),
}  # fmt: skip
_SILENT = frozenset(("intel-hda",))
_POINTERS = {
    "mouse": "usb-mouse", "tablet": "usb-tablet", "keyboard": "usb-kbd",
    "wacom-tablet": "usb-wacom-tablet",
}  # fmt: skip
_SPICE_WORDS = {
    "spice_image_compression": "image_compression",
    "spice_jpeg_wan_compression": "jpeg_wan_compression",
    "spice_zlib_glz_wan_compression": "zlib_glz_wan_compression",
    "spice_streaming_video": "streaming_video",
}
_CHANNEL = "channels"


@dataclass(frozen=True)
class Spice:
    """This node's settings for SPICE."""

    address: str = ""
    """The address: `spice_bind`, or the address of the interface that this names."""
    certificates: Path = Path("/var/lib/ganeti")
    """The directory of `spice.pem` (key and certificate) and `spice-ca.pem`."""


def has_vnc(hvparams: Params) -> bool:
    """Return whether VNC is served."""
    return bool(hvparams["vnc_bind_address"])


def has_spice(hvparams: Params) -> bool:
    """Return whether SPICE is served."""
    return bool(hvparams["spice_bind"])


def vnc_socket(instance: InstanceSpec, hvparams: Params) -> Path | None:
    """Return the VNC socket in a directory."""
    address = str(hvparams["vnc_bind_address"])
    return Path(address) / f"{instance.name}.vnc" if address.startswith("/") else None


def card(hvparams: Params) -> str:
    """Return the graphics card: the configured one, else one that fits the display."""
    if hvparams["vga"]:
        return str(hvparams["vga"])
    if has_spice(hvparams):
        return "qxl"
    return "std" if has_vnc(hvparams) else "none"


def devices_needed(hvparams: Params) -> set[str]:
    """Return QEMU's names of the devices that the display needs."""
    found = set(_SOUND.get(str(hvparams["soundhw"]), ()))
    if card(hvparams) != "none":
        found.add(_CARDS[card(hvparams)])
    return found


def display_words(instance: InstanceSpec, hvparams: Params, spice: Spice) -> list[str]:
    """Return all options of this module but the channels."""
    words: list[str] = []
    if card(hvparams) != "none":
        words += ["-device", option(_CARDS[card(hvparams)], id="video0")]
    if has_vnc(hvparams):
        words += _vnc(instance, hvparams)
    if has_spice(hvparams):
        words += _spice(instance, hvparams, spice)
    if hvparams["keymap"]:
        words += ["-k", str(hvparams["keymap"])]
    return [*words, *_sound(hvparams), *_usb(hvparams)]


def channel_words(hvparams: Params, agent: Path) -> list[str]:
    """Return channels to programs in the guest: QEMU's agent, SPICE's agent."""
    wants_spice = has_spice(hvparams) and bool(hvparams["spice_use_vdagent"])
    if not (wants_spice or hvparams["use_guest_agent"]):
        return []
    words = ["-device", option("virtio-serial-pci", id=_CHANNEL)]
    if hvparams["use_guest_agent"]:
        socket = option("socket", id="guest-agent", path=str(agent), server=True, wait=False)
        words += ["-chardev", socket]
        words += _channel("guest-agent", "org.qemu.guest_agent.0", 1)
    if wants_spice:
        words += ["-chardev", option("spicevmc", id="spice-agent", name="vdagent")]
        words += _channel("spice-agent", "com.redhat.spice.0", 2)
    return words


def _channel(chardev: str, name: str, number: int) -> list[str]:
    port = option(
        "virtserialport", chardev=chardev, name=name, nr=number, bus=f"{_CHANNEL}.0",
        id=f"{chardev}-port",
    )  # fmt: skip
    return ["-device", port]


def _vnc(instance: InstanceSpec, hvparams: Params) -> list[str]:
    socket = vnc_socket(instance, hvparams)
    if socket is not None:
        where = f"unix:{socket}"
    else:
        address = str(hvparams["vnc_bind_address"])
        display = _port(instance) - FIRST_VNC_PORT
        where = f"{_in_brackets(address)}:{display}"
    pairs: dict[str, str | int | bool] = {}
    words: list[str] = []
    if hvparams["vnc_tls"]:
        words += ["-object", _vnc_credentials(hvparams)]
        pairs["tls_creds"] = "vnc-tls"
    if hvparams["vnc_password_file"]:
        pairs["password"] = True
    return [*words, "-vnc", option(where, **pairs)]


def _vnc_credentials(hvparams: Params) -> str:
    if not hvparams["vnc_x509_path"]:
        return option("tls-creds-anon", id="vnc-tls", endpoint="server")
    return option(
        "tls-creds-x509", id="vnc-tls", endpoint="server", dir=str(hvparams["vnc_x509_path"]),
        verify_peer=bool(hvparams["vnc_x509_verify"]),
    )  # fmt: skip


def _spice(instance: InstanceSpec, hvparams: Params, spice: Spice) -> list[str]:
    pairs: dict[str, str | int | bool] = {"addr": spice.address}
    if hvparams["spice_use_tls"]:
        own = str(spice.certificates / "spice.pem")
        pairs |= {
            "tls_port": _port(instance),
            "x509_cacert_file": str(spice.certificates / "spice-ca.pem"),
            "x509_key_file": own,
            "x509_cert_file": own,
            "tls_ciphers": str(hvparams["spice_tls_ciphers"]),
            "tls_channel": "default",
        }
    else:
        pairs["port"] = _port(instance)
    if not hvparams["spice_password_file"]:
        pairs["disable_ticketing"] = True
    for name, word in _SPICE_WORDS.items():
        if hvparams[name]:
            pairs[word] = str(hvparams[name])
    pairs["playback_compression"] = bool(hvparams["spice_playback_compression"])
    if hvparams["spice_ip_version"]:
        pairs[f"ipv{hvparams['spice_ip_version']}"] = True
    return ["-spice", option(**pairs)]


def _port(instance: InstanceSpec) -> int:
    port = instance.network_port
    if port is None or not FIRST_VNC_PORT <= port <= LAST_PORT:
        raise HypervisorError(
            f"{instance.name} has no network port for its display; the cluster's pool was empty at its"
            " creation: gnt-instance modify assigns one, or set vnc_bind_address to a directory"
        )
    return port


def _in_brackets(address: str) -> str:
    return f"[{address}]" if ip_address(address).version == 6 else address  # noqa: PLR2004


def _sound(hvparams: Params) -> list[str]:
    kind = str(hvparams["soundhw"])
    if not kind:
        return []
    words = ["-audiodev", option("spice" if has_spice(hvparams) else "none", id=AUDIO)]
    for device in _SOUND.get(kind, ()):
        words += [
            "-device",
            option(device) if device in _SILENT else option(device, audiodev=AUDIO),
        ]
    return words


def _usb(hvparams: Params) -> list[str]:
    wanted = str(hvparams["usb_devices"]).replace(",", " ").split()
    if hvparams["usb_mouse"]:
        wanted.insert(0, str(hvparams["usb_mouse"]))
    if not wanted:
        return []
    emulated = [word for word in wanted if not word.startswith("host:")]
    passed = [word.removeprefix("host:") for word in wanted if word.startswith("host:")]
    words: list[str] = []
    if emulated:
        words += ["-device", option("piix3-usb-uhci", id="usb")]
    for name in emulated:
        words += ["-device", option(_POINTERS[name], bus="usb.0")]
    if passed:
        words += ["-device", option("qemu-xhci", id="usb-host")]
    for name in passed:
        words += ["-device", _host_device(name)]
    return words


def _host_device(name: str) -> str:
    if ":" in name:
        vendor, _, product = name.partition(":")
        return option(
            "usb-host", vendorid=f"0x{vendor}", productid=f"0x{product}", bus="usb-host.0"
        )
    bus, _, device = name.partition(".")
    return option("usb-host", hostbus=int(bus), hostaddr=int(device), bus="usb-host.0")
