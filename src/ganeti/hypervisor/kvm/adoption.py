"""Adoption of guests that upstream has started.

Upstream stores below `/var/run/ganeti/kvm-hypervisor` a process id (`pid/NAME`), control sockets (`ctrl/NAME.qmp`,
`.serial`, `.qga`), perhaps a user id (`uid/NAME`), and in `conf/NAME.runtime` the started command line,
interfaces, hypervisor parameters and disks. That is enough for a record of this driver; links give the sockets
their local names. The devices have other names. So an adopted guest can be shown, stopped and rebooted, but until its
next start it can neither be hotplugged nor moved.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ganeti.base.errors import HypervisorError, InputError
from ganeti.base.identifiers import host_name, is_uuid
from ganeti.base.paths import Paths
from ganeti.base.process_table import PROC, ProcessId
from ganeti.hypervisor.abilities import Adoption, AdoptsGuests
from ganeti.hypervisor.kvm.processes import Processes
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record, all_guest_files, boot_id
from ganeti.model import wire
from ganeti.model.hypervisor_params import check_hypervisor_params
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NicSpec
from ganeti.model.params import Params

KVM = "kvm"
_PARTS = 4
"""The content of a runtime file: command line, interfaces, parameters, disks."""
_SOCKETS = {"monitor": "qmp", "console": "serial", "guest_agent": "qga"}
_RUNTIME = ".runtime"
_MIRRORED, _PORT = "drbd", 2


@dataclass(frozen=True)
class UpstreamGuest:
    """A guest of upstream that runs here."""

    name: str
    instance: InstanceSpec
    process: ProcessId
    argv: tuple[str, ...]
    pool_uid: int


def directory(paths: Paths) -> Path:
    """Return upstream's directory of runtime data of guests."""
    return paths.run / "kvm-hypervisor"


@dataclass(frozen=True)
class UpstreamGuests(AdoptsGuests):
    """The guests of this node that upstream has started."""

    paths: Paths
    processes: Processes

    def adopt(self, uuids: Mapping[str, str] = MappingProxyType({})) -> Adoption:
        del uuids  # the command lines contain them
        adopted, problems = [], []
        for path in sorted((directory(self.paths) / "conf").glob(f"*{_RUNTIME}")):
            name = path.name.removesuffix(_RUNTIME)
            try:
                found = _look_at(self.paths, self.processes, name, path)
                if found is not None:
                    _adopt(self.paths, found)
                    adopted.append(name)
            except (
                HypervisorError,
                InputError,
                OSError,
                LookupError,
                TypeError,
                ValueError,
            ) as err:
                problems.append(f"{name}: {err}")
        return Adoption(tuple(adopted), tuple(problems))

    def hidden_guests(self) -> list[str]:
        return [name for name, record, _files in _records(self.paths) if not record.is_adopted]

    def give_back(self) -> None:
        """Remove the records of adopted guests; the guests keep running and upstream knows them."""
        for _name, record, files in list(_records(self.paths)):
            if record.is_adopted:
                files.forget()


def _look_at(paths: Paths, processes: Processes, name: str, path: Path) -> UpstreamGuest | None:
    """Return the guest; None if it does not run."""
    host_name(name, "name")
    pid = _number(directory(paths) / "pid" / name)
    argv = _words(pid)
    if not pid or not argv:
        return None
    runtime = wire.parse_foreign(path.read_bytes(), what=str(path))
    if not isinstance(runtime, list) or len(runtime) != _PARTS:
        raise HypervisorError(f"{path} does not have the four parts that Ganeti 2.7 to 3.1 writes")
    _command, nics, hvparams, disks = runtime
    uuid = _after(argv, "-uuid")
    if _after(argv, "-name").partition(",")[0] != name or not is_uuid(uuid):
        raise HypervisorError(f"process {pid} is not its QEMU: its command line has another name")
    process = processes.find(argv)
    if process is None or process.pid != pid:
        raise HypervisorError(f"process {pid} has just ended, or runs twice")
    instance = InstanceSpec(
        name=name,
        uuid=uuid,
        hypervisor=KVM,
        os="",
        memory=int(_after(argv, "-m")),
        vcpus=int(_after(argv, "-smp").partition(",")[0]),
        hvparams=_known(hvparams),
        disk_template=str(disks[0][0]["dev_type"]) if disks else "diskless",
        disks=tuple(_disk(index, one) for index, (one, *_rest) in enumerate(disks)),
        nics=tuple(_nic(index, one) for index, one in enumerate(nics)),
    )
    return UpstreamGuest(
        name, instance, process, tuple(argv), _number(directory(paths) / "uid" / name)
    )


