"""The declaration of one hypervisor parameter, and checks that several parameters share."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from ganeti.base.identifiers import is_absolute_path
from ganeti.model.param import Bounds, OneOf, Param

PORT_MAX = 65535
PASSWORD_DIRECTORY = "/etc/ganeti"  # noqa: S105 - a directory, not a password
CD_DRIVES = ("cdrom_image_path", "cdrom2_image_path")
EMPTY_DRIVE = "empty"
"""The parameters for the CD drives, and their value for a drive without a medium."""
IMAGE_DEPTH = 2
"""The minimum depth of a directory of images below the root."""

_LISTS = ("file-storage-paths", "distributed-files", "allowed-uploads")
_NOT_FOR_IMAGES = (
    *("/proc", "/sys", "/dev", "/etc", "/root", "/boot", "/run", "/bin", "/sbin", "/lib"),
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/var/run", "/var/lib/ganeti", "/var/log", "/var/spool"),
)

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,62}", re.ASCII)
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}", re.ASCII)
_CPU = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}(,[+-]?[a-z][a-z0-9._-]{0,62}(=(on|off))?){0,40}", re.ASCII
)
_CPU_SET = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?){0,63}", re.ASCII)
_USB = re.compile(
    r"(mouse|tablet|keyboard|wacom-tablet"
    r"|host:[0-9a-fA-F]{4}:[0-9a-fA-F]{4}|host:\d{1,3}\.\d{1,3})",
    re.ASCII,
)


class HypervisorParam(Param, frozen=True):
    """A parameter of a hypervisor."""

    is_global: bool = False
    """Cannot be set for one instance (S83)."""
    is_path: bool = False
    """True if it names a file of the host."""
    is_shared_file: bool = False
    """True if it names a file that must be the same on all nodes, because its instance may move to any (S71)."""
    touches_host: bool = False
    """True if it can reach the host beyond the guest; refused from remote users unless a policy allows it."""


@dataclass(frozen=True, kw_only=True)
class HypervisorRow:
    """The facts about one hypervisor."""

    name: str
    params: tuple[HypervisorParam, ...]
    runs_guests: bool = True
    """True if guests are real: they need bridges, images and OS definitions on their nodes."""
    with_uid_pool: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of a new cluster with a pool of user ids, unless the administrator sets others."""
    upstream_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of upstream Ganeti where they differ."""
    upstream_lacks: Mapping[str, bool] = field(default_factory=dict)
    """Parameters that upstream Ganeti lacks, with whether a value other than the default changes the machine."""


def absolute_or_empty(value: str) -> str | None:
    """Check a path of the host."""
    if not value:
        return None
    if not is_absolute_path(value):
        return "must be an absolute path without '..' and names of more than 255 bytes, or empty"
    return None


def cd_image(value: str) -> str | None:
    """Check a path of the host, or the value for a drive without a medium."""
    return None if value == EMPTY_DRIVE else absolute_or_empty(value)


def password_file(value: str) -> str | None:
    """Check a file of the cluster's own directory: no other is read, or sent to all nodes (A45)."""
    if not value:
        return None
    inside = value.removeprefix(f"{PASSWORD_DIRECTORY}/")
    if not is_absolute_path(value) or inside == value or not inside.strip("/"):
        return f"must be a file in {PASSWORD_DIRECTORY}, or empty"
    if inside in _LISTS:
        return f"must be a separate file: {value} has another purpose"
    return None


def image_directories(value: str) -> str | None:
    """Check absolute directories of images, with colons between them (A45)."""
    for part in value.split(":") if value else ():
        if not is_absolute_path(part):
            return "must be absolute directories with ':' between them"
        if wrong := unfit_for_images(part):
            return wrong
    return None


def unfit_for_images(directory: str) -> str | None:
    """Return why a guest must not read files below this absolute directory; None if it may."""
    parts = [part for part in directory.split("/") if part]
    path = "/" + "/".join(parts)
    if len(parts) < IMAGE_DEPTH:
        return f"{path} holds more than images; make a separate directory, for example /srv/images"
    for one in _NOT_FOR_IMAGES:
        if path == one or path.startswith(f"{one}/"):
            return f"{one} belongs to the host, so it cannot hold images"
    return None


