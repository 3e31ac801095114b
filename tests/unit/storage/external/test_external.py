"""Disks that a provider's scripts keep, with a real provider: shell scripts that keep files."""

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import StorageError
from ganeti.base.paths import Paths
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.names import DiskRole
from ganeti.storage.external import volume
from ganeti.storage.external.providers import OPTIONAL, REQUIRED, find_all, load
from ganeti.storage.external.volume import MIB, ExternalVolume

UUID = "11111111-0000-4000-8000-000000000000"
SPEC = DiskSpec(
    uuid=UUID,
    index=0,
    size=8,
    template="ext",
    logical_id=("shelf", "vol-1"),
    params={"provider": "shelf", "pool": "fast; reboot", "access": "kernelspace", "other": "x"},
)
SCRIPT = """#!/bin/sh
# Keeps each volume as a file that has the volume's UUID as its name, and a log of what was asked for.
set -eu
here=$PWD
action=$(basename "$0")
echo "$action $VOL_NAME ${VOL_SIZE:--} ${VOL_NEW_SIZE:--} ${EXTP_POOL:-none} ${EXTP_OTHER:-none}" >> "$here/log"
env | grep ^VOL_ | sort | sed "s/^/$action /" >> "$here/variables"
file="$here/volumes/$VOL_UUID"
case $action in
  create) truncate -s "${VOL_SIZE}M" "$file" ;;
  attach) [ -e "$file" ] || { echo "no such volume" >&2; exit 1; }; touch "$file.attached"; echo "/dev/$VOL_UUID" ;;
  detach) rm -f "$file.attached" ;;
  remove) [ ! -e "$file.attached" ] || { echo "in use" >&2; exit 1; }; rm "$file" ;;
  grow) truncate -s "${VOL_NEW_SIZE}M" "$file" ;;
  snapshot) cp "$file" "$here/volumes/$VOL_SNAPSHOT_UUID" ;;
esac
"""