def _adopt(paths: Paths, found: UpstreamGuest) -> None:
    files = GuestFiles.of(paths, found.instance.uuid)
    old = files.read()
    if old is not None and old.boot_id == boot_id() and old.process == found.process:
        return
    files.check_lengths()
    files.prepare()
    control = directory(paths) / "ctrl"
    if not (control / f"{found.name}.qmp").is_socket():
        raise HypervisorError(f"its control socket {control}/{found.name}.qmp does not exist")
    for ours, theirs in _SOCKETS.items():
        socket = control / f"{found.name}.{theirs}"
        if socket.is_socket():
            getattr(files, ours).symlink_to(socket)
    files.write(
        Record(
            instance=found.instance,
            argv=found.argv,
            accelerator=KVM if "-enable-kvm" in found.argv or _uses_kvm(found.argv) else "tcg",
            boot_id=boot_id(),
            pool_uid=found.pool_uid,
            is_prepared=True,
            is_adopted=True,
            pid=found.process.pid,
            start_ticks=found.process.start_ticks,
        )
    )


def _uses_kvm(argv: Sequence[str]) -> bool:
    return any("accel=kvm" in word for word in argv)


def _number(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return 0


def _words(pid: int) -> list[str]:
    """Return the command line of a process; nothing if it has ended."""
    if not pid:
        return []
    try:
        data = (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [os.fsdecode(word) for word in data.split(b"\0")[:-1]]


def _after(argv: Sequence[str], option: str) -> str:
    """Return the value of an option."""
    if option not in argv[:-1]:
        raise HypervisorError(f"its command line has no {option}")
    return argv[argv.index(option) + 1]


def _known(given: Any) -> Params:
    """Return the supported parameters, without those of the shutdown, which upstream handles in another way."""
    found: Params = {}
    for name, value in given.items():
        with contextlib.suppress(InputError):
            found |= check_hypervisor_params(KVM, {name: value}, of_instance=False, field="")
    return {**found, "user_shutdown": False}


def _disk(index: int, given: dict[str, Any]) -> DiskSpec:
    spec: DiskSpec = wire.convert(
        {
            "uuid": given["uuid"],
            "index": index,
            "size": given["size"],
            "template": given["dev_type"],
            "logical_id": _shared_id(given),
            "mode": given.get("mode") or "rw",
        },
        DiskSpec,
    )
    return spec


def _shared_id(given: dict[str, Any]) -> list[Any]:
    """Return the disk's name on every node; for a mirrored disk the port, because the identifier holds its secret."""
    words = list(given["logical_id"])
    return words[_PORT : _PORT + 1] if given["dev_type"] == _MIRRORED else words


def _nic(index: int, given: dict[str, Any]) -> NicSpec:
    params = given.get("nicparams") or {}
    spec: NicSpec = wire.convert(
        {
            "uuid": given["uuid"],
            "index": index,
            "mac": given["mac"],
            "ip": given.get("ip"),
            **{name: params[name] for name in ("mode", "link", "vlan") if params.get(name)},
        },
        NicSpec,
    )
    return spec


def _records(paths: Paths) -> Iterator[tuple[str, Record, GuestFiles]]:
    for files in all_guest_files(paths):
        record = files.read()
        if record is not None:
            yield record.instance.name, record, files
