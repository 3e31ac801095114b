"""LVM as plain data, behind its own command lines and reports; volumes are files.

It keeps LVM's contracts as far as the product relies on them: sizes are whole extents, an active volume
has a device, what is open is neither removed nor taken alone, tags stay with a volume.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ganeti.base.errors import StorageError
from ganeti.base.process import CommandFailed, Completed
from ganeti.storage.lvm.commands import VolumeName
from ganeti.storage.lvm.devices import VolumeDevices
from ganeti.storage.lvm.reports import Volume
from ganeti.storage.lvm.tools import Lvm

MIB = 1024 * 1024
EXTENT = 4 * MIB
_BYTES = re.compile(r"(\d+)b")


@dataclass
class ModelVolume:
    """A volume; `kind` is the first letter of its attributes."""

    size: int
    tags: list[str] = field(default_factory=list)
    is_active: bool = True
    state: str = ""
    """The fifth letter of its attributes, if it is not that of an active or inactive volume."""
    is_open: bool = False
    kind: str = "-"
    origin: str = ""
    pool: str = ""
    zeroes: bool = True
    """Of a pool."""
    percents: tuple[float, float] = (0.0, 0.0)
    """Of the data and the metadata of a pool."""
    stripes: tuple[str, str] | None = None
    on: tuple[str, ...] = ()
    partial: bool = False
    uuid: str = ""


@dataclass
class ModelPhysical:
    """A physical volume of a group; sizes in bytes."""

    group: str
    size: int
    used: int = 0
    allocatable: bool = True
    missing: bool = False


@dataclass
class ModelLvm:
    """The LVM of one node: a `Run` that knows nothing but LVM's programs."""

    root: Path
    """Where the devices are, as GROUP/NAME."""
    devices: dict[str, ModelPhysical] = field(
        default_factory=lambda: {"/dev/sda": ModelPhysical("xenvg", 256 * MIB)}
    )
    volumes: dict[tuple[str, str], ModelVolume] = field(default_factory=dict)
    ran: list[list[str]] = field(default_factory=list)
    fail_at: int = -1
    """The number of the command that fails, or is cut off after it has acted."""
    fails_after: bool = False
    busy: int = 0
    """How often a removal finds the volume in use."""
    leftover: bytes = b"another's secret"
    """What new space holds."""
    _numbers: int = 0

    @property
    def lvm(self) -> Lvm:
        return Lvm(run=self)

    def free(self, group: str) -> int:
        total = sum(one.size for one in self.devices.values() if one.group == group)
        used = (v.size for (g, _n), v in self.volumes.items() if g == group and not v.pool)
        return total - sum(used)

    def file(self, group: str, name: str) -> Path:
        return self.root / group / name

    def add(self, group: str, name: str, size: int = EXTENT, **fields: Any) -> ModelVolume:
        """A volume that somebody made by hand."""
        self._numbers += 1
        made = ModelVolume(size, uuid=f"lv-{self._numbers}", **fields)
        self.volumes[group, name] = made
        self._fill(group, name, 0, size)
        return made

    def _fill(self, group: str, name: str, start: int, end: int) -> None:
        path = self.file(group, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        with path.open("r+b") as device:
            device.truncate(end)
            for at in range(start, end, MIB):
                device.seek(at)
                device.write(self.leftover)

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
        number = len(self.ran)
        self.ran.append(words)
        if number == self.fail_at and not self.fails_after:
            raise _failed(words, "device-mapper does not answer")
        out = getattr(self, f"_{words[0]}")(words)
        if number == self.fail_at:
            raise _failed(words, "killed")
        return Completed(tuple(words), 0, out, b"")

    def acts(self) -> list[str]:
        """The programs that changed something."""
        return [words[0] for words in self.ran if words[0] not in ("lvs", "vgs", "pvs")]

    # --- reports ---

    def _lvs(self, words: list[str]) -> bytes:
        operands = _operands(words)
        if operands:
            self._check_group(words, operands[0])
        names = re.findall(r'lv_name="([^"]*)"', _option(words, "--select"))
        rows = []
        for (group, name), one in self.volumes.items():
            if operands and group != operands[0]:
                continue
            if names and name not in names:
                continue
            state = one.state or ("a" if one.is_active else "-")
            attr = (
                f"{one.kind}wi-{state}{'o' if one.is_open else '-'}-"
                f"{'z' if one.kind == 't' and one.zeroes else '-'}{'p' if one.partial else '-'}-"
            )
            rows.append({
                "vg_name": group, "vg_uuid": f"uuid-of-{group}", "lv_name": name, "lv_uuid": one.uuid,
                "lv_attr": attr, "lv_size": str(one.size), "lv_tags": ",".join(one.tags),
                "lv_kernel_major": "253" if one.is_active else "-1",
                "lv_kernel_minor": "0" if one.is_active else "-1",
                "origin": one.origin, "pool_lv": one.pool,
                "data_percent": f"{one.percents[0]:.2f}" if one.kind == "t" else "",
                "metadata_percent": f"{one.percents[1]:.2f}" if one.kind == "t" else "",
                "devices": ",".join(f"{device}(0)" for device in one.on or ("/dev/sda",)),
            })  # fmt: skip
        return json.dumps({"report": [{"lv": rows}]}).encode()

    def _vgs(self, _words: list[str]) -> bytes:
        rows = []
        for name in sorted({one.group for one in self.devices.values() if one.group}):
            own = [one for one in self.devices.values() if one.group == name]
            missing = sum(one.missing for one in own)
            rows.append({
                "vg_name": name, "vg_attr": f"wz-{'p' if missing else '-'}n-",
                "vg_size": str(sum(one.size for one in own)), "vg_free": str(self.free(name)),
                "vg_missing_pv_count": str(missing), "pv_count": str(len(own)),
            })  # fmt: skip
        return json.dumps({"report": [{"vg": rows}]}).encode()

    def _pvs(self, _words: list[str]) -> bytes:
        rows = [
            {
                "pv_name": name, "vg_name": one.group, "pv_size": str(one.size),
                "pv_attr": f"{'a' if one.allocatable else '-'}-{'m' if one.missing else '-'}",
                "pv_free": str(one.size - one.used), "pv_used": str(one.used),
            }
            for name, one in self.devices.items()
        ]  # fmt: skip
        return json.dumps({"report": [{"pv": rows}]}).encode()

    # --- changes ---

    def _lvcreate(self, words: list[str]) -> bytes:
        operands, name = _operands(words), _option(words, "--name")
        size, tags = _size(words), _options(words, "--addtag")
        if "--snapshot" in words:
            group, origin = operands[0].split("/")
            source = self.volumes[group, origin]
            copy = ModelVolume(size, tags, kind="s", origin=origin)
            if source.pool:
                copy = ModelVolume(source.size, tags, kind="V", origin=origin, pool=source.pool)
            self._new(words, group, name, copy)
            shutil.copyfile(self.file(group, origin), self.file(group, name))
            return b""
        self._check_group(words, operands[0])
        if pool := _option(words, "--thinpool"):
            self._new(words, operands[0], name, ModelVolume(size, tags, kind="V", pool=pool))
            path = self.file(operands[0], name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.truncate(path, size)  # a pool has zeros
            return b""
        striped = (_option(words, "--stripes"), _option(words, "--stripesize"))
        stripes = striped if striped[0] else None
        made = ModelVolume(size, tags, stripes=stripes, on=tuple(operands[1:]))
        for device in operands[1:]:
            self.devices[device].used += size // len(operands[1:])
        self._new(words, operands[0], name, made)
        self._fill(operands[0], name, 0, size)
        return b""

    def _new(self, words: list[str], group: str, name: str, made: ModelVolume) -> None:
        if (group, name) in self.volumes:
            raise _failed(
                words, f'Logical Volume "{name}" already exists in volume group "{group}"'
            )
        if made.size > self.free(group) and not made.pool:
            raise _failed(words, f'Volume group "{group}" has insufficient free space')
        self._numbers += 1
        self.volumes[group, name] = replace(made, uuid=f"lv-{self._numbers}")

    def _lvextend(self, words: list[str]) -> bytes:
        group, name, one = self._found(words)
        size = _size(words)
        if size - one.size > self.free(group) and not one.pool:
            raise _failed(words, "Insufficient free space")
        if one.pool:
            os.truncate(self.file(group, name), size)
        else:
            self._fill(group, name, one.size, size)
        one.size = size
        one.on = tuple(_operands(words)[1:]) or one.on
        return b""

    def _lvremove(self, words: list[str]) -> bytes:
        group, name, one = self._found(words)
        if one.is_open or self.busy > 0:
            self.busy -= 1
            raise _failed(words, f"Logical volume {group}/{name} in use.")
        del self.volumes[group, name]
        self.file(group, name).unlink()
        return b""

    def _lvrename(self, words: list[str]) -> bytes:
        group, old, new = _operands(words)
        if (group, new) in self.volumes or (group, old) not in self.volumes:
            raise _failed(words, "no such volume, or the name is taken")
        self.volumes[group, new] = self.volumes.pop((group, old))
        self.file(group, old).rename(self.file(group, new))
        return b""

    def _lvchange(self, words: list[str]) -> bytes:
        _group, _name, one = self._found(words)
        if _option(words, "--activate"):
            one.is_active = True
        dropped, added = _options(words, "--deltag"), _options(words, "--addtag")
        one.tags = [*(tag for tag in one.tags if tag not in dropped), *added]
        return b""

    def _pvchange(self, words: list[str]) -> bytes:
        (name,) = _operands(words)
        self.devices[name].allocatable = _option(words, "--allocatable") == "y"
        return b""

    def _vgreduce(self, words: list[str]) -> bytes:
        (group,) = _operands(words)
        gone = [name for name, one in self.devices.items() if one.group == group and one.missing]
        for name in gone:
            del self.devices[name]
        for key in [key for key, one in self.volumes.items() if key[0] == group and one.partial]:
            del self.volumes[key]
        return b""

    def _found(self, words: list[str]) -> tuple[str, str, ModelVolume]:
        group, name = _operands(words)[0].split("/")
        if (group, name) not in self.volumes:
            raise _failed(words, f'Failed to find logical volume "{group}/{name}"')
        return group, name, self.volumes[group, name]

    def _check_group(self, words: list[str], group: str) -> None:
        if all(one.group != group for one in self.devices.values()):
            raise _failed(words, f'Volume group "{group}" not found')


@dataclass(frozen=True)
class ModelDevices(VolumeDevices):
    """The files of a `ModelLvm`; `wrong` has paths that lead to another volume's device."""

    model: ModelLvm
    wrong: frozenset[str] = frozenset()
    checked: list[str] = field(default_factory=list)

    def path(self, name: VolumeName) -> str:
        return str(self.model.file(name.group, name.name))

    def check(self, volume: Volume, descriptor: int) -> None:
        self.checked.append(volume.name)
        if volume.name in self.wrong:
            raise StorageError("the device is another volume")

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size


def _operands(words: Sequence[str]) -> list[str]:
    return list(words[words.index("--") + 1 :]) if "--" in words else []


def _options(words: Sequence[str], name: str) -> list[str]:
    end = words.index("--") if "--" in words else len(words)
    return [words[at + 1] for at, word in enumerate(words[:end]) if word == name]


def _option(words: Sequence[str], name: str) -> str:
    return (_options(words, name) or [""])[0]


def _size(words: Sequence[str]) -> int:
    if "--size" not in words and "--virtualsize" not in words:
        return 0  # a thin snapshot
    name = "--size" if "--size" in words else "--virtualsize"
    found = _BYTES.fullmatch(_option(words, name))
    assert found, words
    return -(-int(found[1]) // EXTENT) * EXTENT


def _failed(words: Sequence[str], why: str) -> CommandFailed:
    done = Completed(tuple(words), 5, b"", why.encode())
    return CommandFailed(done, "exit status 5")
