"""`config.ini` of an export, in the form of Ganeti 2.0 to 3.0; pure.

    [export]      version 0, timestamp, source, os, compression
    [instance]    name, memory, vcpus, disk_template, hypervisor, tags, nic<N>_*, disk<N>_*, counts
    [hypervisor]  [backend]  [os]  [os_private]     parameters that the instance itself has

This implementation adds fields that upstream ignores: compression and kind of a dump, and the digest of its content.
A description is untrusted text (A54): names of files are plain, numbers have bounds, a value is one line, and no value
refers to anything else.
"""

import configparser
import io
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.identifiers import host_name, os_name, plain_name
from ganeti.model.compression import NONE, check_compression
from ganeti.model.limits import MAX_DISK_MIB, MAX_DISKS, MAX_NICS

VERSION = 0
SECTIONS_LIMIT, OPTIONS_LIMIT, VALUE_LIMIT = 16, 1024, 64 * 1024
RAW, SCRIPT = "raw", "script"
NAME_LIMIT = 240
"""The limit of an export's name: names of files about it are longer."""
NEW, OLD = ".new", ".old"
"""The suffixes of a directory while an export is written, and while it replaces an earlier one."""
_ABSENT = ("", "None")
_HEX = frozenset("0123456789abcdef")
_SHA256 = 64
_OF_DISK = re.compile(r"disk([0-9]{1,4})_(?:size|dump)", re.ASCII)


@dataclass(frozen=True)
class ExportedDisk:
    """One disk; size in MiB. Without a dump its data could not be exported."""

    size: int
    dump: str = ""
    name: str | None = None
    mode: str = "rw"
    sha256: str = ""
    """The digest of the data before compression; '' if the export has none."""


_NIC_FIELDS = ("mac", "ip", "name", "network", "mode", "link", "vlan")


@dataclass(frozen=True)
class ExportedNic:
    """One interface; None is the cluster's value."""

    mac: str | None = None
    ip: str | None = None
    mode: str | None = None
    link: str | None = None
    vlan: str | None = None
    name: str | None = None
    network: str | None = None
    """Its UUID, as Ganeti writes it, or its name."""


@dataclass(frozen=True)
class ExportDescription:
    """An instance as it was exported."""

    name: str
    os: str = ""
    source: str = ""
    timestamp: int = 0
    compression: str = NONE
    data: str = ""
    """`raw` or `script`: the kind of the dumps; '' if the export does not name it."""
    disk_template: str | None = None
    hypervisor: str | None = None
    tags: tuple[str, ...] = ()
    disks: tuple[ExportedDisk, ...] = ()
    nics: tuple[ExportedNic, ...] = ()
    hvparams: Mapping[str, str] = field(default_factory=dict)
    beparams: Mapping[str, str] = field(default_factory=dict)
    osparams: Mapping[str, str] = field(default_factory=dict)
    osparams_private: Mapping[str, str] = field(default_factory=dict, repr=False)


# --- written ---


def check_export_name(name: str) -> None:
    """Refuse the name of an instance whose export could not have that name."""
    if name.endswith((NEW, OLD)) or len(name) > NAME_LIMIT:
        raise InputError(
            f"no export can have a name that ends in {NEW} or {OLD}, or is longer than {NAME_LIMIT} characters;"
            " choose another (of an instance: gnt-instance rename)",
            "name",
        )


def format_description(export: ExportDescription, memory: Mapping[str, int]) -> str:
    """Return the text; `memory` has minmem, maxmem and vcpus, which older versions read elsewhere."""
    sections: dict[str, dict[str, Any]] = {
        "export": {
            "version": VERSION,
            "timestamp": export.timestamp,
            "source": export.source,
            "os": export.os,
            "compression": export.compression,
            "data": export.data,
        },
        "instance": {
            "name": export.name,
            "maxmem": memory["maxmem"],
            "minmem": memory["minmem"],
            "memory": memory["maxmem"],
            "vcpus": memory["vcpus"],
            "disk_template": export.disk_template,
            "hypervisor": export.hypervisor,
            "tags": " ".join(export.tags),
            **_nic_options(export.nics),
            **_disk_options(export.disks),
        },
        "hypervisor": dict(export.hvparams),
        "backend": dict(export.beparams),
        "os": dict(export.osparams),
        "os_private": dict(export.osparams_private),
    }
    parser = configparser.RawConfigParser(interpolation=None)
    for name, options in sections.items():
        parser.add_section(name)
        for option, value in options.items():
            parser.set(name, option, _written(value, f"{name}.{option}"))
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()


