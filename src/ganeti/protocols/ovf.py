"""OVF descriptions of machines, the content of an OVA; pure.

Untrusted text: no document type, no entities, limits for every size (A53), and only plain files beside it. The name,
memory, processors, disks and the number of network interfaces of a machine are read; other settings of hypervisors
are ignored. Source: DSP0243, versions 1 and 2.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from ganeti.base.errors import InputError
from ganeti.base.identifiers import plain_name
from ganeti.model.limits import MAX_DISKS, MAX_NICS
from ganeti.protocols.image_headers import SIZE_LIMIT

TEXT_LIMIT = 1024 * 1024
_ELEMENTS_LIMIT, _DEPTH_LIMIT, _ATTRIBUTES_LIMIT = 20_000, 64, 100
_VALUE_LIMIT = 4096
_PROCESSORS, _MEMORY, _NETWORK, _DISK = "3", "4", ("10", "46"), "17"
_UNITS = re.compile(r"byte\s*\*\s*2\s*\^\s*([0-9]{1,2})", re.ASCII | re.IGNORECASE)
_WORDS = {"byte": 1, "bytes": 1, "kilobytes": 1 << 10, "megabytes": 1 << 20, "gigabytes": 1 << 30}
_MIB = 1 << 20
_MEMORY_LIMIT_MIB, _PROCESSORS_LIMIT = 1 << 26, 4096


@dataclass(frozen=True)
class OvfDisk:
    """One disk: the file with its data ('' for an empty one), and its size in bytes."""

    file: str
    capacity: int
    is_vmdk: bool = True
    """The format by the description; the header of the file decides."""


@dataclass(frozen=True)
class OvfMachine:
    """A machine; memory in MiB, None if the description has no value."""

    name: str
    memory: int | None
    processors: int | None
    nics: int
    disks: tuple[OvfDisk, ...]


@dataclass
class _Element:
    name: str
    attributes: dict[str, str]
    text: str = ""
    children: list["_Element"] = field(default_factory=list)

    def all(self, name: str) -> Iterator["_Element"]:
        for child in self.children:
            if child.name == name:
                yield child
            yield from child.all(name)

    def word(self, name: str) -> str:
        """Return the text of the first child of that name."""
        return next((child.text.strip() for child in self.children if child.name == name), "")


class _Reader:
    """Builds elements by their local names, within limits."""

    def __init__(self) -> None:
        self.root = _Element("", {})
        self._open, self._count = [self.root], 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > _ELEMENTS_LIMIT or len(self._open) > _DEPTH_LIMIT:
            raise _refused("it has more elements than any machine")
        if len(attributes) > _ATTRIBUTES_LIMIT or any(
            len(one) > _VALUE_LIMIT for one in attributes.values()
        ):
            raise _refused("an attribute is longer than any name")
        element = _Element(_local(name), {_local(key): value for key, value in attributes.items()})
        self._open[-1].children.append(element)
        self._open.append(element)

    def end(self, _name: str) -> None:
        self._open.pop()

    def text(self, data: str) -> None:
        element = self._open[-1]
        if len(element.text) + len(data) <= _VALUE_LIMIT:
            element.text += data


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


def _refused(why: str) -> InputError:
    return InputError(f"cannot be imported: {why}", "OVF description")


def _refuse_declaration(*_what: object) -> NoReturn:
    raise _refused("it declares a document type or entities, which no OVF needs")


def parse_ovf(data: bytes) -> OvfMachine:
    """Return the one machine of a description; InputError names the fault."""
    if len(data) > TEXT_LIMIT:
        raise _refused(f"it has more than {TEXT_LIMIT} bytes")
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _refuse_declaration
    parser.EntityDeclHandler = _refuse_declaration
    parser.ExternalEntityRefHandler = _refuse_declaration
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError) as err:
        raise _refused(f"it is not XML: {err}") from err
    envelope = next(iter(reader.root.children))
    if envelope.name != "Envelope":
        raise _refused(f"its root is {envelope.name!r:.40}, not an envelope")
    return _machine(envelope)


def _machine(envelope: _Element) -> OvfMachine:
    systems = list(envelope.all("VirtualSystem"))
    if len(systems) != 1:
        raise _refused(f"it has {len(systems)} machines; only one can be imported at a time")
    items = list(systems[0].all("Item")) + [
        one for kind in ("StorageItem", "EthernetPortItem") for one in systems[0].all(kind)
    ]
    kinds = [one.word("ResourceType") for one in items]
    memory, processors = None, None
    for item, kind in zip(items, kinds, strict=True):
        if kind == _MEMORY:
            size = _number(item.word("VirtualQuantity"), "memory") * _unit(
                item.word("AllocationUnits"), _MIB
            )
            memory = _within(-(-size // _MIB), _MEMORY_LIMIT_MIB, "memory")
        elif kind == _PROCESSORS:
            processors = _within(
                _number(item.word("VirtualQuantity"), "processors"), _PROCESSORS_LIMIT, "processors"
            )
    nics = sum(kind in _NETWORK for kind in kinds)
    if nics > MAX_NICS:
        raise _refused(f"the machine has {nics} network interfaces; {MAX_NICS} are possible")
    used = [
        item.word("HostResource").rpartition("/")[2]
        for item, kind in zip(items, kinds, strict=True)
        if kind == _DISK
    ]
    name = systems[0].word("Name") or systems[0].attributes.get("id", "")
    return OvfMachine(name[:_VALUE_LIMIT], memory, processors, nics, _disks(envelope, used))


def _disks(envelope: _Element, used: Sequence[str]) -> tuple[OvfDisk, ...]:
    """Return the disks in the machine's order."""
    files = {one.attributes.get("id", ""): one.attributes for one in envelope.all("File")}
    known: dict[str, OvfDisk] = {}
    for disk in envelope.all("Disk"):
        given = disk.attributes
        if given.get("parentRef"):
            raise _refused("a disk is only the difference to another one")
        unit = _unit(given.get("capacityAllocationUnits", ""), 1)
        size = _within(
            _number(given.get("capacity", ""), "capacity") * unit, SIZE_LIMIT, "capacity"
        )
        file = ""
        if reference := given.get("fileRef"):
            if reference not in files:
                raise _refused(f"the file {reference!r:.60} of a disk does not exist")
            if files[reference].get("compression", "identity") not in ("identity", ""):
                raise _refused(
                    "a disk's file is compressed: unpack the OVA, the file, and change the description"
                )
            file = plain_name(files[reference].get("href", ""), "OVF description: href")
        known[given.get("diskId", "")] = OvfDisk(
            file, size, "vmdk" in given.get("format", "").lower()
        )
    if len(known) > MAX_DISKS:
        raise _refused(f"the machine has {len(known)} disks; {MAX_DISKS} are possible")
    order = [one for one in dict.fromkeys(used) if one in known] or list(known)
    found = tuple(known[one] for one in order)
    named = [disk.file for disk in found if disk.file]
    if len(set(named)) < len(named):
        raise _refused("two disks have the same file")
    return found


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):  # noqa: PLR2004 - 2^64
        raise _refused(f"{what}: {text!r:.40} is not a whole number")
    return int(text)


