"""Command lines of `drbdsetup` and `drbdmeta` as lists of words: pure.

Outside input is limited to numbers, paths of layers below, addresses, and parameters whose form
`ganeti.model.disk_params` has checked. The secret is never a word (`netlink.py`).
"""

from collections.abc import Iterator
from typing import Any

from ganeti.base.errors import StorageError
from ganeti.model.params import Params
from ganeti.storage.drbd.netlink import NUMBERS, TEXTS, TWO_PRIMARIES

Words = list[str]
Endpoint = tuple[str, int]

META_FORMAT = ("v08", "flex-external")
_BARRIERS = {"b": "--disk-barrier=no", "d": "--disk-drain=no", "f": "--disk-flushes=no"}
SECRET_OPTIONS = ("shared-secret", "cram-hmac-alg")


def device(minor: int) -> str:
    """Return the path of a minor."""
    return f"/dev/drbd{minor}"


def _meta(minor: int, meta: str, *verb: str) -> Words:
    version, kind = META_FORMAT
    return ["drbdmeta", "--force", device(minor), version, meta, kind, *verb]


def create_md(minor: int, meta: str) -> Words:
    """Make metadata of a copy that has no data yet."""
    return _meta(minor, meta, "create-md")


def apply_al(minor: int, meta: str) -> Words:
    """Mark as out of sync the blocks that a crash left in the activity log."""
    return _meta(minor, meta, "apply-al")


def new_resource(resource: str) -> Words:
    """Make an empty resource."""
    return ["drbdsetup", "new-resource", resource]


def new_minor(resource: str, minor: int) -> Words:
    """Make the device of a resource, without a disk yet."""
    return ["drbdsetup", "new-minor", resource, str(minor), "0"]


def attach(
    minor: int, data: str, meta: str, size_mib: int, params: Params, *, waits: bool = False
) -> Words:
    """Attach a disk; on failure it is detached at once, and the guest continues with the other copy.

    `waits` as in `fencing`: for a disk that is written while it is attached.
    """
    return [
        *("drbdsetup", "attach", str(minor), data, meta, "flexible"),
        *("--on-io-error=detach", f"--size={size_mib}m"),
        *([f"--fencing={_FENCING[True]}"] if waits else []),
        *_flush_options(params),
        *sync_options(params),
        *str(params.get("disk-custom", "")).split(),
    ]


def _flush_options(params: Params) -> Iterator[str]:
    """Yield the disabled options (S77): letters of `disk-barriers`, or a flush that is marked as not needed."""
    off = set(str(params.get("disk-barriers", "n"))) & _BARRIERS.keys()
    if not params.get("data_flushes", True):
        off.add("f")
    yield from (_BARRIERS[letter] for letter in sorted(off))
    if params.get("meta-barriers", False) or not params.get("meta_flushes", True):
        yield "--md-flushes=no"


def disk_options(minor: int, params: Params) -> Words:
    """Set the synchronisation rates of an attached device."""
    return ["drbdsetup", "disk-options", str(minor), *sync_options(params)]


def fencing(minor: int, *, waits: bool) -> Words:
    """Set whether writes wait once the peer is lost; those of a primary that is not connected go on as before."""
    return ["drbdsetup", "disk-options", str(minor), f"--fencing={_FENCING[waits]}"]


_FENCING = {True: "resource-and-stonith", False: "dont-care"}


def resume(minor: int) -> Words:
    """Let waiting writes go on without the peer."""
    return ["drbdsetup", "resume-io", str(minor)]


def sync_options(params: Params) -> Words:
    """Return rates in KiB/s: one rate, or one that the controller chooses between two."""
    if not params.get("dynamic-resync", False):
        return ["--c-plan-ahead=0", f"--resync-rate={int(params.get('resync-rate', 61440))}"]
    names = ("c-plan-ahead", "c-delay-target", "c-fill-target", "c-max-rate", "c-min-rate")
    return [f"--{name}={int(params[name])}" for name in names if name in params]


def connection_options(params: Params) -> dict[str, int | str]:
    """Return the parameter `net-custom` by names; StorageError for unknown or forbidden ones."""
    found: dict[str, int | str] = {}
    for word in str(params.get("net-custom", "")).split():
        name, _, value = word.removeprefix("--").partition("=")
        if name not in {*NUMBERS, *TEXTS} or name in SECRET_OPTIONS or name.startswith("after-sb-"):
            raise StorageError(f"net-custom: {name!r:.60} is not an option that can be set here")
        if name in NUMBERS and not value.isdecimal():
            raise StorageError(f"net-custom: {name} must be a number")
        found[name] = int(value) if name in NUMBERS else value
    return found


def _ends(own: Endpoint, peer: Endpoint) -> Words:
    return [
        f"{'ipv6' if ':' in host else 'ipv4'}:{_host(host)}:{port}" for host, port in (own, peer)
    ]


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def disconnect(own: Endpoint, peer: Endpoint) -> Words:
    """End a connection, or the attempts to make it."""
    return ["drbdsetup", "disconnect", *_ends(own, peer)]


def two_primaries(own: Endpoint, peer: Endpoint, *, allowed: bool) -> Words:
    """Set whether both nodes may write, which a migration needs for a moment."""
    return [
        "drbdsetup",
        "net-options",
        *_ends(own, peer),
        f"--{TWO_PRIMARIES}={'yes' if allowed else 'no'}",
    ]


def primary(minor: int, *, force: bool = False) -> Words:
    """Promote; `force` is for a disk that was never written."""
    return ["drbdsetup", "primary", str(minor), *(["--force"] if force else [])]


def secondary(minor: int) -> Words:
    """Demote; refused while a program has the device open."""
    return ["drbdsetup", "secondary", str(minor)]


def outdate(minor: int) -> Words:
    """Outdate this copy; refused for a primary, and while it is connected."""
    return ["drbdsetup", "outdate", str(minor)]


def detach(minor: int) -> Words:
    """Detach the volumes below; a primary continues with its peer's, if those are good."""
    return ["drbdsetup", "detach", str(minor)]


def down(resource: str) -> Words:
    """End a resource; refused while its device is open."""
    return ["drbdsetup", "down", resource]


def resize(minor: int, size_mib: int, *, alone: bool) -> Words:
    """Start a new generation; `alone` if the other node is known to be dead."""
    trust = ["--assume-peer-has-space"] if alone else []
    return ["drbdsetup", "resize", str(minor), f"--size={size_mib}m", *trust]


def generations(minor: int) -> Words:
    """Show the identifiers of the data's generations."""
    return ["drbdsetup", "get-gi", str(minor)]


def events() -> Words:
    """Report the state of all resources, an object a line."""
    return ["drbdsetup", "events2", "--now", "--statistics"]


def show(resource: str) -> Words:
    """Show the settings of a resource, including its secret: the output is never stored or reported."""
    return ["drbdsetup", "show", resource]


def values(line: str) -> dict[str, Any]:
    """Return the words `name:value` of a line of events."""
    return {
        name: value
        for name, colon, value in (word.partition(":") for word in line.split())
        if colon
    }
