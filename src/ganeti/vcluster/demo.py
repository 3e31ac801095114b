"""`make demo`: a first tour with the real commands, on a cluster that stays up."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from ganeti.base.errors import ExecError, GanetiError
from ganeti.base.terminal import Parser, say
from ganeti.model.outofband import OobCommand
from ganeti.recovery.times import SUSPECT_S
from ganeti.vcluster import lifecycle
from ganeti.vcluster.command import announce, stop_on_sigterm
from ganeti.vcluster.layout import VirtualCluster, plan
from ganeti.vcluster.lifecycle import POWER_PROGRAM
from ganeti.vcluster.power import switch
from ganeti.vcluster.tiny_image import import_tiny

DEFAULT_DIRECTORY = Path("/var/tmp/ganeti-demo")  # noqa: S108 - made 0700, and long names do not fit
NODES = 3
INSTANCE = "web1.example.com"
HEARTBEAT, READY = "HEARTBEAT", "GANETI-TINY READY"
SHOWN_LINES = 4
BOOT_LIMIT_S = 120.0
LOOK_INTERVAL_S = 0.2
WATCHED_LIMIT_S = 30.0
RECOVERY_LIMIT_S = 120.0
CHECKOUT = Path(__file__).resolve().parents[3]
UI_DIRECTORY = CHECKOUT / "src" / "ganeti" / "web" / "ui"


def build_guest() -> Path:
    """Return the test guest of this checkout, built if necessary."""
    builder = CHECKOUT / "guest" / "build.py"
    if not builder.exists():
        raise ExecError(f"{builder} is missing: the demo runs from a checkout of the project")
    done = subprocess.run(
        [sys.executable, str(builder)], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise ExecError("the test guest could not be built; the reason is above")
    return Path(done.stdout.splitlines()[-1])


KERNEL_SAYS = re.compile(r"\[ *\d+\.\d+\] ")


class Demo:
    """Return the commands, in the order of a first tour."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self._commands = lifecycle.Commands(cluster, announce)
        self._shown = ""

    def _master(self, *argv: str) -> None:
        self._commands.run(self._cluster.master, argv)

    def run(self) -> None:
        """Run everything after the cluster is up."""
        self._master("gnt-cluster", "info")
        self._master("gnt-node", "list")
        self._master("gnt-os", "list")
        import_tiny(self._cluster, self._commands)
        self._master("gnt-image", "list")
        _title("A virtual machine: the allocator chooses its node")
        self._master(
            "gnt-instance", "add", "-t", "sharedfile", "--disk", "0:size=128m", "-o", "tiny+default",
            "-B", "memory=96m,vcpus=1", "--no-nics", INSTANCE,
        )  # fmt: skip
        self._master("gnt-instance", "list")
        self._show_console()
        _title("Live migration: the heartbeat continues")
        self._master("gnt-instance", "migrate", "-f", INSTANCE)
        self._master("gnt-instance", "list")
        self._show_console(after_boot=False)
        _title("Down, up, and a reboot")
        self._master("gnt-instance", "shutdown", INSTANCE)
        self._master("gnt-instance", "list")
        self._master("gnt-instance", "startup", INSTANCE)
        self._show_console()
        self._master("gnt-instance", "reboot", INSTANCE)
        self._show_console()
        self._master("gnt-job", "list")
        self._master("gnt-cluster", "verify")

    def run_recovery(self) -> None:
        """Kill a node before the user's eyes; its instance runs on another node without an administrator."""
        lost = self._cluster.nodes[1]
        _title("A protected virtual machine, on a node whose power can be switched")
        self._master("gnt-cluster", "modify", f"--node-parameters=oob_program={POWER_PROGRAM}")
        self._master(
            "gnt-instance", "add", "-t", "sharedfile", "--disk", "0:size=128m", "-o", "tiny+default",
            "-B", "memory=96m,vcpus=1,recovery=failover", "--no-nics", "-n", lost.name, INSTANCE,
        )  # fmt: skip
        self._show_console()
        self._wait_until_watched(lost.name)
        self._master("gnt-cluster", "ha-status")
        _title(f"{lost.name} loses power: all of its processes end with SIGKILL")
        begun = time.monotonic()
        switch(self._cluster, lost, OobCommand.POWER_OFF, announce)
        while (node := self._runs_on()) in ("", lost.name):
            if time.monotonic() - begun > RECOVERY_LIMIT_S:
                raise ExecError(f"{INSTANCE} was not recovered within {RECOVERY_LIMIT_S:.0f} s")
            time.sleep(LOOK_INTERVAL_S)
        took_s = time.monotonic() - begun
        announce(f"After {took_s:.0f} seconds {INSTANCE} runs on {node}.")
        self._show_console()
        self._master("gnt-instance", "list")
        self._master("gnt-cluster", "ha-status")
        self._master("gnt-job", "list")
        _title(f"{lost.name} returns")
        switch(self._cluster, lost, OobCommand.POWER_ON, announce)

    def _wait_until_watched(self, node: str) -> None:
        """Return when the master has the node's first heartbeat."""
        end = time.monotonic() + WATCHED_LIMIT_S
        words = ["gnt-cluster", "ha-status", "--json"]
        while True:
            status = json.loads(self._commands.output(self._cluster.master, words))
            if any(one["name"] == node and one["silent_s"] < SUSPECT_S for one in status["nodes"]):
                return
            if time.monotonic() > end:
                raise ExecError(f"{node} has not answered a heartbeat")
            time.sleep(LOOK_INTERVAL_S)

    def _runs_on(self) -> str:
        """Return the node on which the instance runs; '' while it does not."""
        words = ["gnt-instance", "list", "--no-headers", "-o", "status,pnode", INSTANCE]
        status, _, node = self._commands.output(self._cluster.master, words).partition(" ")
        return node.strip() if status == "running" else ""

    def _show_console(self, *, after_boot: bool = True) -> None:
        """Print what the guest's console says first, or next, once it has a heartbeat in it."""
        announce(f"\nnode1# gnt-instance console --log {INSTANCE}   (a part)")
        end = time.monotonic() + BOOT_LIMIT_S
        while True:
            said = self._console_log()
            _, ready, new = _added(self._shown, said).rpartition(READY)
            if HEARTBEAT in new and (ready or not after_boot):
                break
            if time.monotonic() > end:
                raise ExecError(f"{INSTANCE} printed nothing on its console: {said[-500:]}")
            time.sleep(LOOK_INTERVAL_S)
        self._shown = said
        # Its kernel may still detect clocks after the guest is ready.
        lines = [line for line in (ready + new).splitlines() if not KERNEL_SAYS.match(line)]
        for line in lines[:SHOWN_LINES]:
            announce(f"    {line}")

    def _console_log(self) -> str:
        return self._commands.output(
            self._cluster.master, ["gnt-instance", "console", "--log", INSTANCE]
        )


