"""`ganeti-takeover`: replaces upstream Ganeti on this node, or returns to it, while guests keep running.

Upstream's files in `/var/lib/ganeti` move into `original/` there as a whole, and return from there.
Each step is idempotent, so an interrupted command can be repeated.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ganeti.base.errors import (
    ErrorCode,
    GanetiError,
    HostError,
    InputError,
    PrereqError,
    StoreError,
)
from ganeti.base.files import read_at_most, sync_directory, write_atomically
from ganeti.base.node_files import Lifetime, existing
from ganeti.base.paths import Paths, hostname
from ganeti.base.process import run
from ganeti.base.process_table import ProcessId
from ganeti.base.terminal import Parser, say
from ganeti.bootstrap.daemons import Daemons
from ganeti.bootstrap.destroy import forget_cluster, is_member, stop_daemons
from ganeti.hypervisor.abilities import AdoptsGuests
from ganeti.hypervisor.kvm.processes import HostProcesses
from ganeti.hypervisor.registry import hypervisors
from ganeti.model.hypervisors import HYPERVISORS
from ganeti.store.register import RegisterFile
from ganeti.upstream.forms import LARGEST, parse

NAMES = ("watcher", "rapi", "luxid", "masterd", "wconfd", "confd", "mond", "kvmd", "metad", "noded")
"""Upstream's daemons, in the order in which they are stopped."""
STOP_S = 30.0
LOOK_S = 0.05
CONFIG, CLUSTER_FILE, MASTER_FILE = "config.data", "ssconf_cluster_name", "ssconf_master_node"


