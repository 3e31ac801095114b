"""Virtual clusters for tests: made and ended by `ganeti-vcluster`, used through the real commands."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.node_files import unexplained
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import Daemons
from ganeti.clients.luxi import LuxiClient
from ganeti.store.election import TARGET_SIZE
from ganeti.store.register import RegisterFile
from ganeti.vcluster import layout
from ganeti.vcluster.layout import VirtualCluster, VirtualNode, load
from tests.support.fast_files import DISK
from tests.support.patience import patience, ran
from tests.support.role_table import check_roles

VCLUSTER = Path(sys.executable).parent / "ganeti-vcluster"
NOOP = "noop"
_OF_DAEMONS = ("var/lib/ganeti", "var/log/ganeti", "var/run/ganeti", "var/cache/ganeti")
SETTLE_S = 15.0
"""How long the last operation of a test may take to reach all nodes."""
_CREATE = """#!/bin/sh
set -eu
printf '%s\\n' "$INSTANCE_NAME begins" >>"$OSP_RECORD"
sleep "${OSP_SLEEP:-0}"
printf '%s\\n' "$INSTANCE_NAME ends" >>"$OSP_RECORD"
[ "${OSP_FAIL:-no}" = no ] || { echo "told to fail" >&2; exit 3; }
"""
_PARAMETERS = "record where to note each run\nsleep seconds to take\nfail yes or no\n"


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class LocalCluster:
    """A running virtual cluster."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster

    @property
    def directory(self) -> Path:
        return self.cluster.directory_path

    @property
    def record(self) -> Path:
        """Where OS `noop` notes each of its runs."""
        return self.directory / "os-runs"

    def node(self, number: int) -> VirtualNode:
        """Node 1 is the master."""
        return self.cluster.nodes[number - 1]

    def environment(self, number: int) -> dict[str, str]:
        """What a command or a daemon of a node runs with."""
        return self.node(number).environment()

    def run(
        self, *argv: str, node: int = 1, stdin: str | None = None, timeout_s: float = 300
    ) -> Done:
        """Run a command as an administrator on a node would."""
        words = self.node(node).words([*argv])
        done = ran(words, limit_s=timeout_s, given=stdin, env=self.environment(node))
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *argv: str, timeout_s: float = 300) -> Done:
        """Run a command that must succeed."""
        done = self.run(*argv, timeout_s=timeout_s)
        assert done.status == 0, f"{argv} ended with {done.status}:\n{done.out}{done.err}"
        return done

    def fails(self, *argv: str, status: int = 1) -> str:
        """Run a command that must fail in order: no traceback; what it says on standard error."""
        done = self.run(*argv)
        assert done.status == status, f"{argv} ended with {done.status}:\n{done.out}{done.err}"
        assert "Traceback" not in done.err
        assert "internal error" not in done.err
        return done.err

    @contextlib.contextmanager
    def in_background(self, *argv: str, node: int = 1) -> Iterator["subprocess.Popen[str]"]:
        """A command that runs beside the test, and is ended with it."""
        with subprocess.Popen(
            self.node(node).words([*argv]),
            env=self.environment(node),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def value(self, kind: str, name: str, field: str) -> str:
        """One field of one object, as `gnt-KIND list` shows it."""
        done = self.ok(f"gnt-{kind}", "list", "--no-headers", "-o", field, name)
        return done.out.strip()

    def names(self, kind: str) -> set[str]:
        """The names of all instances or nodes."""
        return set(self.ok(f"gnt-{kind}", "list", "--no-headers", "-o", "name").lines)

    def luxi(self) -> LuxiClient:
        """A connection to the master."""
        return LuxiClient(Paths(Path(self.cluster.master.root)))

    def pid(self, daemon: str, node: int = 1) -> int:
        """The process of a daemon that serves."""
        process = self._daemons(node).status(daemon).process
        assert process is not None, f"{daemon} of node {node} does not run"
        return process.pid

    def runs(self, daemon: str, node: int = 1) -> bool:
        """Whether a daemon serves."""
        return self._daemons(node).status(daemon).process is not None

    def kill(self, daemon: str, node: int = 1) -> None:
        """kill -9, and wait until the process is gone."""
        pid = self.pid(daemon, node)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not _lives(pid), f"process {pid} is gone")

    def start(self, daemon: str, node: int = 1) -> int:
        """Start a daemon; its process, once it serves."""
        return asyncio.run(self._daemons(node).start(daemon)).pid

    def stop(self, daemon: str, node: int = 1) -> None:
        """End a daemon in order."""
        asyncio.run(self._daemons(node).stop(daemon))

    def check_roles(self) -> None:
        """Fail where a node holds or runs what its role does not allow."""
        check_roles(self.cluster.nodes, SETTLE_S * patience())

    def master_log(self) -> str:
        return (self.cluster.master.paths.log / "master-daemon.log").read_text(errors="replace")

    def processes(self) -> dict[int, str]:
        """All processes that belong to this cluster: pid -> command."""
        return processes_of(self.directory)

    def machines(self) -> dict[int, str]:
        """The QEMU processes of guests; node daemons run others, to learn what QEMU can do here."""
        return {pid: words for pid, words in self.processes().items() if "-name guest=" in words}

    def disks(self) -> set[Path]:
        """All files below the nodes' file storage and the shared one."""
        places = [self.cluster.shared_directory]
        places += [node.paths.below("/srv/ganeti/file-storage") for node in self.cluster.nodes]
        return {path for place in places for path in place.rglob("*") if path.is_file()}

    def install_noop(self) -> None:
        """Give all nodes the OS definition `noop`, which only notes that it ran."""
        for node in self.cluster.nodes:
            directory = node.paths.os_search_path[0] / NOOP
            directory.mkdir(parents=True)
            (directory / "ganeti_api_version").write_text("20\n")
            (directory / "parameters.list").write_text(_PARAMETERS)
            for name, text in (("create", _CREATE), ("verify", "#!/bin/sh\nexit 0\n")):
                (directory / name).write_text(text)
                (directory / name).chmod(0o755)

    def noop_options(self, **osparams: str) -> list[str]:
        """Options of `gnt-instance add` for an instance with a small disk and OS `noop`."""
        params = ",".join(
            f"{name}={value}" for name, value in {"record": str(self.record), **osparams}.items()
        )
        return ["-t", "file", "--disk", "0:size=1m", "-o", NOOP, "-O", params,
                "-B", "memory=16m", "--no-nics"]  # fmt: skip

    def _daemons(self, node: int) -> Daemons:
        return Daemons(self.node(node).paths, environment=self.environment(node))


