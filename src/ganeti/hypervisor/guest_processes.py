"""Guests found by the records of the drivers, without a driver: to kill them when the node has no lease (D7)."""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ganeti.base import process_table
from ganeti.base.paths import Paths
from ganeti.base.process_table import ProcessId


@dataclass(frozen=True)
class FoundGuest:
    """A guest that lives: a process, or the file of a simulated one."""

    name: str
    what: ProcessId | Path

    @property
    def is_alive(self) -> bool:
        if isinstance(self.what, Path):
            return self.what.exists()
        return process_table.is_alive(self.what)

    def kill(self) -> None:
        """End it at once; OSError."""
        if isinstance(self.what, Path):
            self.what.unlink(missing_ok=True)
        else:
            process_table.kill(self.what)


def living_guests(paths: Paths, uuids: Collection[str], boot_id: str) -> list[FoundGuest]:
    """Return the guests of these instances; OSError or ValueError if it is not known whether there are any."""
    try:
        found = [*_simulated(paths, uuids), *_processes(paths, uuids, boot_id)]
    except (KeyError, TypeError) as err:
        raise ValueError(f"the record of a guest lacks {err}") from err
    return [one for one in found if one.is_alive]


def _processes(paths: Paths, uuids: Collection[str], boot_id: str) -> Iterator[FoundGuest]:
    """Return the processes by the records of KVM (`ganeti.hypervisor.kvm.runtime.Record`)."""
    for _path, record in _records(paths.kvm):
        if record["instance"]["uuid"] not in uuids or record["boot_id"] != boot_id:
            continue
        process: ProcessId | None = ProcessId(record.get("pid", 0), record.get("start_ticks", 0))
        if not record.get("pid"):
            process = process_table.find(record["argv"])  # its start is not recorded yet
        if process is not None:
            yield FoundGuest(record["instance"]["name"], process)


def _simulated(paths: Paths, uuids: Collection[str]) -> Iterator[FoundGuest]:
    for path, record in _records(paths.fake_hypervisor):
        if record["instance"]["uuid"] in uuids:
            yield FoundGuest(record["instance"]["name"], path)


def _records(directory: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in directory.glob("*.json"):
        try:
            yield path, json.loads(path.read_bytes())
        except FileNotFoundError:
            continue  # it has just ended