@dataclass
class Node:
    """A node of a cluster that is taken over or returned."""

    paths: Paths
    is_dry: bool = False
    processes: HostProcesses = field(default_factory=HostProcesses)

    @property
    def aside(self) -> Path:
        """Return the directory of upstream's files while this implementation runs."""
        return self.paths.upstream

    @property
    def _returning(self) -> Path:
        """Return the marker that exists while upstream's files move back.

        Then no file of this implementation is left to remove.
        """
        return self.aside / ".returning"

    @property
    def original_directory(self) -> Path:
        """Return the present directory of upstream's files."""
        return self.aside if (self.aside / CLUSTER_FILE).exists() else self.paths.data

    @property
    def is_original(self) -> bool:
        """Return whether the node's files belong to a cluster of upstream."""
        return not is_member(self.paths) and (self.original_directory / CLUSTER_FILE).exists()

    def _is_master(self) -> bool:
        return _line(self.original_directory / MASTER_FILE) == hostname()

    async def take(self) -> list[str]:
        """Replace upstream by this implementation; return what to do next.

        PrereqError if upstream is not here or this implementation is; HostError if a daemon does not stop or a guest
        cannot be adopted: then upstream's files are still in their place.
        """
        if is_member(self.paths):
            raise PrereqError(
                "this node is already in a cluster of this implementation", ErrorCode.WRONG_STATE
            )
        original = self.original_directory
        if not (original / CLUSTER_FILE).exists():
            raise PrereqError(
                f"this node is not in a cluster of upstream Ganeti: {original / CLUSTER_FILE} does not exist",
                ErrorCode.WRONG_STATE,
            )
        found = self.running()
        said = [f"ends {', '.join(f'ganeti-{name}' for name in found) or 'no daemon'}"]
        if self.is_dry:
            return [
                *said,
                f"moves what is in {self.paths.data} to {self.aside}",
                *self._next(),
            ]
        for name in found:
            await self.end(name)
        adopted, unknown = await asyncio.to_thread(self._adopt)
        said.append(f"keeps running the guests {', '.join(sorted(adopted)) or '(none)'}")
        if unknown:
            said.append(
                f"not known here, because this is not a master candidate: {', '.join(unknown)}; "
                "start these instances again"
            )
        self._move_away()
        return [*said, *self._next()]

    def _adopting(self) -> list[AdoptsGuests]:
        """Return the adopters of guests.

        A hypervisor that only pretends comes last, because it never fails.
        """
        drivers = hypervisors(self.paths, run)
        found = [drivers[name].options.adoption for name in HYPERVISORS if name in drivers]
        return [one for one in found if one is not None]

    def _adopt(self) -> tuple[list[str], list[str]]:
        """Adopt the guests of upstream; return their names, and names of guests unknown here. HostError."""
        adopted: list[str] = []
        unknown: list[str] = []
        tried: list[AdoptsGuests] = []
        for one in self._adopting():
            tried.append(one)
            done = one.adopt(self._uuids())
            if done.problems:
                for again in tried:
                    again.give_back()
                raise HostError(
                    f"guests cannot be adopted: {'; '.join(done.problems)}; nothing was moved, "
                    "and upstream's daemons can be started again"
                )
            adopted += done.adopted
            unknown += done.unknown
        return adopted, unknown

    async def give_back(self, config: bytes | None) -> list[str]:
        """Return to upstream; return what to do next.

        PrereqError if upstream's files are not here, or guests run that upstream did not start and could not find.
        """
        if not (self.aside / CLUSTER_FILE).exists():
            raise PrereqError(
                f"{self.aside} has no files of upstream Ganeti", ErrorCode.WRONG_STATE
            )
        if guests := sorted(name for one in self._adopting() for name in one.hidden_guests()):
            raise PrereqError(
                f"upstream Ganeti cannot find guests that it did not start: {', '.join(guests)}; stop"
                " them, or migrate them away, and start them afterwards",
                ErrorCode.WRONG_STATE,
            )
        self._check_free()
        if self.is_dry:
            return [
                f"moves what is in {self.aside} back to {self.paths.data}",
                *self._said_of_config(config),
            ]
        if not self._returning.exists():
            await stop_daemons(Daemons(self.paths))
            self._number_jobs()
            for one in self._adopting():
                one.give_back()
            forget_cluster(self.paths)
            # From here on a file may be upstream's, although this implementation uses the same name.
            write_atomically(self._returning, b"")
        self._move_back(config)
        next_step = (
            "upstream's files are restored: start its daemons, and on the master run "
            "'gnt-cluster redist-conf' and 'gnt-cluster verify'"
        )
        return [*self._said_of_config(config), *self._said_of_copies(), next_step]

    def _staying(self) -> set[Path]:
        """Return the entries of the data directory that are not upstream's."""
        lasting = (Lifetime.GUESTS, Lifetime.COPIES)
        return {path for lifetime in lasting for path in existing(self.paths, lifetime)}

    def _originals(self) -> list[Path]:
        """Return upstream's entries to restore, in order."""
        found = [path for path in self.aside.iterdir() if path != self._returning]
        return sorted(found, key=_cluster_file_last)

    def _check_free(self) -> None:
        """Raise PrereqError if a file that stays has the name of one to restore."""
        leaving = [] if self._returning.exists() else existing(self.paths, Lifetime.CLUSTER)
        for entry in self._originals():
            target = self.paths.data / entry.name
            if os.path.lexists(target) and target not in leaving and not _is_empty(target):
                raise PrereqError(
                    f"{target} is in the way of {entry}: move one of them, and repeat the command",
                    ErrorCode.WRONG_STATE,
                )

    def _number_jobs(self) -> None:
        """Continue upstream's job ids above those of this implementation, because filters may name ids."""
        try:
            register = RegisterFile(self.paths.register).read()
        except StoreError:
            return  # damaged: nothing is known here, and another candidate's may be intact
        serial = self.aside / "queue" / "serial"
        theirs = _line(serial)
        if register and theirs.isdecimal() and int(theirs) < register.job_id_ceiling:
            text = f"{register.job_id_ceiling}\n".encode()
            write_atomically(serial, text, mode=serial.stat().st_mode & 0o777)

    def _said_of_config(self, config: bytes | None) -> list[str]:
        if config is not None or not (self.original_directory / CONFIG).exists():
            return []
        old = f"{CONFIG} is as of the takeover: it lacks all later changes"
        return [
            f"{old} (to keep later changes, pass a file from 'gnt-cluster export' with --config)"
        ]

    def _said_of_copies(self) -> list[str]:
        pattern = self.paths.left_clusters
        copies = sorted(str(path) for path in pattern.parent.glob(pattern.name))
        if not copies:
            return []
        return [
            f"copies that node-cleanup made hold keys of former clusters; remove them: {' '.join(copies)}"
        ]

    def _uuids(self) -> dict[str, str]:
        """Return name -> UUID of each instance, if this node has upstream's configuration."""
        try:
            document = parse((self.original_directory / CONFIG).read_bytes())
        except (OSError, InputError):
            return {}
        return {one.get("name", ""): uuid for uuid, one in document.get("instances", {}).items()}

    def _next(self) -> list[str]:
        if self._is_master():
            path = self.aside / CONFIG
            return [f"next, here: gnt-cluster import --dry-run {path}, then without --dry-run"]
        name = hostname()
        return [f"next: ganeti-node-join here, and on the master 'gnt-node add --readd {name}'"]

    def running(self) -> list[str]:
        """Return upstream's daemons that run here, in the order in which they are stopped."""
        return [name for name in NAMES if self._process(name) is not None]

    def _process(self, name: str) -> ProcessId | None:
        """Return upstream's daemon of a pid file, if it runs."""
        pid = _line(self.paths.run / f"ganeti-{name}.pid").partition(" ")[0]
        if not pid.isdecimal():
            return None
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
        except (FileNotFoundError, ProcessLookupError):
            return None
        if not any(f"ganeti-{name}" in os.fsdecode(word) for word in words[:3]):
            return None
        found = self.processes.find([os.fsdecode(word) for word in words])
        # Forked children have the same command line; the pid file's process counts.
        return (
            ProcessId(int(pid), found.start_ticks) if found and found.pid == int(pid) else _of(pid)
        )

    async def end(self, name: str) -> None:
        """Stop one of upstream's daemons, by force if needed; HostError."""
        process = self._process(name)
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                return
            if await self.processes.ended_within(process, STOP_S):
                return
        raise HostError(f"ganeti-{name} (process {process.pid}) does not stop")

    def _move_away(self) -> None:
        if self.original_directory != self.aside:
            self.aside.mkdir(mode=0o700, exist_ok=True)
            staying = self._staying()
            for entry in sorted(self.paths.data.iterdir(), key=_cluster_file_last):
                if entry not in staying:
                    entry.rename(self.aside / entry.name)
            self._returning.unlink(missing_ok=True)
            sync_directory(self.aside)
            sync_directory(self.paths.data)
        # A group of upstream may write there, and this implementation stores no key in such a
        # directory.
        os.chown(self.paths.data, os.geteuid(), os.getegid())
        self.paths.data.chmod(0o750)

    def _move_back(self, config: bytes | None) -> None:
        if config is not None:
            write_atomically(self.aside / CONFIG, config, mode=0o640)
        for entry in self._originals():
            target = self.paths.data / entry.name
            if _is_empty(target):
                target.rmdir()
            entry.rename(target)
        self._returning.unlink()
        self.aside.rmdir()
        sync_directory(self.paths.data)


