"""Disks that are images of Ceph, with a stand-in for the `rbd` command."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Completed
from ganeti.hypervisor.kvm.disks import resolve_disks
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.names import DiskRole
from ganeti.storage.rbd import BLOCKLIST_S, MIB, RadosImage

UUID = "11111111-0000-4000-8000-000000000000"
SPEC = DiskSpec(
    uuid=UUID,
    index=0,
    size=8,
    template="rbd",
    logical_id=("rbd", "img-1"),
    params={"pool": "rbd", "access": "userspace"},
)


@dataclass
class Ceph:
    """The `rbd` command on images as data."""

    images: dict[str, int] = field(default_factory=dict)
    meta: dict[str, dict[str, str]] = field(default_factory=dict)
    mapped: dict[str, str] = field(default_factory=dict)
    snapshots: set[str] = field(default_factory=set)
    rolled_back: list[str] = field(default_factory=list)
    ran: list[list[str]] = field(default_factory=list)
    locks: list[str] = field(default_factory=list)
    """Addresses of clients that hold the exclusive lock."""
    refused: dict[str, str] = field(default_factory=dict)
    """What Ceph refuses, and for how many seconds."""
    is_deaf: bool = False
    """The blocklist does not change."""

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Completed:
        words = list(argv)
        self.ran.append(words)
        at = words.index("--") if "--" in words else len(words)
        operands = words[at + 1 :]
        name = operands[0] if operands else ""
        act = "_" + words[1].replace("-", "_")
        out = getattr(self, act)(words, name, operands) if hasattr(self, act) else None
        return Completed(tuple(words), 0, json.dumps(out).encode() if out else b"", b"")

    def _create(self, words: list[str], name: str, _operands: list[str]) -> None:
        self.images[name] = int(words[words.index("--size") + 1].rstrip("M")) * MIB

    _resize = _create

    def _info(self, words: list[str], name: str, _operands: list[str]) -> dict[str, int]:
        if name not in self.images:
            raise _not_found(words)
        return {"size": self.images[name]}

    def _snap(self, words: list[str], name: str, _operands: list[str]) -> None:
        if words[2] == "create":
            self.snapshots.add(name)
        elif words[2] == "rollback" and name in self.snapshots:
            assert name.partition("@")[0] not in self.mapped, "the kernel has former blocks"
            self.rolled_back.append(name)
        elif name not in self.snapshots:
            raise _not_found(words)
        else:
            self.snapshots.remove(name)

    def _image_meta(self, words: list[str], name: str, operands: list[str]) -> Any:
        if words[2] == "set":
            self.meta.setdefault(name, {})[operands[1]] = operands[2]
        return self.meta.get(name)

    def _rm(self, _words: list[str], name: str, _operands: list[str]) -> None:
        del self.images[name]

    def _showmapped(self, _words: list[str], _name: str, _operands: list[str]) -> Any:
        return [
            {
                "pool": "rbd",
                "name": key.partition("/")[2].partition("@")[0],
                "snap": key.partition("@")[2] or "-",
                "device": device,
            }
            for key, device in self.mapped.items()
        ]

    def _map(self, _words: list[str], name: str, _operands: list[str]) -> None:
        assert name.partition("@")[0] in self.images
        self.mapped[name] = f"/dev/rbd{len(self.mapped)}"

    def _lock(self, _words: list[str], _name: str, _operands: list[str]) -> Any:
        return [{"id": "auto 1", "locker": "client.4", "address": one} for one in self.locks]

    def _osd(self, words: list[str], _name: str, _operands: list[str]) -> Any:
        assert words[:3] == ["ceph", "osd", "blocklist"]
        match words[3:]:
            case ["add", address, seconds] if not self.is_deaf:
                self.refused[f"{address}:0/0"] = seconds
            case ["rm", address]:
                del self.refused[f"{address}:0/0"]
            case ["ls", *_]:
                return [{"addr": one, "until": "later"} for one in self.refused]
        return None

    def _unmap(self, _words: list[str], name: str, _operands: list[str]) -> None:
        self.mapped = {key: one for key, one in self.mapped.items() if one != name}


def _not_found(words: list[str]) -> CommandFailed:
    return CommandFailed(
        Completed(tuple(words), 2, b"", b"No such file or directory"), "exit status 2"
    )


@pytest.fixture
def ceph() -> Ceph:
    return Ceph()


def disk(ceph: Ceph, **params: Any) -> RadosImage:
    spec = replace(SPEC, params={**SPEC.params, **params})
    return RadosImage(Paths(), spec, run=ceph)


async def test_an_image_is_made_grown_and_removed(ceph: Ceph) -> None:
    mine = disk(ceph)
    await mine.create(8)
    await mine.create(8)
    assert ceph.images == {"rbd/img-1": 8 * MIB}
    await mine.open(DiskRole.PRIMARY)
    await mine.grow(16)
    assert await mine.size_mib() == 16
    assert ceph.mapped == {}
    await mine.remove()
    await mine.remove()
    assert ceph.images == {}


async def test_qemu_reads_the_image_without_the_kernel(ceph: Ceph) -> None:
    mine = disk(ceph)
    assert mine.path == "rbd:rbd/img-1"
    instance = InstanceSpec(
        name="a", uuid="b", hypervisor="kvm", os="", memory=1, vcpus=1, hvparams={},
        disk_template="rbd", disks=(SPEC,),
    )  # fmt: skip
    (backend,) = resolve_disks(instance, [mine.path], "default")
    assert backend.remote == {"driver": "rbd", "pool": "rbd", "image": "img-1"}


async def test_the_kernel_maps_it_for_as_long_as_it_is_open(ceph: Ceph) -> None:
    mine = disk(ceph, access="kernelspace")
    await mine.create(8)
    for _ in range(2):
        await mine.open(DiskRole.PRIMARY)
    assert list(ceph.mapped) == ["rbd/img-1"]
    assert mine.path == "/dev/rbd/rbd/img-1"
    assert await mine.take("s1") == "/dev/rbd/rbd/img-1@s1"
    for _ in range(2):
        await mine.drop("s1")
    await mine.close()
    assert ceph.mapped == {}


@pytest.mark.requirement("G12")
async def test_another_disks_image_is_not_touched(ceph: Ceph) -> None:
    ceph.images["rbd/img-1"] = 8 * MIB
    with pytest.raises(StorageError, match="an image of this name exists"):
        await disk(ceph).create(8)
    ceph.meta["rbd/img-1"] = {"ganeti.disk": "22222222-0000-4000-8000-000000000000"}
    await disk(ceph).remove()
    assert await disk(ceph).size_mib() is None
    with pytest.raises(StorageError, match="has no such image"):
        await disk(ceph).open(DiskRole.PRIMARY)
    assert ceph.images == {"rbd/img-1": 8 * MIB}


@pytest.mark.requirement("G24", "A49")
@pytest.mark.parametrize(
    ("logical_id", "pool"),
    [(("rbd", "-f"), "rbd"), (("rbd", "a/b"), "rbd"), (("rbd", "a@b"), "rbd"), (("rbd", "a"), "-x"),
     (("rbd", "a"), ""), (("x", "a"), "rbd"), (("rbd",), "rbd")],
)  # fmt: skip
def test_names_that_could_be_anything_else_are_refused(logical_id: Any, pool: str) -> None:
    with pytest.raises(StorageError):
        RadosImage(Paths(), replace(SPEC, logical_id=logical_id, params={"pool": pool}))


@pytest.mark.parametrize("access", ["userspace", "kernelspace"])
async def test_a_lasting_snapshot_is_not_mapped_and_is_kept_by_a_rollback(
    ceph: Ceph, access: str
) -> None:
    mine = disk(ceph, access=access)
    await mine.create(8)
    await mine.make("s1")
    assert ceph.mapped == {}
    await mine.open(DiskRole.PRIMARY)
    await mine.roll_back("s1")
    assert ceph.rolled_back == ["rbd/img-1@s1"]
    assert ceph.snapshots == {"rbd/img-1@s1"}
    for wrong in ("s2", "a@b", "-f"):
        with pytest.raises(StorageError, match="cannot roll back"):
            await mine.roll_back(wrong)
    for _ in range(2):
        await mine.drop("s1", unsure=False)
    assert ceph.snapshots == set()


LOST, ADDRESSES = "node3.example.com", ("192.0.2.3", "198.51.100.3")


@pytest.mark.requirement("D7")
async def test_lost_node_is_refused_as_a_whole_until_it_has_returned(ceph: Ceph) -> None:
    ceph.locks = ["198.51.100.3:0/3735928559"]
    ceph.refused = {"203.0.113.9:0/77": "3600"}
    mine = disk(ceph)
    for _ in range(2):
        await mine.fence(LOST, ADDRESSES)
        assert ceph.refused == {"203.0.113.9:0/77": "3600", "198.51.100.3:0/0": BLOCKLIST_S}
    assert ceph.ran[0] == ["rbd", "lock", "ls", "--format", "json", "--", "rbd/img-1"]
    assert ceph.ran[1] == ["ceph", "osd", "blocklist", "add", "198.51.100.3", BLOCKLIST_S]
    for _ in range(2):
        await mine.unfence(LOST, ADDRESSES)
        assert ceph.refused == {"203.0.113.9:0/77": "3600"}


@pytest.mark.requirement("D7")
@pytest.mark.parametrize(
    ("locks", "why"),
    [
        ([], "no client holds its exclusive lock"),
        (["203.0.113.9:0/1"], "held from 203.0.113.9, which is not an address of node3"),
        (["nonsense"], "is not the address of a client of Ceph"),
    ],
)
async def test_node_that_may_write_under_another_address_is_not_refused(
    ceph: Ceph, locks: list[str], why: str
) -> None:
    ceph.locks = locks
    with pytest.raises(StorageError, match=why):
        await disk(ceph).fence(LOST, ADDRESSES)
    assert not ceph.refused


@pytest.mark.requirement("D7")
async def test_blocklist_that_does_not_have_the_node_afterwards_is_an_error(ceph: Ceph) -> None:
    ceph.locks, ceph.is_deaf = ["192.0.2.3:0/1"], True
    with pytest.raises(StorageError, match=r"does not confirm that it refuses 192\.0\.2\.3"):
        await disk(ceph).fence(LOST, ADDRESSES)


@pytest.mark.parametrize(
    ("address", "ip"),
    [
        ("v1:192.0.2.3:0/1", "192.0.2.3"),
        ("[2001:db8::3]:0/3735928559", "2001:db8::3"),
        ("v2:[2001:db8::3]:0/1", "2001:db8::3"),
    ],
)
async def test_addresses_of_all_forms_are_read(ceph: Ceph, address: str, ip: str) -> None:
    ceph.locks = [address]
    await disk(ceph).fence(LOST, [ip])
    assert list(ceph.refused) == [f"{ip}:0/0"]
