"""Real guests in nodes that are machines: their disks, and what the serial lines of the machines tell about them.

A program in each machine tells which guests have a process, and every line of their consoles. So the end of a machine
hides no entry of a guest's log that the guest knew to be written.
"""

import base64
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ganeti.whatif.history import GuestState
from tests.support.agreement import Watch
from tests.support.local_cluster import wait_until
from tests.support.log_guest import boot_sector, step_of
from tests.support.machine_cluster import MachineCluster

FROM_DISK = "kvm:kernel_path=,initrd_path=,kernel_args=,root_path=,vnc_bind_address="
"""The hypervisor parameters of a guest with its own boot sector."""
BOOT_S = 1800
_PROGRAM = """
import glob, json, os, time

line = os.open("/dev/ttyS0", os.O_WRONLY | os.O_NOCTTY)


def say(*words):
    os.write(line, ("\\n@ " + " ".join(words) + "\\n").encode())


def lives(pid):
    try:
        return open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def guests():
    for path in glob.glob("/var/run/ganeti/kvm/*-*.json"):
        try:
            changed = os.stat(path).st_mtime_ns
            if records.get(path, (0,))[0] != changed:
                record = json.load(open(path))
                records[path] = changed, record.get("pid"), record["instance"]["uuid"]
        except (OSError, ValueError):
            continue
        _changed, pid, uuid = records[path]
        if pid and lives(pid):
            yield uuid


def lines(path):
    size = os.stat(path).st_size
    if size == read.get(path, 0):
        return []
    if size < read.get(path, 0):  # the guest has begun again
        read[path] = 0
    with open(path, "rb") as log:
        log.seek(read.get(path, 0))
        whole = log.read().rpartition(b"\\n")[0]
        read[path] = read.get(path, 0) + (len(whole) + 1 if whole else 0)
    return whole.decode(errors="replace").split()


seen, read, records = set(), {}, {}
for path in glob.glob("/var/log/ganeti/kvm/*.console"):
    lines(path)
while True:
    found = set(guests())
    for uuid in found - seen:
        say("on", uuid)
    for path in glob.glob("/var/log/ganeti/kvm/*.console"):
        for word in lines(path):
            say("said", os.path.basename(path).partition(".")[0], word)
    for uuid in seen - found:
        say("off", uuid)
    seen = found
    time.sleep(0.3)
"""


def attend(cluster: MachineCluster, number: int) -> None:
    """Start the program in a machine, unless it runs."""
    encoded = base64.b64encode(_PROGRAM.encode()).decode()
    cluster.inside(
        number,
        "kill -0 $(cat /run/attends.pid) 2>/dev/null && exit 0;"
        f" echo {encoded} | base64 -d >/run/attends.py;"
        " python3 /run/attends.py >/run/attends.out 2>&1 </dev/null & echo $! >/run/attends.pid",
    )