def _of(pid: str) -> ProcessId | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return ProcessId(int(pid), int(fields[19]))


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def _cluster_file_last(path: Path) -> tuple[bool, str]:
    """Sort the file that marks a node of upstream last, so it is the last to move."""
    return path.name == CLUSTER_FILE, path.name


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `ganeti-takeover`."""
    args = _parser().parse_args(argv)
    node = Node(Paths.from_environment(), is_dry=args.dry_run)
    try:
        config = _given_config(args, node.aside / CONFIG)
        lines = asyncio.run(node.give_back(config) if args.back else node.take())
    except GanetiError as err:
        say(f"Failure: {err.message}", file=sys.stderr)
        return err.exit_code
    except OSError as err:
        say(f"Failure: {err.filename}: {err.strerror}", file=sys.stderr)
        return 1
    for line in lines:
        say(line)
    return 0


def _given_config(args: argparse.Namespace, old: Path) -> bytes | None:
    """Return the configuration for upstream.

    InputError if upstream could not open it, or it is another cluster's.
    """
    if args.config is None:
        return None
    if not args.back:
        raise InputError("can be used only with --back", "--config")
    data = read_at_most(args.config, LARGEST)
    new = parse(data)["cluster"].get("uuid")
    if old.exists() and (was := parse(old.read_bytes())["cluster"].get("uuid")) != new:
        raise InputError(
            (
                f"belongs to another cluster ({new}, not {was}): pass a file that 'gnt-cluster "
                "export' wrote here"
            ),
            "--config",
        )
    return data


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ganeti-takeover",
        description="Replace upstream Ganeti by this implementation on this node, or return to it. Guests keep running.",
    )
    parser.add_argument("--back", action="store_true", help="return the node to upstream Ganeti")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="with --back: a file from 'gnt-cluster export' that replaces the old config.data",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the actions without doing them"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