@pytest.fixture
def provider(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a provider, below its search path."""
    directory = disk_path / "extstorage" / "shelf"
    (directory / "volumes").mkdir(parents=True)
    for name in (*REQUIRED, *OPTIONAL):
        (directory / name).write_text(SCRIPT)
        (directory / name).chmod(0o755)
    (directory / "parameters.list").write_text(
        "pool\tWhere it lies\nsize_limit  How much\nno-words\n"
    )
    sizes = directory / "volumes"
    monkeypatch.setattr(volume, "_size_of", lambda path: (sizes / Path(path).name).stat().st_size)
    return directory


def disk(provider: Path, **fields: Any) -> ExternalVolume:
    paths = Paths(provider.parents[1] / "node")
    return ExternalVolume(paths, replace(SPEC, **fields), search_path=[provider.parent])


def volumes(provider: Path) -> list[str]:
    """The UUIDs of the volumes, and which are attached."""
    return sorted(one.name for one in (provider / "volumes").iterdir())


def variables(provider: Path, action: str) -> dict[str, str]:
    """What the script of an action got, of VOL_*; of several runs the last."""
    lines = (provider / "variables").read_text().splitlines()
    mine = [line.removeprefix(f"{action} ") for line in lines if line.startswith(f"{action} ")]
    return dict(line.split("=", 1) for line in mine)


def asked(provider: Path) -> list[str]:
    return [line.split()[0] for line in (provider / "log").read_text().splitlines()]


async def test_a_volume_is_made_attached_grown_and_removed_by_the_scripts(provider: Path) -> None:
    mine = disk(provider)
    assert await mine.size_mib() is None
    (provider / "log").unlink()
    await mine.create(8)
    await mine.open(DiskRole.PRIMARY)
    assert str(Path(mine.path).readlink()) == f"/dev/{UUID}"
    for _ in range(2):
        await mine.grow(16)
    assert await mine.size_mib() == 16
    assert (provider / "volumes" / UUID).stat().st_size == 16 * MIB
    await mine.close()
    assert not os.path.lexists(mine.path)
    await mine.remove()
    assert asked(provider) == [
        *("create", "attach", "open", "attach", "grow", "attach", "attach", "close", "detach"),
        *("attach", "detach", "remove"),
    ]
    assert volumes(provider) == []


async def test_a_look_at_a_closed_volume_leaves_it_detached(provider: Path) -> None:
    mine = disk(provider)
    await mine.create(8)
    assert await mine.size_mib() == 8
    await mine.check_identity()
    assert volumes(provider) == [UUID]
    await mine.open(DiskRole.PRIMARY)
    assert await mine.size_mib() == 8
    assert volumes(provider) == [UUID, f"{UUID}.attached"]


async def test_a_volume_that_something_left_attached_is_removed(provider: Path) -> None:
    mine = disk(provider)
    await mine.create(8)
    (provider / "volumes" / f"{UUID}.attached").touch()
    await mine.remove()
    assert volumes(provider) == []


@pytest.mark.requirement("G24")
async def test_scripts_get_the_declared_parameters_as_variables_and_no_others(
    provider: Path,
) -> None:
    await disk(provider).create(8)
    assert (provider / "log").read_text().splitlines() == [
        "create vol-1 8 - fast; reboot none",
    ]


async def test_scripts_get_the_variables_of_upstream(provider: Path) -> None:
    mine = disk(provider, name="data")
    always = {"VOL_NAME": "vol-1", "VOL_UUID": UUID, "VOL_CNAME": "data"}
    await mine.create(8)
    assert variables(provider, "create") == {**always, "VOL_SIZE": "8"}
    await mine.grow(16)
    assert variables(provider, "grow") == {**always, "VOL_SIZE": "8", "VOL_NEW_SIZE": "16"}
    await mine.set_info("originstname+-web1.example.com é")
    described = {**always, "VOL_METADATA": "originstname+-web1.example.com__"}
    assert variables(provider, "setinfo") == described
    await mine.set_info("-" + "x" * 200)
    assert variables(provider, "setinfo")["VOL_METADATA"] == "_" + "x" * 127
    await mine.open(DiskRole.BOTH)
    assert variables(provider, "open") == {**always, "VOL_OPEN_EXCLUSIVE": "False"}
    for action in ("attach", "detach"):
        assert variables(provider, action) == always


@pytest.mark.requirement("G12")
async def test_no_script_can_take_a_snapshot_for_the_volume_of_the_guest(provider: Path) -> None:
    mine = disk(provider, name="data")
    await mine.create(8)
    await mine.open(DiskRole.PRIMARY)
    device = await mine.take("copy")
    made = variables(provider, "snapshot")
    own = made.pop("VOL_SNAPSHOT_UUID")
    assert own != UUID
    assert device == f"/dev/{own}"
    assert made == {
        "VOL_NAME": "vol-1",
        "VOL_UUID": UUID,
        "VOL_CNAME": "data",
        "VOL_SNAPSHOT_NAME": "copy",
        "VOL_SNAPSHOT_SIZE": "8",
    }
    await mine.drop("copy")
    for action in ("attach", "detach", "remove"):
        found = variables(provider, action)
        assert (found["VOL_NAME"], found["VOL_UUID"]) == ("copy", own)
    assert volumes(provider) == [UUID, f"{UUID}.attached"]


async def test_a_snapshot_that_never_came_to_be_is_not_dropped_for_ever(provider: Path) -> None:
    mine = disk(provider)
    await mine.create(8)
    await mine.drop("copy")
    await mine.take("copy")
    held = provider / "remove"
    held.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(StorageError, match="cannot drop a snapshot"):
        await mine.drop("copy")
    held.write_text(SCRIPT)
    for _ in range(2):
        await mine.drop("copy")
    assert volumes(provider) == [UUID]


@pytest.fixture
def copies(provider: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The copies between devices that were made, by the UUIDs; both must be attached."""
    made: list[tuple[str, str]] = []

    def copy(source: str, target: str, size: int, _is_stopped: object) -> None:
        ends = [Path(one).name for one in (source, target)]
        assert {f"{one}.attached" for one in ends} <= set(volumes(provider))
        data = (provider / "volumes" / ends[0]).read_bytes()[:size]
        (provider / "volumes" / ends[1]).write_bytes(data)
        made.append((ends[0], ends[1]))

    monkeypatch.setattr(volume, "_copied", copy)
    return made


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_lasting_snapshot_is_attached_only_for_a_rollback(
    provider: Path, copies: list[tuple[str, str]], is_open: bool
) -> None:
    mine = disk(provider)
    await mine.create(8)
    (provider / "volumes" / UUID).write_bytes(b"old" + bytes(8 * MIB - 3))
    await mine.make("s1")
    (provider / "volumes" / UUID).write_bytes(bytes(8 * MIB))
    if is_open:
        await mine.open(DiskRole.PRIMARY)
    before = volumes(provider)
    await mine.roll_back("s1")
    assert [target for _source, target in copies] == [UUID]
    assert (provider / "volumes" / UUID).read_bytes().startswith(b"old")
    assert volumes(provider) == before
    await mine.drop("s1", unsure=False)
    assert len(volumes(provider)) == len(before) - 1


async def test_a_snapshot_that_was_made_is_never_taken_for_one_that_was_not(provider: Path) -> None:
    mine = disk(provider)
    await mine.create(8)
    await mine.make("s1")
    (provider / "remove").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(StorageError, match="cannot drop a snapshot"):
        await mine.drop("s1", unsure=False)
    await mine.drop("s1")


async def test_a_provider_without_the_script_snapshot_makes_none(provider: Path) -> None:
    assert await disk(provider).can_take()
    (provider / "snapshot").unlink()
    assert not await disk(provider).can_take()
    with pytest.raises(StorageError, match="provider shelf does not support snapshots"):
        await disk(provider).take("copy")


async def test_the_output_of_a_script_is_the_error(provider: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot attach disk 0 \(shelf/vol-1\).*no such volume"):
        await disk(provider).open(DiskRole.PRIMARY)
    with pytest.raises(StorageError, match=r"cannot remove disk 0.*remove: exit status 1"):
        await disk(provider).remove()
    (provider / "attach").write_text("#!/bin/sh\necho /etc/passwd\n")
    with pytest.raises(StorageError, match="not the path of a device"):
        await disk(provider).open(DiskRole.PRIMARY)


async def test_a_volume_that_is_too_small_is_not_used(provider: Path) -> None:
    await disk(provider).create(4)
    with pytest.raises(StorageError, match="has 4 MiB instead of 8 MiB"):
        await disk(provider).open(DiskRole.PRIMARY)
    assert volumes(provider) == [UUID]


def test_providers_are_found_with_what_is_wrong_with_them(provider: Path) -> None:
    (one,) = find_all([provider.parent, provider.parents[1] / "nosuch"])
    assert (one.name, one.problem) == ("shelf", "")
    assert one.parameters == [
        ("pool", "Where it lies"),
        ("size_limit", "How much"),
        ("no-words", ""),
    ]
    (provider / "grow").chmod(0o644)
    assert "script grow cannot be run" in find_all([provider.parent])[0].problem
    (provider / "verify").unlink()
    (provider / "grow").unlink()
    assert "script grow is missing" in find_all([provider.parent])[0].problem


@pytest.mark.requirement("G24")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nosuch", "the provider nosuch does not exist"),
        ("../shelf", "cannot be the name"),
        ("", "cannot"),
    ],
)
def test_only_a_provider_of_the_search_path_is_taken(provider: Path, name: str, why: str) -> None:
    with pytest.raises(StorageError, match=why):
        load([provider.parent], name)