@dataclass
class Attendant:
    """Reads what the serial lines of the machines say about guests."""

    cluster: MachineCluster
    names: dict[str, str]
    """UUID -> name of each instance."""
    present: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Instance -> the machines with a process of its guest."""
    first: dict[str, int] = field(default_factory=dict)
    """Instance -> the first entry that its disk lacked when its guest last began."""
    last: dict[str, int] = field(default_factory=dict)
    """Instance -> the last entry whose write was acknowledged."""
    last_before: dict[str, int] = field(default_factory=dict)
    """Instance -> that entry when its guest last ended."""
    boots: list[float] = field(default_factory=list)
    """Seconds from the start of a process to the first line of its console."""
    _began: dict[str, float] = field(default_factory=dict)
    _read: dict[int, tuple[int | None, int]] = field(
        default_factory=lambda: defaultdict(lambda: (None, 0))
    )
    """Number -> process of the machine, and how much of its console was read: each start begins the file again."""

    def __post_init__(self) -> None:
        self._short = {uuid[:13]: name for uuid, name in self.names.items()}

    def news(self) -> Iterator[tuple[int, str, str, str]]:
        """Yield node, what, instance, and the word of the console, in the order of each machine."""
        for number in self.cluster.numbers:
            machine = self.cluster.machine(number).machine
            pid, (before, read) = machine.pid, self._read[number]
            if pid is not None and pid != before:
                read = 0
                yield from self._gone(number)
            with machine.console.open("rb") as console:
                console.seek(read)
                whole = console.read().rpartition(b"\n")[0]
            self._read[number] = pid or before, read + (len(whole) + 1 if whole else 0)
            for line in whole.decode(errors="replace").splitlines():
                match line.split():
                    case ["@", "on" | "off" as what, uuid] if uuid in self.names:
                        yield from self._changed(number, what, self.names[uuid])
                    case ["@", "said", short, word] if short in self._short:
                        self._said(self._short[short], word)
                        yield number, "said", self._short[short], word
            if pid is None:
                yield from self._gone(number)

    def catch_up(self) -> None:
        """Read what has been said until now."""
        for _one in self.news():
            pass

    def _gone(self, number: int) -> Iterator[tuple[int, str, str, str]]:
        """A machine has no power, or was restarted since the last look: its guests have ended."""
        for name in [one for one, where in self.present.items() if number in where]:
            yield from self._changed(number, "off", name)

    def _changed(self, number: int, what: str, name: str) -> Iterator[tuple[int, str, str, str]]:
        where = self.present[name]
        if (what == "on") != (number in where):
            (where.add if what == "on" else where.discard)(number)
            if where == {number} and what == "on":
                self._began[name] = time.monotonic()
            elif not where:
                self.last_before[name] = self.last.get(name, 0)
            yield number, what, name, ""

    def _said(self, name: str, word: str) -> None:
        match step_of(word):
            case ("F", entry):
                self.first[name] = entry
                if name in self._began:
                    self.boots.append(time.monotonic() - self._began.pop(name))
            case ("D", entry):
                self.last[name] = entry


@dataclass
class MachineWatch(Watch):
    """Sees real guests: one is up from the first line on its console, and down once its process is gone."""

    attendant: Attendant | None = None
    _up: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def look(self) -> None:
        """See the base class."""
        assert self.attendant is not None
        for number, what, name, _word in self.attendant.news():
            node, present = self.cluster.node(number).name, self.attendant.present[name]
            if what == "on" and present == {number}:
                self.note(name, node, GuestState.STARTS)
            elif what == "said" and present == {number} and number not in self._up[name]:
                self.note(name, node, GuestState.UP)
                self._up[name] = {number}
            elif what == "off" and number in self._up[name]:
                self._up[name].discard(number)
                if present:  # it has come from the other node
                    self._up[name] = set(present)
                    self.note(name, self.cluster.node(min(present)).name, GuestState.MOVED)
                else:
                    self.note(name, node, GuestState.DOWN)

    def begin(self) -> None:
        """See the base class."""
        assert self.attendant is not None
        self.look()
        self.changes.clear()
        for name, present in self.attendant.present.items():
            for number in present:
                self._up[name].add(number)
                self.note(name, self.cluster.node(number).name, GuestState.UP)


def add_guest(cluster: MachineCluster, name: str, nodes: str, parameters: str) -> None:
    """Create a mirrored instance with a guest of one sector, and start it."""
    cluster.ok(
        *("gnt-instance", "add", "-t", "drbd", "-n", nodes, "--disk", "0:size=16m"),
        *("-H", FROM_DISK, "-B", f"memory=16m,{parameters}", "--no-install", "--no-nics", name),
        timeout_s=BOOT_S,
    )
    primary = int(nodes.partition(":")[0].removeprefix("node"))
    said = cluster.ok("gnt-instance", "activate-disks", name, timeout_s=BOOT_S).out
    path = next(word for word in said.replace(":", " ").split() if word.startswith("/dev/drbd"))
    sector = base64.b64encode(boot_sector()).decode()
    cluster.inside(
        primary, f"echo {sector} | base64 -d | dd of={path} conv=fsync,notrunc 2>/dev/null"
    )
    cluster.ok("gnt-instance", "startup", name, timeout_s=BOOT_S)


def fence_by(cluster: MachineCluster, number: int, methods: str) -> None:
    """Choose how a node is fenced: a busy host may stop any machine for longer than recovery waits."""
    words = ("gnt-node", "modify", f"--node-parameters=fence_methods={methods}", f"node{number}")
    cluster.ok(*words, timeout_s=BOOT_S)


def switch_on(cluster: MachineCluster, number: int) -> None:
    """Switch a machine on, if it is off."""
    if cluster.machine(number).machine.pid is None:
        cluster.machine(number).forget()
        cluster.power_on(number)
        attend(cluster, number)


def reopen_mirrors(cluster: MachineCluster, names: Iterable[str]) -> None:
    """Let the copies on a machine that was off be written again, as the watcher of a cluster does."""
    for name in names:
        cluster.ok("gnt-instance", "activate-disks", name, timeout_s=BOOT_S)


def wait_serves(attendant: Attendant, *names: str) -> None:
    """Wait until these guests continue their logs."""
    attendant.catch_up()
    before = dict(attendant.last)

    def is_so() -> bool:
        attendant.catch_up()
        return all(attendant.last.get(name, 0) > before.get(name, 0) for name in names)

    wait_until(is_so, f"{', '.join(names)} write their logs", BOOT_S)
