"""Read the facts of this host from /proc, /sys and a few programs.

A fact that cannot be read has its empty value or a text that says why: an examination never fails because of one
fact. Nothing here changes the host.
"""

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from ganeti.base.errors import HostError
from ganeti.base.paths import HOSTNAME_VARIABLE, Paths, hostname
from ganeti.base.process import CLEAN_ENVIRONMENT, Run, run
from ganeti.doctor.kernel import is_clock_synchronised, kvm_problem
from ganeti.model.host_facts import HostFacts, HostQuestion, Link, Space

TIME_SERVICES = ("chronyd", "ntpd", "systemd-timesyn", "openntpd", "ptp4l", "phc2sys")
"""Names of processes, which the kernel cuts to 15 characters."""
DEFAULT_QEMU = "qemu-system-x86_64"
UNITS = (
    *("ganeti-noded.service", "ganeti-masterd.service", "ganeti-confd.service", "ganeti-mond.service"),
    *("ganeti-rapi.service", "ganeti-watcher.timer"),
)  # fmt: skip

T = TypeVar("T")

_MIB = 1024 * 1024
_PROGRAM_S = 10.0
_LISTEN = "0A"
"""A listening socket's state in /proc/net/tcp."""
_LOOPBACK = ("7F", "00000000000000000000000001000000")
"""The ends of the kernel's hexadecimal 127.x.x.x and ::1, on which a daemon of a real cluster never listens."""


