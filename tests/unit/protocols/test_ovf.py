"""OVF descriptions: ours, those of others, and attacks."""

import pytest

from ganeti.base.errors import InputError
from ganeti.protocols.ovf import OvfDisk, OvfMachine, format_ovf, parse_ovf

MACHINE = OvfMachine(
    "web<1>&co", 512, 2, 3, (OvfDisk("b-disk0.vmdk", 1 << 30), OvfDisk("b-disk1.vmdk", 5 << 20))
)

# As another hypervisor writes it: other prefixes, units in words, disks in another order, an empty one.
THEIRS = """<?xml version="1.0"?>
<ovf:Envelope xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1" xmlns:r="urn:rasd" xmlns:vb="urn:x">
 <ovf:References><ovf:File ovf:href="box-disk001.vmdk" ovf:id="file1" ovf:size="123"/></ovf:References>
 <ovf:DiskSection><ovf:Info>d</ovf:Info>
  <ovf:Disk ovf:capacity="10" ovf:capacityAllocationUnits="byte * 2^30" ovf:diskId="empty" ovf:format="x#vmdk"/>
  <ovf:Disk ovf:capacity="8388608" ovf:diskId="vmdisk1" ovf:fileRef="file1" ovf:format="urn:raw"/>
 </ovf:DiskSection>
 <ovf:VirtualSystem ovf:id="box"><ovf:Info>m</ovf:Info>
  <ovf:VirtualHardwareSection>
   <ovf:Item><r:ResourceType>3</r:ResourceType><r:VirtualQuantity>4</r:VirtualQuantity></ovf:Item>
   <ovf:Item><r:AllocationUnits>MegaBytes</r:AllocationUnits><r:ResourceType>4</r:ResourceType>
    <r:VirtualQuantity>2048</r:VirtualQuantity></ovf:Item>
   <ovf:Item><r:ResourceType>10</r:ResourceType></ovf:Item>
   <ovf:Item><r:HostResource>/disk/vmdisk1</r:HostResource><r:ResourceType>17</r:ResourceType></ovf:Item>
   <ovf:Item><r:HostResource>ovf:/disk/empty</r:HostResource><r:ResourceType>17</r:ResourceType></ovf:Item>
   <ovf:Item><r:ResourceType>15</r:ResourceType></ovf:Item>
  </ovf:VirtualHardwareSection>
  <vb:Machine><vb:Any/></vb:Machine>
 </ovf:VirtualSystem>
</ovf:Envelope>"""


def test_our_definition_is_read_back() -> None:
    assert parse_ovf(format_ovf(MACHINE, [10, 20]).encode()) == MACHINE


def test_upstreams_form_is_read() -> None:
    assert parse_ovf(THEIRS.encode()) == OvfMachine(
        "box",
        2048,
        4,
        1,
        (OvfDisk("box-disk001.vmdk", 8 << 20, is_vmdk=False), OvfDisk("", 10 << 30)),
    )


BOMB = '<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.requirement("A53")
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('<?xml version="1.0"?>', f'<?xml version="1.0"?>{BOMB}', "declares"),
        ('<?xml version="1.0"?>', '<!DOCTYPE x SYSTEM "file:///etc/passwd">', "declares"),
        ('<?xml version="1.0"?>', '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://h/">%p;]>', "declares"),
        ("<vb:Any/>", "&nbsp;", "not XML"),
        ("<vb:Any/>", '<vb:Any x="' + "a" * 5000 + '"/>', "longer"),
        ("<vb:Any/>", '<vb:Any x="' + "a" * 2_000_000 + '"/>', "bytes"),
        ("<vb:Any/>", "<vb:Any>" * 100 + "</vb:Any>" * 100, "more elements"),
        ("<vb:Any/>", "<vb:Any/>" * 30_000, "more elements"),
        ("</ovf:Envelope>", "", "not XML"),
        ("ovf:Envelope", "ovf:Collection", "not an envelope"),
        ("box-disk001.vmdk", "../../etc/shadow", "href"),
        ("box-disk001.vmdk", "/etc/shadow", "href"),
        ("box-disk001.vmdk", "http://host/disk.vmdk", "href"),
        ("box-disk001.vmdk", "-rf", "href"),
        ('fileRef="file1"', 'fileRef="file2"', "does not exist"),
        ('ovf:size="123"', 'ovf:compression="gzip"', "compressed"),
        ('capacity="8388608"', 'capacity="9223372036854775808"', "capacity"),
        ('capacity="8388608"', 'capacity="0"', "capacity"),
        ('capacity="8388608"', 'capacity="-1"', "whole number"),
        ('capacity="8388608"', 'capacity="${size}"', "whole number"),
        ("byte * 2^30", "byte * 2^99", "capacity"),
        ("MegaBytes", "furlongs", "unit"),
        ("<r:VirtualQuantity>4<", "<r:VirtualQuantity>99999<", "processors"),
        ("<r:VirtualQuantity>2048<", "<r:VirtualQuantity>99999999999<", "memory"),
        ('ovf:diskId="vmdisk1"', 'ovf:parentRef="empty" ovf:diskId="vmdisk1"', "difference"),
        ('ovf:diskId="empty"', 'ovf:fileRef="file1" ovf:diskId="empty"', "same file"),
        (
            "<ovf:Item><r:ResourceType>10</r:ResourceType></ovf:Item>",
            "<ovf:Item><r:ResourceType>10</r:ResourceType></ovf:Item>" * 9,
            "network interfaces",
        ),
    ],
)
def test_attacks_and_nonsense_are_refused(old: str, new: str, why: str) -> None:
    assert old in THEIRS
    with pytest.raises(InputError, match=why):
        parse_ovf(THEIRS.replace(old, new).encode())


def test_two_machines_are_not_one() -> None:
    begin, end = THEIRS.index("<ovf:VirtualSystem "), THEIRS.index("</ovf:Envelope>")
    with pytest.raises(InputError, match="2 machines"):
        parse_ovf((THEIRS[:end] + THEIRS[begin:end] + THEIRS[end:]).encode())
