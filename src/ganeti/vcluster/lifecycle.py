"""Creation and removal of a cluster on one machine, by the commands that an administrator would use."""

import asyncio
import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ganeti.vcluster.node_machines import NodeMachine

from ganeti.base.errors import (
    ConfigurationError,
    ErrorCode,
    ExecError,
    GanetiError,
    PrereqError,
)
from ganeti.base.paths import Paths
from ganeti.base.state_kinds import EMBEDDED, state_servers
from ganeti.bootstrap.daemons import (
    CONFD,
    GUARD,
    MASTERD,
    MOND,
    NODED,
    RAPI,
    STATE_DAEMONS,
    Daemons,
)
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.hypervisors import HYPERVISORS
from ganeti.ssconf import SimpleStore
from ganeti.vcluster import network
from ganeti.vcluster.layout import (
    VOLUME_GROUP,
    VirtualCluster,
    VirtualNode,
    load,
)
from ganeti.vcluster.leftovers import Say, end_commands, end_guests, end_tasks

POWER_PROGRAM = "/usr/local/sbin/vcluster-power"
"""The out-of-band program of each node, below its root."""
DOWN = "down"
MACHINE = "machine"
"""Stands for a daemon in the status of a node that is a virtual machine."""
START_ORDER = (NODED, *STATE_DAEMONS, MASTERD, CONFD, MOND)
JOIN_WAIT_S = 60.0
LOG_LINES = 15
TOKEN_LENGTH = 100
"""The length of the token: no other word in the output of ganeti-node-join is as long."""