def _resolve(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _find(program: str) -> str | None:
    return shutil.which(program, path=CLEAN_ENVIRONMENT["PATH"])


@dataclass(frozen=True)
class Sources:
    """Sources of the facts; tests replace them."""

    root: Path = Path("/")
    run: Run = run
    name: Callable[[], str] = hostname
    is_virtual: bool = field(default_factory=lambda: HOSTNAME_VARIABLE in os.environ)
    resolve: Callable[[str], list[str]] = _resolve
    find: Callable[[str], str | None] = _find
    clock: Callable[[], bool | None] = is_clock_synchronised
    kvm: Callable[[Path], str] = kvm_problem
    space: Callable[[Path], tuple[int, int]] = field(
        default=lambda path: (shutil.disk_usage(path)[0], shutil.disk_usage(path)[2])
    )

    def text(self, path: str) -> str:
        """Return a file's content, or '' if it cannot be read."""
        with contextlib.suppress(OSError):
            return (self.root / path).read_text("utf-8", "replace")
        return ""

    def number(self, path: str) -> int:
        """Return the number in a file, or 0."""
        word = self.text(path).strip()
        return int(word) if word.isdecimal() else 0

    async def output(self, *words: str) -> str:
        """Return what a program prints; raise HostError if it fails."""
        done = await self.run(words, timeout_s=_PROGRAM_S)
        return done.stdout.decode(errors="replace")


def of_node(question: HostQuestion, paths: Paths) -> HostQuestion:
    """Return the question with the directories of a node's daemons, and all directories as this node has them."""
    of_cluster = (str(paths.below(one)) for one in question.directories)
    return msgspec.structs.replace(
        question, directories=tuple(dict.fromkeys((str(paths.data), str(paths.log), *of_cluster)))
    )


async def host_facts(question: HostQuestion, sources: Sources | None = None) -> HostFacts:
    """Return the facts of this host that a cluster's question asks for."""
    return await _Examination(question, sources or Sources()).facts()


@dataclass(frozen=True)
class _Examination:
    question: HostQuestion
    sources: Sources

    async def facts(self) -> HostFacts:
        """Read everything; slow questions run in threads or programs beside each other."""
        sources, question = self.sources, self.question
        name = sources.name()
        no_groups: dict[str, int] = {}
        addresses, spaces, qemu, groups, drbd, units = await asyncio.gather(
            asyncio.to_thread(self._addresses, name),
            asyncio.to_thread(self._spaces),
            _or_problem(self._qemu, "") if question.runs_kvm else _nothing(""),
            _or_problem(self._volume_groups, no_groups)
            if question.volume_group
            else _nothing(no_groups),
            _or_problem(self._drbd, "") if question.uses_drbd else _nothing(""),
            self._disabled_units(),
        )
        model, flags, cpus = self._processors()
        return HostFacts(
            name=name,
            name_addresses=addresses,
            system=self._system(),
            kernel=sources.text("proc/sys/kernel/osrelease").strip(),
            memory_mib=self._memory_mib(),
            cpus=cpus,
            cpu_model=model,
            cpu_flags=flags,
            uncorrected_memory_errors=sum(self._memory_errors()),
            degraded_raids=tuple(degraded_raids(sources.text("proc/mdstat"))),
            is_clock_synchronised=sources.clock(),
            time_service=self._time_service(),
            filters_bridges=sources.number("proc/sys/net/bridge/bridge-nf-call-iptables") > 0,
            links=dict(self._links()),
            spaces=spaces,
            ports_in_use=tuple(sorted(set(self._listening()) & set(question.ports))),
            kvm_problem=await asyncio.to_thread(sources.kvm, sources.root / "dev/kvm")
            if question.runs_kvm
            else "",
            qemu_version=qemu[0],
            qemu_problem=qemu[1],
            has_tun=(sources.root / "dev/net/tun").exists(),
            has_vhost_net=(sources.root / "dev/vhost-net").exists(),
            volume_groups=groups[0],
            lvm_problem=groups[1],
            drbd_version=drbd[0],
            drbd_problem=drbd[1],
            has_systemd=(sources.root / "run/systemd/system").is_dir(),
            disabled_units=units,
        )

    def _addresses(self, name: str) -> tuple[str, ...] | None:
        return None if self.sources.is_virtual else tuple(self.sources.resolve(name))

    def _system(self) -> str:
        for line in self.sources.text("etc/os-release").splitlines():
            key, _, value = line.partition("=")
            if key == "PRETTY_NAME":
                return value.strip().strip('"')
        return ""

    def _memory_mib(self) -> int:
        for line in self.sources.text("proc/meminfo").splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) // 1024
        return 0

    def _processors(self) -> tuple[str, tuple[str, ...], int]:
        """Return model, flags and number."""
        model, flags, count = "", "", 0
        for line in self.sources.text("proc/cpuinfo").splitlines():
            key, _, value = (part.strip() for part in line.partition(":"))
            count += key == "processor"
            if key == "model name":
                model = value
            elif key == "flags":
                flags = value
        return model, tuple(sorted(flags.split())), count

    def _memory_errors(self) -> Iterator[int]:
        for controller in sorted((self.sources.root / "sys/devices/system/edac/mc").glob("mc*")):
            yield self.sources.number(f"sys/devices/system/edac/mc/{controller.name}/ue_count")

    def _time_service(self) -> str:
        for process in (self.sources.root / "proc").glob("[0-9]*"):
            name = self.sources.text(f"proc/{process.name}/comm").strip()
            if name in TIME_SERVICES:
                return "systemd-timesyncd" if name == "systemd-timesyn" else name
        return ""

    def _links(self) -> Iterator[tuple[str, Link]]:
        for name in self.question.links:
            place = self.sources.root / "sys/class/net" / name
            if place.is_dir():
                # The first bit of the flags is IFF_UP.
                flags = self.sources.text(f"sys/class/net/{name}/flags").strip() or "0"
                yield (
                    name,
                    Link(
                        is_bridge=(place / "bridge").is_dir()
                        or "openvswitch" in self.sources.text(f"sys/class/net/{name}/uevent"),
                        is_up=bool(int(flags, 16) & 1),
                        mtu=self.sources.number(f"sys/class/net/{name}/mtu"),
                    ),
                )

    def _spaces(self) -> dict[str, Space]:
        kinds = {
            words[1]: words[2]
            for line in self.sources.text("proc/mounts").splitlines()
            if (words := line.split())
        }
        found = {}
        for directory in self.question.directories:
            path = Path(directory)
            while not path.exists() and path != path.parent:
                path = path.parent
            with contextlib.suppress(OSError):
                total, free = self.sources.space(path)
                mount = next((str(one) for one in (path, *path.parents) if str(one) in kinds), "")
                found[directory] = Space(
                    total=total // _MIB,
                    free=free // _MIB,
                    kind=kinds.get(mount, ""),
                    exists=str(path) == directory,
                )
        return found

    def _listening(self) -> Iterator[int]:
        for table in ("tcp", "tcp6"):
            for line in self.sources.text(f"proc/net/{table}").splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                address, _, port = local.rpartition(":")
                if state == _LISTEN and not address.endswith(_LOOPBACK):
                    yield int(port, 16)

    async def _qemu(self) -> str:
        wanted = self.question.kvm_path or DEFAULT_QEMU
        program = self.sources.find(wanted)
        if program is None:
            raise HostError(f"the program {wanted} does not exist")
        first = (await self.sources.output(program, "-version")).partition("\n")[0]
        return first.removeprefix("QEMU emulator version ").strip()

    async def _volume_groups(self) -> dict[str, int]:
        if self.sources.find("vgs") is None:
            raise HostError("the program vgs does not exist")
        text = await self.sources.output(
            *("vgs", "--noheadings", "--nosuffix", "--units", "m", "--separator", "|"),
            *("-o", "vg_name,vg_free"),
        )
        rows = (line.strip().split("|") for line in text.splitlines() if "|" in line)
        return {row[0]: int(float(row[1])) for row in rows}

    async def _drbd(self) -> str:
        if self.sources.find("drbdsetup") is None:
            raise HostError("the program drbdsetup does not exist")
        version = self.sources.text("sys/module/drbd/version").strip()
        if not version:
            raise HostError("the kernel module drbd is not loaded")
        return version

    async def _disabled_units(self) -> tuple[str, ...]:
        """Return the installed units that do not start with the host."""
        if not (self.sources.root / "run/systemd/system").is_dir():
            return ()
        try:
            done = await self.sources.run(
                ("systemctl", "is-enabled", *UNITS), timeout_s=_PROGRAM_S, check=False
            )
        except HostError:
            return ()
        states = done.stdout.decode(errors="replace").split()
        if len(states) != len(UNITS):
            return ()  # Some are not installed: an installation from a checkout, or none.
        return tuple(unit for unit, state in zip(UNITS, states, strict=True) if state == "disabled")


async def _nothing(value: T) -> tuple[T, str]:
    return value, ""


async def _or_problem(read: Callable[[], Awaitable[T]], empty: T) -> tuple[T, str]:
    """Return the fact and '', or the empty value and why the fact is missing."""
    try:
        return await read(), ""
    except HostError as err:
        return empty, str(err)
    except (OSError, ValueError, LookupError) as err:
        return empty, f"its answer cannot be read: {err}"


def degraded_raids(mdstat: str) -> Iterator[str]:
    """Yield the software RAIDs that have lost a device, from the content of /proc/mdstat."""
    name = ""
    for line in mdstat.splitlines():
        words = line.split()
        if len(words) > 1 and words[1] == ":" and words[0].startswith("md"):
            name = words[0]
        elif name and words and words[-1].startswith("[") and "_" in words[-1]:
            yield name
            name = ""