def _within(value: int, limit: int, what: str) -> int:
    if not 0 < value <= limit:
        raise _refused(f"{what}: {value} is not between 1 and {limit}")
    return value


def _unit(text: str, default: int) -> int:
    """Return the bytes of an allocation unit, for example `byte * 2^20` or `MegaBytes`."""
    stripped = text.strip().lower()
    if not stripped:
        return default
    if match := _UNITS.fullmatch(stripped):
        return 1 << int(match[1])
    if stripped in _WORDS:
        return _WORDS[stripped]
    raise _refused(f"the unit {text!r:.40} is unknown")


# --- written ---


def format_ovf(machine: OvfMachine, sizes: Sequence[int]) -> str:
    """Return the description of a machine with VMDK images of these lengths in bytes, for other hypervisors."""
    names = [quoteattr(disk.file) for disk in machine.disks]
    files = "".join(
        f'    <File ovf:id="file{n}" ovf:href={name} ovf:size="{size}"/>\n'
        for n, (name, size) in enumerate(zip(names, sizes, strict=True))
    )
    disks = "".join(
        f'    <Disk ovf:diskId="disk{n}" ovf:fileRef="file{n}" ovf:capacity="{disk.capacity}"'
        f' ovf:format="{_VMDK_FORMAT}"/>\n'
        for n, disk in enumerate(machine.disks)
    )
    items = [
        _item(1, _PROCESSORS, f"{machine.processors} processors", VirtualQuantity=machine.processors),
        _item(2, _MEMORY, f"{machine.memory} MiB of memory", AllocationUnits="byte * 2^20",
              VirtualQuantity=machine.memory),
        _item(3, "6", "SCSI controller", ResourceSubType="lsilogic"),
    ]  # fmt: skip
    number = len(items)
    for n in range(len(machine.disks)):
        number += 1
        items.append(_item(number, _DISK, f"disk {n}", AddressOnParent=n,
                           HostResource=f"ovf:/disk/disk{n}", Parent=3))  # fmt: skip
    for n in range(machine.nics):
        number += 1
        items.append(_item(number, _NETWORK[0], f"interface {n}", AddressOnParent=n,
                           AutomaticAllocation="true", Connection="network"))  # fmt: skip
    name = quoteattr(machine.name)
    return _ENVELOPE.format(
        files=files, disks=disks, name=name, text=name[1:-1], items="".join(items)
    )


def _item(number: int, kind: str, name: str, **more: object) -> str:
    """Return one piece of hardware; the schema requires its properties in alphabetical order."""
    values = {"ElementName": name, "InstanceID": number, "ResourceType": kind, **more}
    lines = "".join(
        f"        <rasd:{key}>{value}</rasd:{key}>\n" for key, value in sorted(values.items())
    )
    return f"      <Item>\n{lines}      </Item>\n"


_VMDK_FORMAT = "http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"
_ENVELOPE = """<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData">
  <References>
{files}  </References>
  <DiskSection>
    <Info>Disks of the machine</Info>
{disks}  </DiskSection>
  <NetworkSection>
    <Info>Networks that interfaces are in</Info>
    <Network ovf:name="network"><Description>any network</Description></Network>
  </NetworkSection>
  <VirtualSystem ovf:id={name}>
    <Info>A machine</Info>
    <Name>{text}</Name>
    <VirtualHardwareSection>
      <Info>Its hardware</Info>
{items}    </VirtualHardwareSection>
  </VirtualSystem>
</Envelope>
"""