@dataclass(frozen=True)
class Commands:
    """Runs commands as a node of the cluster, and prints each as an administrator would type it."""

    cluster: VirtualCluster
    say: Say

    def run(self, node: VirtualNode, argv: Sequence[str], *, stdin: str | None = None) -> None:
        """Run a command with its output shown; ExecError if it fails."""
        self.say(f"\n{node.name.partition('.')[0]}# {shlex.join(argv)}")
        sys.stdout.flush()
        done = subprocess.run(
            node.words([*argv]),
            env=node.environment(),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ExecError(f"{shlex.join(argv)} ended with status {done.returncode}")

    def output(self, node: VirtualNode, argv: Sequence[str]) -> str:
        """Return the output of a command; raise ExecError with its error output."""
        done = subprocess.run(
            node.words([*argv]),
            env=node.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ExecError(
                f"{shlex.join(argv)} ended with status {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout


@contextlib.contextmanager
def at_work(directory: Path) -> Iterator[None]:
    """Make the directory of a cluster, with an exclusive lock; PrereqError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as err:
        raise PrereqError(f"{directory}: {err.strerror}", ErrorCode.ENVIRONMENT) from err
    try:
        if os.fstat(opened).st_uid != os.geteuid():
            raise PrereqError(
                f"{directory} belongs to another user; choose another one with --dir",
                ErrorCode.ENVIRONMENT,
            )
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PrereqError(
                f"another process is creating or ending the cluster in {directory}",
                ErrorCode.TEMP_NO_RESOURCES,
            ) from None
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                directory.rmdir()  # it remains if it contains a cluster
    finally:
        os.close(opened)


def ensure(
    directory: Path,
    planned: Callable[[], VirtualCluster],
    say: Say,
    finish: Callable[[VirtualCluster], None] | None = None,
) -> tuple[VirtualCluster, bool]:
    """Return the running cluster in `directory`, and whether it was made now.

    A new one is `planned`, made, and passed to `finish`; after any failure nothing of it remains.
    """
    with at_work(directory):
        existing = load(directory)
        if existing is not None and existing.is_complete:
            start(existing, say)
            return existing, False
        if existing is not None:
            say(f"The creation of the cluster in {directory} was interrupted: removing its files.")
            _remove(existing, say)
        cluster = planned()
        try:
            up(cluster, say)
            if finish is not None:
                finish(cluster)
        except BaseException:
            say("\nThe creation failed. The last lines of the logs:")
            _show_logs(cluster, say)
            say("\nRemoving the incomplete cluster:")
            _remove(cluster, say)
            raise
        complete = msgspec.structs.replace(cluster, is_complete=True)
        complete.save()
        return complete, True


def end(directory: Path, say: Say) -> bool:
    """End and remove the cluster in `directory`; return False if there is none."""
    if load(directory) is None:
        return False
    with at_work(directory):
        cluster = load(directory)
        if cluster is None:
            return False
        _remove(cluster, say)
    return True


def _remove(cluster: VirtualCluster, say: Say) -> None:
    """End a cluster and any orphaned commands that are creating it."""
    if not cluster.is_complete:
        for node in cluster.local_nodes:
            end_commands(node.paths, node.name, say)
    down(cluster, say)


def up(cluster: VirtualCluster, say: Say) -> None:
    """Create the cluster and all its nodes; after a failure, `down` removes everything."""
    if cluster.bridge and os.geteuid() != 0:
        raise PrereqError(
            "--netns needs root; omit --netns to use loopback addresses", ErrorCode.ENVIRONMENT
        )
    cluster.directory_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    cluster.save()
    cluster.shared_directory.mkdir(mode=0o700, exist_ok=True)
    for node in cluster.local_nodes:
        _furnish(cluster, node)
    if cluster.bridge:
        _make_network(network.setup(cluster))
    cluster = _with_guest_bridge(cluster, say)
    commands = Commands(cluster, say)
    machines = start_machines(cluster, say)
    commands.run(cluster.master, init_command(cluster))
    for node in cluster.local_nodes[1:]:
        join(commands, node)
    for machine in machines:
        machine.furnish(VOLUME_GROUP)
        machine.join(commands)
    if cluster.has_monitoring:
        for node in cluster.local_nodes:
            _start(node, MOND, say)


def start_machines(cluster: VirtualCluster, say: Say) -> "list[NodeMachine]":
    """Switch on the machines that are off; all boot at once. ExecError, PrereqError."""
    if not cluster.machines:
        return []
    from ganeti.vcluster.machine_image import build_image
    from ganeti.vcluster.node_machines import node_machines

    found = node_machines(cluster)
    if any(one.machine.pid is None for one in found):
        say(
            "Booting the machines (the first time, Debian packages are fetched and an image is made)"
        )
        image = build_image(Path(cluster.guest), cluster.directory_path)
        for one in found:
            if one.machine.pid is None:
                one.machine.start(image)
    return found


def start(cluster: VirtualCluster, say: Say, only: VirtualNode | None = None) -> None:
    """Start the daemons that do not run, of a cluster or of one node; ExecError if that is not possible."""
    missing = [
        row for row in status(cluster) if row[2] == DOWN and (only is None or row[0] == only.name)
    ]
    if not missing:
        return
    if cluster.machines and all(daemon == MACHINE for _node, daemon, _down in missing):
        start_machines(cluster, say)
        return
    if cluster.bridge:
        raise ExecError(
            f"daemons of the cluster in {cluster.directory} do not run; remove it with"
            f" 'ganeti-vcluster --dir {cluster.directory} down' and create it again"
        )
    _try_all(network.guest_bridges(cluster))  # it does not survive a reboot
    nodes = {node.name: node for node in cluster.nodes}
    for node_name, name, _down in sorted(missing, key=lambda row: START_ORDER.index(row[1])):
        _start(nodes[node_name], name, say)


def _start(node: VirtualNode, name: str, say: Say) -> None:
    daemons = Daemons(node.paths, environment=node.environment())
    process = asyncio.run(daemons.start(name))
    say(f"started {name} of {node.name} (process {process.pid})")


def _with_guest_bridge(cluster: VirtualCluster, say: Say) -> VirtualCluster:
    """Return the cluster, without a bridge for its guests if none can be made."""
    try:
        _make_network(network.guest_bridges(cluster))
    except ExecError as err:
        say(f"Guests have no bridge, so instances need --no-nics or --net 0:link=…: {err.message}")
        return msgspec.structs.replace(cluster, guest_bridge="")
    return cluster


def _make_network(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True)
        except OSError as err:
            raise ExecError(f"{command[0]} cannot be run: {err.strerror}") from err
        if done.returncode:
            raise ExecError(
                f"cannot create the network: {shlex.join(command)}: {done.stderr.strip()}"
            )


def _try_all(commands: Sequence[Sequence[str]]) -> None:
    """Run commands, each of which may fail, also because this host has no such program."""
    for command in commands:
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)


def _show_logs(cluster: VirtualCluster, say: Say) -> None:
    for node in cluster.local_nodes:
        for log in sorted(node.paths.log.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            say("\n".join([f"--- {log}", *lines]))


def init_command(cluster: VirtualCluster) -> list[str]:
    """Return the command that creates the cluster on its first node."""
    words = [
        "gnt-cluster", "init",
        f"--enabled-hypervisors={cluster.hypervisor}",
        f"--shared-file-storage-dir={cluster.shared_directory}",
        "--file-storage-dir=/srv/ganeti/file-storage",
        "--default-iallocator=hail",
    ]  # fmt: skip
    if cluster.state != EMBEDDED:
        words.append(f"--state={cluster.state}")
    words += cluster.init_options
    if cluster.guest_bridge:
        words.append(f"--nic-parameters=link={cluster.guest_bridge}")
    if cluster.machines:
        words += [f"--vg-name={VOLUME_GROUP}", "--enabled-disk-templates=drbd,plain,diskless"]
    if cluster.guest and "kernel_path" in HYPERVISOR_PARAMS[cluster.hypervisor]:
        guest = Path(cluster.guest)
        params = {
            "kernel_path": guest / "vmlinuz",
            "initrd_path": guest / "initrd",
            "kernel_args": _kernel_args(guest),
        }
        given = ",".join(f"{name}={value}" for name, value in params.items())
        words.append(f"--hypervisor-parameters={cluster.hypervisor}:{given}")
    return [*words, cluster.name]


def _kernel_args(guest: Path) -> str:
    try:
        return (guest / "kernel-args").read_text().strip()
    except FileNotFoundError:
        raise PrereqError(
            f"{guest} lacks the kernel command line; build it again with guest/build.py",
            ErrorCode.ENVIRONMENT,
        ) from None


def join(commands: Commands, node: VirtualNode) -> None:
    """Add a node to the cluster by a token: it listens, the master calls."""
    listener = subprocess.Popen(
        node.words(["ganeti-node-join"]),
        env=node.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with listener:
        try:
            commands.say(f"\n{node.name.partition('.')[0]}# ganeti-node-join")
            token, said = _token(listener)
            if not token:
                raise ExecError(f"ganeti-node-join on {node.name} printed no token: {said.strip()}")
            add = ["gnt-node", "add", "--token-file=-", node.name]
            commands.run(commands.cluster.master, add, stdin=token + "\n")
            said += listener.communicate(timeout=JOIN_WAIT_S)[0]
        except subprocess.TimeoutExpired:
            raise ExecError(f"ganeti-node-join on {node.name} does not end") from None
        finally:
            if listener.poll() is None:
                listener.kill()
        if listener.returncode:
            raise ExecError(
                f"ganeti-node-join on {node.name} ended with status {listener.returncode}: {said.strip()}"
            )


def _token(listener: "subprocess.Popen[str]") -> tuple[str, str]:
    """Return the token that the listener prints, and all output before it."""
    said = ""
    for line in listener.stdout or ():
        word = line.strip()
        if len(word) > TOKEN_LENGTH and " " not in word:
            return word, said
        said += line
    return "", said


def _furnish(cluster: VirtualCluster, node: VirtualNode) -> None:
    """Give a node the files that a package or an administrator would install."""
    paths = node.paths
    for path in (
        paths.etc,
        paths.iallocator_search_path[0],
        paths.os_search_path[0],
        paths.log,
        paths.data,
    ):
        path.mkdir(parents=True, exist_ok=True)
    paths.below("/srv/ganeti/file-storage").mkdir(mode=0o700, parents=True, exist_ok=True)
    paths.file_storage_paths.write_text(f"/srv/ganeti/file-storage\n{cluster.shared_directory}\n")
    _install_power_program(cluster, paths)
    _link(paths.iallocator_search_path[0] / "hail", Path(sys.executable).parent / "hail")
    if HYPERVISORS[cluster.hypervisor].runs_guests:
        program = str(Path(sys.executable).parent / "ganeti-os-image")
        words = [program, "--install", str(paths.os_search_path[0] / "image"), str(paths.root)]
        subprocess.run(words, check=True, env=node.environment())
    if cluster.guest:
        tiny = paths.os_search_path[0] / "tiny"
        shutil.rmtree(tiny, ignore_errors=True)
        shutil.copytree(Path(cluster.guest) / "tiny", tiny)


def _install_power_program(cluster: VirtualCluster, paths: Paths) -> None:
    """Give a node the out-of-band program that switches the nodes of its cluster (`vcluster/power.py`)."""
    program = paths.below(POWER_PROGRAM)
    program.parent.mkdir(parents=True, exist_ok=True)
    command = Path(sys.executable).parent / "ganeti-vcluster"
    words = shlex.join([str(command), "--dir", cluster.directory, "power"])
    program.write_text(f'#!/bin/sh\nexec {words} "$1" "$2"\n')
    program.chmod(0o755)


def _link(link: Path, target: Path) -> None:
    with contextlib.suppress(FileExistsError):
        link.symlink_to(target)


def down(cluster: VirtualCluster, say: Say) -> None:
    """End the daemons and guests that belong to the cluster, and empty its directory."""
    problems = asyncio.run(_end_all(cluster, say))
    _try_all(network.teardown(cluster))
    if problems:
        raise ExecError(
            f"{'; '.join(problems)}; the files of the cluster in {cluster.directory} were kept"
        )
    for path in sorted(
        cluster.directory_path.iterdir(), key=lambda path: path == cluster.state_file
    ):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


async def _end_all(cluster: VirtualCluster, say: Say) -> list[str]:
    problems = []
    if cluster.machines:
        from ganeti.vcluster.node_machines import node_machines

        for one in node_machines(cluster):
            if pid := one.machine.pid:
                one.machine.cut_power()
                say(f"switched off {one.node.name} (process {pid})")
    # Node daemons before masters: a newly elected master would start the daemons of candidates.
    for name in (RAPI, MOND, NODED, CONFD, MASTERD, *STATE_DAEMONS, RAPI):
        for node in cluster.local_nodes:
            daemons = Daemons(node.paths, environment=node.environment())
            try:
                if process := daemons.status(name).process:
                    await daemons.stop(name)
                    say(f"ended {name} of {node.name} (process {process.pid})")
            except GanetiError as err:
                problems.append(str(err))
    for node in cluster.local_nodes:
        end_tasks(node.paths, node.name, say)
        problems += await end_guests(node, say)
        try:
            await Daemons(node.paths, environment=node.environment()).stop(GUARD)
        except GanetiError as err:
            problems.append(str(err))
    return problems


def _daemons_of(cluster: VirtualCluster, node: VirtualNode) -> list[str]:
    """Return the daemons that should run on a node."""
    names = [NODED]
    if node.paths.authority_key.exists():
        names.insert(0, MASTERD)
    names += [server.daemon for server in state_servers() if server.runs_here(node.paths)]
    keys = (node.paths.confd_key, node.paths.own_confd_key)
    if node.has_confd and any(key.exists() for key in keys):
        names.append(CONFD)
    if node.has_rest and _is_master(node):
        names.append(RAPI)
    if cluster.has_monitoring:
        names.append(MOND)
    return names


def _is_master(node: VirtualNode) -> bool:
    try:
        return SimpleStore(node.paths).GetMasterNode() == node.name
    except ConfigurationError:
        return False


def status(cluster: VirtualCluster) -> list[tuple[str, str, str]]:
    """Return (node, daemon, process or DOWN) of every daemon that should run."""
    rows = []
    for node in cluster.local_nodes:
        for name in _daemons_of(cluster, node):
            process = Daemons(node.paths, environment=node.environment()).status(name).process
            rows.append((node.name, name, str(process.pid) if process else DOWN))
    if cluster.machines:
        from ganeti.vcluster.node_machines import node_machines

        found = node_machines(cluster)
        rows += [(one.node.name, MACHINE, str(one.machine.pid or DOWN)) for one in found]
    return rows
