"""The state of mirrored disks in `/proc/drbd`, and its assessment. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import HostError
from ganeti.monitoring.report import Code, Status

_VERSION = re.compile(r"version:\s*(\S+)\s*(?:\(api:([^/)]+)(?:/proto:([^)]+))?\))?")
_SOURCE = re.compile(r"srcversion:\s*(\S+)")
_BUILD = re.compile(r"GIT-hash:\s*(\S+)\s+build by\s+(.+)")
_MINOR = re.compile(
    r"\s*(\d+): cs:(\w+)(?:\s+(?:ro|st):(\w+)/(\w+)\s+ds:(\w+)/(\w+)(?:\s+(\w)\s+(\S+))?)?"
)
_FIGURE = re.compile(r"\b(ns|nr|dw|dr|al|bm|lo|pe|ua|ap|ep|wo|oos):(\w+)")
_SYNC = re.compile(r"sync'ed:\s*([\d.]+)%\s*\((\d+)/(\d+)\)\s*([KM])")
_SPEED = re.compile(
    r"finish:\s*(\S+)\s+speed:\s*([\d,]+)(?:\s*\([\d,]+\))?(?:\s*want:\s*([\d,]+))?\s*K/sec"
)
_FIGURES = {
    "ns": "networkSend",
    "nr": "networkReceive",
    "dw": "diskWrite",
    "dr": "diskRead",
    "al": "activityLog",
    "bm": "bitMap",
    "lo": "localCount",
    "pe": "pending",
    "ua": "unacknowledged",
    "ap": "applicationPending",
    "ep": "epochs",
    "oos": "outOfSync",
}
_UNITS = {"K": "KiloByte", "M": "MegaByte"}
UNCONFIGURED = "Unconfigured"

_CONNECTING = frozenset(
    (
        *("WFConnection", "WFReportParams", "Disconnecting", "Timeout", "BrokenPipe"),
        *("NetworkFailure", "ProtocolError", "TearDown", "Unconnected"),
    )
)
_SYNCING = frozenset(
    (
        *("StartingSyncS", "StartingSyncT", "WFBitMapS", "WFBitMapT", "WFSyncUUID"),
        *("SyncSource", "SyncTarget", "PausedSyncS", "PausedSyncT", "VerifyS", "VerifyT"),
    )
)
_LOST = frozenset(("Failed", "Diskless"))


def parse(text: str, owners: Mapping[int, str] | None = None) -> dict[str, Any]:
    """Return `versionInfo`, `deviceInfos` and `status`; `owners` are instances by minor. HostError."""
    version: dict[str, Any] = {}
    devices: list[dict[str, Any]] = []
    for line in text.splitlines():
        if match := _MINOR.match(line):
            devices.append(_device(match, owners or {}))
        elif devices:
            _add_figures(devices[-1], line)
        else:
            version |= _version(line)
    if "version" not in version:
        raise HostError("/proc/drbd does not begin with a version")
    return {"status": status(devices).plain(), "versionInfo": version, "deviceInfos": devices}


def status(devices: list[dict[str, Any]]) -> Status:
    """Return the worst state of the devices; names each unhealthy one by its minor."""
    judged = [(device["minor"], _judged(device)) for device in devices]
    code = max((one.code for _minor, one in judged), default=Code.GOOD)
    return Status(
        code, "; ".join(f"{minor}: {one.message}" for minor, one in judged if one.message)
    )


def _judged(device: Mapping[str, Any]) -> Status:
    state = device["connectionState"]
    if state == UNCONFIGURED:
        return Status()
    if device.get("localState") in _LOST:
        return Status(Code.BAD, f"the local disk is {device['localState']}")
    if device.get("remoteState") in _LOST:
        return Status(Code.BAD, f"the remote disk is {device['remoteState']}")
    if state == "StandAlone":
        return Status(Code.BAD, "no network connection, and no attempt to connect")
    if state in _CONNECTING:
        return Status(Code.MENDING, "trying to establish a network connection")
    if state in _SYNCING:
        return Status(Code.MENDING, "the disks are being synchronized")
    if state == "Connected" and (device.get("localState"), device.get("remoteState")) == (
        "UpToDate",
        "UpToDate",
    ):
        return Status()
    return Status(Code.UNKNOWN, f"{state}, {device.get('localState')}/{device.get('remoteState')}")


def _version(line: str) -> dict[str, Any]:
    if match := _VERSION.match(line):
        names = ("version", "api", "proto")
        return {name: value for name, value in zip(names, match.groups(), strict=True) if value}
    if match := _SOURCE.match(line):
        return {"srcversion": match[1]}
    if match := _BUILD.match(line):
        return {"gitHash": match[1], "buildBy": match[2]}
    return {}


def _device(match: re.Match[str], owners: Mapping[int, str]) -> dict[str, Any]:
    minor, state, local_role, remote_role, local, remote, protocol, flags = match.groups()
    device: dict[str, Any] = {"minor": int(minor), "connectionState": state}
    if local_role is None:
        return device
    return device | {
        "localRole": local_role,
        "remoteRole": remote_role,
        "localState": local,
        "remoteState": remote,
        "replicationProtocol": protocol,
        "ioFlags": flags,
        "perfIndicators": {},
        "instance": owners.get(int(minor)),
    }


def _add_figures(device: dict[str, Any], line: str) -> None:
    for name, value in _FIGURE.findall(line):
        if name == "wo":
            device["perfIndicators"]["writeOrder"] = value
        elif value.isdecimal():
            device["perfIndicators"][_FIGURES[name]] = int(value)
    if match := _SYNC.search(line):
        device["syncStatus"] = {
            "percentage": float(match[1]),
            "progress": f"{match[2]}/{match[3]}",
            "progressUnit": _UNITS[match[4]],
        }
    elif (match := _SPEED.search(line)) and "syncStatus" in device:
        speeds = {"timeToFinish": match[1], "speed": _speed(match[2])}
        if match[3]:
            speeds["want"] = _speed(match[3])
        device["syncStatus"] |= speeds | {"speedUnit": "KiloByte/Second"}


def _speed(text: str) -> int:
    return int(text.replace(",", ""))
