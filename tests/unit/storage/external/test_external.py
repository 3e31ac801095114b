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
# Keeps each volume as a file, and what was asked for in a log.
set -eu
here=$(dirname "$0")
echo "$(basename "$0") $VOL_NAME $VOL_SIZE ${VOL_NEW_SIZE:-} ${EXTP_POOL:-none} ${EXTP_OTHER:-none}" >> "$here/log"
file="$here/volumes/$VOL_NAME"
case $(basename "$0") in
  create) truncate -s "${VOL_SIZE}M" "$file" ;;
  attach) [ -e "$file" ] || { echo "no such volume" >&2; exit 1; }; echo "/dev/$VOL_NAME" ;;
  remove) rm -f "$file" ;;
  grow) truncate -s "${VOL_NEW_SIZE}M" "$file" ;;
  snapshot) cp "$file" "$here/volumes/$VOL_SNAPSHOT_NAME" ;;
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
    (directory / "parameters.list").write_text("pool  Where it lies\nsize_limit How much\n")
    sizes = directory / "volumes"
    monkeypatch.setattr(volume, "_size_of", lambda path: (sizes / Path(path).name).stat().st_size)
    return directory


def disk(provider: Path, **fields: Any) -> ExternalVolume:
    paths = Paths(provider.parents[1] / "node")
    return ExternalVolume(paths, replace(SPEC, **fields), search_path=[provider.parent])


def asked(provider: Path) -> list[str]:
    return [line.split()[0] for line in (provider / "log").read_text().splitlines()]


async def test_a_volume_is_made_attached_grown_and_removed_by_the_scripts(provider: Path) -> None:
    mine = disk(provider)
    assert await mine.size_mib() is None
    (provider / "log").unlink()
    await mine.create(8)
    await mine.open(DiskRole.PRIMARY)
    assert str(Path(mine.path).readlink()) == "/dev/vol-1"
    await mine.grow(16)
    assert await mine.size_mib() == 16
    assert (provider / "volumes" / "vol-1").stat().st_size == 16 * MIB
    await mine.close()
    assert not os.path.lexists(mine.path)
    await mine.remove()
    assert asked(provider) == [
        *("verify", "create", "attach", "open", "grow", "attach", "close", "detach", "remove")
    ]
    assert not (provider / "volumes" / "vol-1").exists()


@pytest.mark.requirement("G24")
async def test_scripts_get_the_declared_parameters_as_variables_and_no_others(
    provider: Path,
) -> None:
    await disk(provider).create(8)
    assert (provider / "log").read_text().splitlines() == [
        "verify vol-1 8  fast; reboot none",
        "create vol-1 8  fast; reboot none",
    ]


async def test_a_snapshot_is_a_volume_of_its_own(provider: Path) -> None:
    mine = disk(provider)
    await mine.create(8)
    assert await mine.take("copy") == "/dev/copy"
    await mine.drop("copy")
    assert sorted(one.name for one in (provider / "volumes").iterdir()) == ["vol-1"]
    (provider / "snapshot").unlink()
    with pytest.raises(StorageError, match="provider shelf makes no snapshots"):
        await mine.take("copy")


async def test_what_a_script_says_is_the_error(provider: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot attach disk 0 \(shelf/vol-1\).*no such volume"):
        await disk(provider).open(DiskRole.PRIMARY)
    (provider / "attach").write_text("#!/bin/sh\necho /etc/passwd\n")
    with pytest.raises(StorageError, match="not the path of a device"):
        await disk(provider).open(DiskRole.PRIMARY)


async def test_a_volume_that_is_too_small_is_not_used(provider: Path) -> None:
    await disk(provider).create(4)
    with pytest.raises(StorageError, match="has 4 MiB instead of 8 MiB"):
        await disk(provider).open(DiskRole.PRIMARY)


def test_providers_are_found_with_what_is_wrong_with_them(provider: Path) -> None:
    (one,) = find_all([provider.parent, provider.parents[1] / "nosuch"])
    assert (one.name, one.problem) == ("shelf", "")
    assert one.parameters == [("pool", "Where it lies"), ("size_limit", "How much")]
    (provider / "grow").chmod(0o644)
    assert "script grow cannot be run" in find_all([provider.parent])[0].problem
    (provider / "grow").unlink()
    assert "script grow is missing" in find_all([provider.parent])[0].problem


@pytest.mark.requirement("G24")
@pytest.mark.parametrize(
    ("name", "why"),
    [("nosuch", "there is no provider nosuch"), ("../shelf", "cannot be the name"), ("", "cannot")],
)
def test_only_a_provider_of_the_search_path_is_taken(provider: Path, name: str, why: str) -> None:
    with pytest.raises(StorageError, match=why):
        load([provider.parent], name)


def test_scripts_that_others_can_write_are_not_run(provider: Path) -> None:
    (provider / "create").chmod(0o777)
    with pytest.raises(StorageError, match="can be written by others"):
        load([provider.parent], "shelf")
    (provider / "create").chmod(0o755)
    (provider / "parameters.list").write_text("BAD-NAME x\n")
    with pytest.raises(StorageError, match="'BAD-NAME' is no name of a parameter"):
        load([provider.parent], "shelf")
    (provider / "parameters.list").unlink()
    with pytest.raises(StorageError, match=r"parameters\.list is missing"):
        load([provider.parent], "shelf")


@pytest.mark.parametrize("logical_id", [("shelf",), ("shelf", ""), ("shelf", "a\nb"), (1, "x")])
def test_a_disk_without_provider_and_name_is_refused(logical_id: Any) -> None:
    with pytest.raises(StorageError, match="is not"):
        ExternalVolume(Paths(), replace(SPEC, logical_id=logical_id))