def test_scripts_that_others_can_write_are_not_run(provider: Path) -> None:
    (provider / "create").chmod(0o777)
    with pytest.raises(StorageError, match="is writable by other users"):
        load([provider.parent], "shelf")
    (provider / "create").chmod(0o755)
    (provider / "parameters.list").write_text("BAD=NAME x\n")
    with pytest.raises(StorageError, match="'BAD=NAME' is not the name of a parameter"):
        load([provider.parent], "shelf")
    (provider / "parameters.list").unlink()
    with pytest.raises(StorageError, match=r"parameters\.list is missing"):
        load([provider.parent], "shelf")


@pytest.mark.parametrize("logical_id", [("shelf",), ("shelf", ""), ("shelf", "a\nb"), (1, "x")])
def test_a_disk_without_provider_and_name_is_refused(logical_id: Any) -> None:
    with pytest.raises(StorageError, match="is not"):
        ExternalVolume(Paths(), replace(SPEC, logical_id=logical_id))


ADDRESSES = ("192.0.2.3", "198.51.100.3")


@pytest.mark.requirement("D7")
async def test_scripts_keep_a_lost_node_from_writing_until_it_has_returned(provider: Path) -> None:
    mine = disk(provider)
    for action, call in (("fence", mine.fence), ("unfence", mine.unfence)):
        await call("node3.example.com", ADDRESSES)
        found = variables(provider, action)
        assert found["VOL_UUID"] == SPEC.uuid
        assert found["VOL_FENCE_NODE"] == "node3.example.com"
        assert found["VOL_FENCE_ADDRESSES"] == "192.0.2.3 198.51.100.3"


@pytest.mark.requirement("D7")
@pytest.mark.parametrize("missing", ["fence", "unfence"])
async def test_provider_without_both_scripts_keeps_no_node_from_writing(
    provider: Path, missing: str
) -> None:
    (provider / missing).unlink()
    with pytest.raises(StorageError, match=f"provider shelf has no script {missing}"):
        await disk(provider).fence("node3.example.com", ADDRESSES)


@pytest.mark.requirement("D7")
async def test_script_that_fails_keeps_no_node_from_writing(provider: Path) -> None:
    (provider / "fence").write_text("#!/bin/sh\necho the array is out of reach >&2; exit 1\n")
    with pytest.raises(StorageError, match="the array is out of reach"):
        await disk(provider).fence("node3.example.com", ADDRESSES)