@contextlib.contextmanager
def short_directory() -> Iterator[Path]:
    """A directory whose unix sockets have short enough paths; removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="gnt-", dir=DISK))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def local_cluster(*options: str, nodes: int = 3) -> Iterator[LocalCluster]:
    """A new cluster, by default with the fake hypervisor; nothing of it is left afterwards.

    The sync set is whole: in the first moments a loss of the master is one of the state, too.
    """
    with short_directory() as parent:
        directory = parent / "c"
        try:
            vcluster(directory, "up", "--no-image", "--nodes", str(nodes), *options)
            made = load(directory)
            assert made is not None
            cluster = LocalCluster(made)
            if made.master.paths.state.exists():
                all_in_sync_set(cluster, min(_count_of_candidates(cluster), TARGET_SIZE))
            yield cluster
            cluster.check_roles()
            check_written(made)
        finally:
            try:
                vcluster(directory, "down")
            finally:
                for pid in processes_of(
                    directory
                ):  # only if `down` has failed, and the test with it
                    os.kill(pid, signal.SIGKILL)


def _count_of_candidates(cluster: LocalCluster) -> int:
    with cluster.luxi() as client:
        return sum(row[0] for row in client.call("QueryNodes", [], ["master_candidate"], False))


def all_in_sync_set(cluster: LocalCluster, count: int, node: int = 1) -> None:
    """Wait until the last registered sync set has as many members as that."""

    def is_so() -> bool:
        register = RegisterFile(cluster.node(node).paths.register).read()
        accepted = register.accepted if register else None
        return accepted is not None and len(accepted.sync_set) == count

    wait_until(is_so, f"{count} members in the sync set", 60)


def check_written(cluster: VirtualCluster) -> None:
    """Fail if a node has a file that the list of what is written does not have (`base.node_files`)."""
    for node in cluster.local_nodes:
        assert unexplained(node.paths) == []
        # What is not below the directories of the list is a package's, or an administrator's.
        beside = ("etc", "srv", "usr", "proc", "root", "sshd", *_OF_DAEMONS)
        root = Path(node.root)
        # The daemons still run, and a directory may vanish meanwhile, which ends `rglob` and not `walk`.
        for parent, directories, files in os.walk(root):
            for path in (Path(parent, name) for name in (*directories, *files)):
                inside = str(path.relative_to(root))
                assert any(
                    f"{inside}/".startswith(f"{one}/") or f"{one}/".startswith(f"{inside}/")
                    for one in beside
                ), f"{path} is not in the list of what is written on a node"


def vcluster_words(directory: Path) -> list[str]:
    """`ganeti-vcluster`, from where the nodes have their commands."""
    program = shutil.which(VCLUSTER.name, path=layout.PROGRAMS)
    assert program is not None
    return [program, "--dir", str(directory)]


def vcluster(directory: Path, *words: str) -> str:
    """Run `ganeti-vcluster`; what it says."""
    command = [*vcluster_words(directory), *words]
    done = ran(command, limit_s=600, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def processes_of(directory: Path) -> dict[int, str]:
    """Processes whose environment or words name something below `directory`; pid -> command."""
    needle = f"{directory}/".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes()
            if needle in words or needle in (entry / "environ").read_bytes():
                found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


def wait_until(is_so: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Return when it is so; fails if that takes too long. To ask takes at most half of the time."""
    begun = time.monotonic()
    while asked := time.monotonic():
        if is_so():
            return
        limit_s = timeout_s * patience()
        assert time.monotonic() - begun < limit_s, f"not within {limit_s:g} s: {what}"
        time.sleep(max(0.05, time.monotonic() - asked))


def _lives(pid: int) -> bool:
    """Whether a thread of it still runs: until the last one has ended, its files are locked."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in ("Z", "X") or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False
