"""Making and ending a cluster on one machine, by the commands that an administrator would use."""

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, PrereqError
from ganeti.base.process import run
from ganeti.bootstrap.daemons import MASTERD, NODED, Daemons
from ganeti.hypervisor.registry import hypervisors
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures import RunningInstance
from ganeti.vcluster import network
from ganeti.vcluster.layout import CLUSTER_NAME, VirtualCluster, VirtualNode

JOIN_WAIT_S = 60.0
STOPPED_AT_ONCE_S = 0.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Commands:
    """Runs commands as a node of the cluster, showing each as an administrator would type it."""

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
        """What a command prints; ExecError with its errors if it fails."""
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


def up(cluster: VirtualCluster, say: Say) -> None:
    """Make the cluster and all its nodes; whatever fails, `down` removes what was made."""
    directory = Path(cluster.directory)
    if cluster.bridge and os.geteuid() != 0:
        raise PrereqError(
            "network namespaces need root; without --netns none is needed", ErrorCode.ENVIRONMENT
        )
    directory.mkdir(parents=True, exist_ok=True)
    cluster.save()
    cluster.shared_directory.mkdir(mode=0o700, exist_ok=True)
    for node in cluster.nodes:
        _furnish(cluster, node)
    if cluster.bridge:
        for command in network.setup(cluster):
            subprocess.run(command, check=True)
    commands = Commands(cluster, say)
    commands.run(cluster.master, init_command(cluster))
    for node in cluster.nodes[1:]:
        join(commands, node)


def init_command(cluster: VirtualCluster) -> list[str]:
    """The command that makes the cluster on its first node."""
    words = [
        "gnt-cluster", "init",
        f"--enabled-hypervisors={cluster.hypervisor}",
        f"--shared-file-storage-dir={cluster.shared_directory}",
        "--file-storage-dir=/srv/ganeti/file-storage",
        "--default-iallocator=hail",
    ]  # fmt: skip
    if cluster.guest:
        guest = Path(cluster.guest)
        words.append(
            f"--hypervisor-parameters=kvm:kernel_path={guest / 'vmlinuz'},initrd_path={guest / 'initrd'}"
        )
    return [*words, CLUSTER_NAME]


def join(commands: Commands, node: VirtualNode) -> None:
    """Take a node into the cluster by a token: it listens, the master calls."""
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
                raise ExecError(f"ganeti-node-join on {node.name} gave no token: {said.strip()}")
            add = ["gnt-node", "add", "--token-file=-", node.name]
            commands.run(commands.cluster.master, add, stdin=token + "\n")
            said += listener.communicate(timeout=JOIN_WAIT_S)[0]
        finally:
            if listener.poll() is None:
                listener.kill()
        if listener.returncode:
            raise ExecError(
                f"ganeti-node-join on {node.name} ended with status {listener.returncode}: {said.strip()}"
            )


def _token(listener: "subprocess.Popen[str]") -> tuple[str, str]:
    """The token that the listener prints, and everything that it said before it."""
    said = ""
    for line in listener.stdout or ():
        word = line.strip()
        if len(word) > 100 and " " not in word:  # noqa: PLR2004 - only a token is so long
            return word, said
        said += line
    return "", said


def _furnish(cluster: VirtualCluster, node: VirtualNode) -> None:
    """Give a node the files that a package or an administrator would."""
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
    _link(paths.iallocator_search_path[0] / "hail", Path(sys.executable).parent / "hail")
    if cluster.guest:
        tiny = paths.os_search_path[0] / "tiny"
        shutil.rmtree(tiny, ignore_errors=True)
        shutil.copytree(Path(cluster.guest) / "tiny", tiny)


def _link(link: Path, target: Path) -> None:
    with contextlib.suppress(FileExistsError):
        link.symlink_to(target)


def down(cluster: VirtualCluster, say: Say) -> None:
    """End the daemons and guests that belong to the cluster, and remove its directory."""
    problems = asyncio.run(_end_all(cluster, say))
    if cluster.bridge:
        for command in network.teardown(cluster):
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
    if problems:
        raise ExecError(
            f"{'; '.join(problems)}; the files of the cluster in {cluster.directory} were kept"
        )
    shutil.rmtree(cluster.directory)


async def _end_all(cluster: VirtualCluster, say: Say) -> list[str]:
    problems = []
    for name in (MASTERD, NODED):
        for node in cluster.nodes:
            daemons = Daemons(node.paths, environment=node.environment())
            try:
                if process := daemons.status(name).process:
                    await daemons.stop(name)
                    say(f"ended {name} of {node.name} (process {process.pid})")
            except GanetiError as err:
                problems.append(str(err))
    for node in cluster.nodes:
        problems += await _end_guests(cluster, node, say)
    return problems


async def _end_guests(cluster: VirtualCluster, node: VirtualNode, say: Say) -> list[str]:
    """End what runs on a node whose daemon is down already."""
    problems = []
    driver = hypervisors(node.paths, run)[cluster.hypervisor]
    try:
        for guest in await driver.running():
            await driver.stop(_only_known(guest), STOPPED_AT_ONCE_S)
            say(f"ended instance {guest.name} on {node.name}")
    except GanetiError as err:
        problems.append(str(err))
    return problems


def _only_known(guest: RunningInstance) -> InstanceSpec:
    """As much of an instance as its own node remembers; enough to end it."""
    return InstanceSpec(
        name=guest.name,
        uuid=guest.uuid,
        hypervisor=guest.hypervisor,
        os="",
        memory=guest.memory,
        vcpus=guest.vcpus,
        hvparams={},
    )


def status(cluster: VirtualCluster) -> list[tuple[str, str, str]]:
    """(node, daemon, process or `down`) of every daemon that should be there."""
    rows = []
    for node in cluster.nodes:
        for name in (MASTERD, NODED) if node == cluster.master else (NODED,):
            process = Daemons(node.paths, environment=node.environment()).status(name).process
            rows.append((node.name, name, str(process.pid) if process else "down"))
    return rows