def _written(value: Any, where: str) -> str:
    text = str(value)
    _check_line(text, where)
    return text.replace("%", "%%")


def _check_line(text: str, where: str) -> None:
    if len(text) > VALUE_LIMIT or any(is_control(letter) for letter in text):
        raise InputError(
            f"is not one line of text without control characters, of at most {VALUE_LIMIT} characters,"
            " so no export can hold it",
            where,
        )


def is_control(letter: str) -> bool:
    """Return whether a character may control a terminal, or end a line; a tab may occur in a value."""
    return unicodedata.category(letter) == "Cc" and letter != "\t"


def changed_by_export(export: ExportDescription, memory: Mapping[str, int]) -> list[str]:
    """Return names of values that an import would change, for example blanks at an end.

    InputError for impossible ones.
    """
    back = parse_description(format_description(export, memory))
    found = []
    for section in ("hvparams", "beparams", "osparams", "osparams_private"):
        read = getattr(back, section)
        for name, value in getattr(export, section).items():
            if read.get(name.lower()) != str(value):
                found.append(f"{section}.{name}")
    return found


def _nic_options(nics: tuple[ExportedNic, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, nic in enumerate(nics):
        for name in _NIC_FIELDS:
            found[f"nic{number}_{name}"] = getattr(nic, name)
    return {**found, "nic_count": len(nics)}


def _disk_options(disks: tuple[ExportedDisk, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, disk in enumerate(disks):
        found[f"disk{number}_ivname"] = f"disk/{number}"
        found[f"disk{number}_dump"] = disk.dump
        found[f"disk{number}_size"] = disk.size
        found[f"disk{number}_name"] = disk.name
        found[f"disk{number}_mode"] = disk.mode
        found[f"disk{number}_sha256"] = disk.sha256
    return {**found, "disk_count": sum(1 for disk in disks if disk.dump)}


# --- read ---


def parse_description(text: str) -> ExportDescription:
    """Parse an export's `config.ini`; InputError names the fault."""
    sections = _sections(text)
    export, instance = sections.get("export", {}), sections.get("instance", {})
    if "version" not in export or "name" not in instance:
        raise InputError("is not the description of an export: [export] version or [instance] name"
                         " is missing", "config.ini")  # fmt: skip
    if _number(export, "version", 0, 2**31) != VERSION:
        raise InputError(
            f"{export['version']!r:.20} is not supported, only {VERSION}", "export.version"
        )
    data = export.get("data", "")
    if data not in (RAW, SCRIPT, ""):
        raise InputError(f"{data!r:.20} is neither {RAW} nor {SCRIPT}", "export.data")
    os = export.get("os", "")
    old_memory: dict[str, str] = {
        name: instance[name]
        for name in ("maxmem", "minmem", "vcpus")
        if name in instance and not sections.get("backend")
    }
    if not old_memory and "memory" in instance and not sections.get("backend"):
        old_memory = {"maxmem": instance["memory"], "minmem": instance["memory"]}
    return ExportDescription(
        name=host_name(instance["name"], "instance.name"),
        os="" if os in _ABSENT else os_name(os, "export.os"),
        source=export.get("source", "")[:VALUE_LIMIT],
        timestamp=_number(export, "timestamp", 0, 2**53, default=0),
        compression=check_compression(export.get("compression", NONE), "export.compression"),
        data=data,
        disk_template=_optional(instance, "disk_template"),
        hypervisor=_optional(instance, "hypervisor"),
        tags=tuple(instance.get("tags", "").split()),
        disks=_disks(instance),
        nics=_nics(instance),
        hvparams=sections.get("hypervisor", {}),
        beparams={**old_memory, **sections.get("backend", {})},
        osparams=sections.get("os", {}),
        osparams_private=sections.get("os_private", {}),
    )


def _sections(text: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(
        interpolation=None, strict=True, empty_lines_in_values=False
    )
    try:
        parser.read_string(text)
    except (configparser.Error, ValueError) as err:
        raise InputError(f"cannot be read: {str(err).splitlines()[0]:.200}", "config.ini") from err
    if len(parser.sections()) > SECTIONS_LIMIT or parser.defaults():
        raise InputError("has more sections than an export, or defaults", "config.ini")
    found = {}
    for name in parser.sections():
        items = parser.items(name)
        if len(items) > OPTIONS_LIMIT:
            raise InputError(f"has more than {OPTIONS_LIMIT} values", f"config.ini [{name:.40}]")
        found[name] = {option: _read(value, f"{name:.40}.{option:.80}") for option, value in items}
    return found


def _read(value: str, where: str) -> str:
    if "%(" in value.replace("%%", ""):
        raise InputError("refers to another value, which no export does", where)
    text = value.replace("%%", "%")
    _check_line(text, where)
    return text


def _number(
    values: Mapping[str, str], name: str, least: int, most: int, default: int | None = None
) -> int:
    text = values.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 20):  # noqa: PLR2004 - 2^64
        raise InputError(f"{text!r:.40} is not a whole number", f"config.ini: {name}")
    if not least <= int(text) <= most:
        raise InputError(f"must be from {least} to {most}", f"config.ini: {name}")
    return int(text)


def _optional(values: Mapping[str, str], name: str) -> str | None:
    value = values.get(name)
    return None if value is None or value in _ABSENT else value


def _disks(instance: Mapping[str, str]) -> tuple[ExportedDisk, ...]:
    numbers = sorted({int(match[1]) for one in instance if (match := _OF_DISK.fullmatch(one))})
    for expected, number in enumerate(numbers):
        if number != expected:
            raise InputError(
                f"disk {number} is in it and disk {expected} is not: the export is incomplete; export the"
                " instance again, or number the existing disks from 0",
                "config.ini",
            )
    if len(numbers) > MAX_DISKS:
        raise InputError(f"more than {MAX_DISKS} disks", "config.ini")
    found = tuple(_disk(instance, f"disk{number}_") for number in numbers)
    dumps = [disk.dump for disk in found if disk.dump]
    if len(set(dumps)) < len(dumps):
        raise InputError("two disks have the same dump", "config.ini")
    # Ganeti counts disks with a dump.
    _check_count(instance, "disk", (len(dumps), len(found)))
    return found


def _disk(instance: Mapping[str, str], prefix: str) -> ExportedDisk:
    dump = instance.get(f"{prefix}dump", "")
    sha256 = instance.get(f"{prefix}sha256", "")
    if sha256 and (len(sha256) != _SHA256 or set(sha256) - _HEX):
        raise InputError("is not a SHA-256 digest", f"config.ini: {prefix}sha256")
    return ExportedDisk(
        size=_number(instance, f"{prefix}size", 1, MAX_DISK_MIB),
        dump=plain_name(dump, f"config.ini: {prefix}dump") if dump not in _ABSENT else "",
        name=_optional(instance, f"{prefix}name"),
        mode=_optional(instance, f"{prefix}mode") or "rw",
        sha256=sha256,
    )


def _check_count(instance: Mapping[str, str], what: str, counts: tuple[int, ...]) -> None:
    """Refuse a description that lost some of its counted objects."""
    name = f"{what}_count"
    if name in instance and _number(instance, name, 0, 2**31) not in counts:
        raise InputError(
            f"is {instance[name]}, but {max(counts)} are described: the export is incomplete; use another"
            " export, or correct the number if nothing else existed",
            f"config.ini: {name}",
        )


def _nics(instance: Mapping[str, str]) -> tuple[ExportedNic, ...]:
    found: list[ExportedNic] = []
    for number in range(MAX_NICS + 1):
        if f"nic{number}_mac" not in instance:
            break
        if number == MAX_NICS:
            raise InputError(f"more than {MAX_NICS} network interfaces", "config.ini")
        values = {name: _optional(instance, f"nic{number}_{name}") for name in _NIC_FIELDS}
        found.append(ExportedNic(**values))
    _check_count(instance, "nic", (len(found),))
    return tuple(found)