def one_line(value: str) -> str | None:
    """Check text that fits on a line."""
    return None if value.isprintable() else "must be one line of printable text"


def word_or_empty(value: str) -> str | None:
    """Check a name of QEMU: a machine, a keymap, a device."""
    if not value or _WORD.fullmatch(value):
        return None
    return "must be one word of letters, digits and . _ + -, not beginning with - or ."


def user_or_empty(value: str) -> str | None:
    """Check the name of a user of the host; never root."""
    if not value or (_USER.fullmatch(value) and value != "root"):
        return None
    return "must be the name of a user other than root"


def cpu_type(value: str) -> str | None:
    """Check a model of QEMU, optionally with features: `host`, `Haswell,+vmx,-tsx`."""
    if not value or _CPU.fullmatch(value):
        return None
    return "must be a CPU model, with features after commas, for example 'Haswell,+vmx'"


def cpu_mask(value: str) -> str | None:
    """Check `all`, one set of the host's CPUs for the guest, or one for each of its CPUs, with colons."""
    for part in value.split(":"):
        if part == "all":
            continue
        if not _CPU_SET.fullmatch(part):
            return "must be all, or CPU numbers such as '0-2,4', optionally one set for each CPU: '0:1'"
        for ends in part.split(","):
            first, _, last = ends.partition("-")
            if last and int(first) > int(last):
                return f"{ends} goes backwards"
    return None


def usb_devices(value: str) -> str | None:
    """Check words with spaces between them; upstream also accepts commas."""
    for word in value.replace(",", " ").split(" "):
        if word and not _USB.fullmatch(word):
            return (
                "must be of mouse, tablet, keyboard, wacom-tablet, host:VENDOR:PRODUCT and"
                " host:BUS.DEVICE, with spaces between them"
            )
    return None


def capabilities(value: str) -> str | None:
    """Check names of QEMU's migration capabilities, with colons between them."""
    for word in value.split(":") if value else ():
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,40}", word, re.ASCII):
            return "must be names of QEMU's migration capabilities, with ':' between them"
    return None


def shell_words(value: str) -> str | None:
    """Check words as a shell would split them; no shell ever sees them."""
    if not value.isprintable():
        return "must be one line of printable text"
    try:
        shlex.split(value)
    except ValueError as err:
        return f"cannot be split into words: {err}"
    return None


def address_or_directory(value: str) -> str | None:
    """Check the address of a VNC server: an IP address, or a directory for its socket."""
    if not value or value.startswith("/"):
        return absolute_or_empty(value)
    return address_or_empty(value)


def address_or_empty(value: str) -> str | None:
    """Check an IP address."""
    if not value:
        return None
    try:
        # A scope (fe80::1%eth0) is refused: its text is free.
        sound = "%" not in value and str(ip_address(value))
    except ValueError:
        sound = False
    return None if sound else "must be an IP address, or empty"


def address_or_interface(value: str) -> str | None:
    """Check the address of a SPICE server: an IP address, or a network interface whose address is used."""
    if address_or_empty(value) is None or re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]{0,14}", value):
        return None
    return "must be an IP address or the name of a network interface"


def ciphers(value: str) -> str | None:
    """Check a list of ciphers in the form of OpenSSL."""
    if re.fullmatch(r"[A-Za-z0-9:!+@=_-]{0,400}", value, re.ASCII) and not value.startswith("-"):
        return None
    return "must be a list of ciphers in the form of 'openssl ciphers'"


port = Bounds(1, PORT_MAX)
positive = Bounds(1)


def between(low: int, high: int) -> Bounds:
    """Return a check that a number is within these bounds."""
    return Bounds(low, high)


def one_of(*numbers: int) -> OneOf:
    """Return a check that a number is one of these."""
    return OneOf(numbers)