def _added(before: str, log: str) -> str:
    return log.removeprefix(before) if log.startswith(before) else log


def _title(text: str) -> None:
    announce(f"\n== {text} ==")


def up(directory: Path, *, shows_recovery: bool) -> None:
    """Create the demonstration cluster, or start it again."""
    begun = time.monotonic()
    cluster, is_new = lifecycle.ensure(
        directory,
        lambda: _planned(directory),
        announce,
        lambda made: Demo(made).run_recovery() if shows_recovery else Demo(made).run(),
    )
    if is_new:
        took = time.monotonic() - begun
        announce(f"\nThe demo took {took:.0f} seconds. The cluster is still running.")
    else:
        announce(f"The demo is up already, in {directory}.")
    _hints(cluster)
    _show_console_link(cluster)


def _planned(directory: Path) -> VirtualCluster:
    _title("Building a small guest: a Linux kernel and busybox")
    guest = build_guest()
    _title(f"A cluster of {NODES} nodes on this machine, in {directory}")
    return plan(directory, NODES, hypervisor="kvm", netns=False, guest=guest, rest=True)


def _hints(cluster: VirtualCluster) -> None:
    program = Path(sys.executable).parent / "ganeti-vcluster"
    is_default = cluster.directory_path == DEFAULT_DIRECTORY
    end = "make demo-down" if is_default else f"{program} --dir {cluster.directory} down"
    announce(
        f"""
To continue:
  {program} --dir {cluster.directory} shell     a shell on the master node; then, for example:
      gnt-instance list
      gnt-instance console {INSTANCE}        (Ctrl-] leaves it)
      gnt-instance add -t sharedfile --image tiny -B memory=96m --no-nics web2.example.com
      gnt-cluster verify
  {program} --dir {cluster.directory} status    the daemons
  {end}     end everything that the demo started"""
    )


def _show_console_link(cluster: VirtualCluster) -> None:
    """Print the address of the web console with a login link."""
    words = ["gnt-cluster", "console-link"]
    announce("\nThe web console; the link logs in once (gnt-cluster console-link makes another):")
    announce(f"  {lifecycle.Commands(cluster, announce).output(cluster.master, words).strip()}")
    if not (UI_DIRECTORY / "index.html").exists():
        announce("  The console is not built yet: run make console, which needs npm.")


def down(directory: Path) -> None:
    """End exactly what `up` started."""
    if lifecycle.end(directory, announce):
        announce(f"Removed {directory}.")
    else:
        announce("The demo is not running.")


def main() -> int:
    """`up` or `down`."""
    parser = Parser(prog="ganeti.vcluster.demo")
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIRECTORY)
    parser.add_argument(
        "--ha", action="store_true", help="show the recovery of an instance whose node dies"
    )
    parser.add_argument("action", choices=("up", "down"))
    args = parser.parse_args()
    stop_on_sigterm()
    try:
        if args.action == "up":
            up(args.dir.absolute(), shows_recovery=args.ha)
        else:
            down(args.dir.absolute())
    except (GanetiError, OSError) as err:
        say(f"demo: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
