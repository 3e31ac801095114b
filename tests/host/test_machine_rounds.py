"""Rounds of failures of real node machines: no guest runs twice, and no write that was acknowledged is lost.

Each round kills, isolates or freezes a machine: the one on which the guest runs, or the one that has its other copy.
The guest is QEMU in the machine, boots from a DRBD disk and writes a numbered log. The environment variable ROUNDS
chooses how many rounds, SEED which ones.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import pytest

from ganeti.base.errors import ExecError
from ganeti.base.terminal import say
from tests.support.calm import wait_calm
from tests.support.local_cluster import wait_until
from tests.support.machine_cluster import POWER, MachineCluster, machine_cluster
from tests.support.machine_guests import (
    Attendant,
    add_guest,
    attend,
    fence_by,
    reopen_mirrors,
    switch_on,
    wait_serves,
)
from tests.support.twins import uuids

pytestmark = [pytest.mark.host, pytest.mark.soak, pytest.mark.timeout(100_000)]

LONG_S = 1800
WEB = "web1.example.com"
ROUNDS = int(os.environ.get("ROUNDS", "100"))
SEED = int(os.environ.get("SEED", "1"))
SHORTEST_S, LONGEST_S = 5.0, 120.0


@dataclass
class Writers:
    """Watches from a thread who writes the guest's log, and what of it is kept."""

    attendant: Attendant
    faults: list[str] = field(default_factory=list)
    begins: int = 0
    """How often the guest has begun to write."""
    begun_at: float = 0.0
    """When it did so last (monotonic)."""
    _writer: int = 0
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.2):
            for number, what, _name, word in self.attendant.news():
                if what == "said":
                    self.note(number, word)

    def note(self, number: int, word: str) -> None:
        """Take a line of the guest's console that a machine has told."""
        letter, entry = word[:1], int(word[1:], 16)
        last = self.attendant.last_before.get(WEB, 0)
        if letter == "F":
            self.begins += 1
            self._writer, self.begun_at = number, time.monotonic()
            # An entry may be on the disk although its end was not told.
            if not last < entry <= last + 2:
                self.faults.append(f"entry {last} was acknowledged, node {number} found {entry}")
        elif letter == "E":
            self.faults.append(f"entry {entry} failed on node {number}")
        elif not self._writer:
            self._writer = number
        elif number != self._writer:
            self.faults.append(f"entry {entry} is of node {number}, not of node {self._writer}")


@dataclass
class Rounds:
    """A cluster with the guest."""

    cluster: MachineCluster
    attendant: Attendant
    random: random.Random
    lost_at: float = 0.0
    """When a machine lost its power last (monotonic)."""

    @property
    def home(self) -> int:
        """The number of the node of the guest."""
        return int(self.cluster.value("instance", WEB, "pnode").removeprefix("node")[0])

    def kill(self, number: int) -> float:
        """Cut the power of a machine; each of these returns for how many seconds it has disturbed the machine."""
        self.lost_at = time.monotonic()
        self.cluster.machine(number).cut_power()
        return 0.0

    def freeze(self, number: int) -> float:
        """Stop a machine for a while; it continues unless it was fenced."""
        pid, seconds = self.cluster.machine(number).machine.pid, self._some_seconds()
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        if self.cluster.machine(number).machine.pid == pid:
            os.kill(pid, signal.SIGCONT)
        return seconds

    def isolate(self, number: int) -> float:
        """Cut a machine off from the master and from the other machine, for a while."""
        others = [self.cluster.node(one).address for one in {1, *self.cluster.numbers} - {number}]
        for verb in ("add", "del"):
            script = "; ".join(f"ip route {verb} blackhole {one}/32" for one in others)
            try:
                self.cluster.inside(number, script)
            except (ExecError, OSError):  # it was fenced meanwhile
                assert verb == "del"
            if verb == "add":
                seconds = self._some_seconds()
                time.sleep(seconds)
        return seconds

    def _some_seconds(self) -> float:
        return self.random.uniform(SHORTEST_S, LONGEST_S)

    def one(self) -> tuple[str, float]:
        """Do one thing to a node, wait until the guest serves, and put all back; what was done, for how many seconds."""
        home = self.home
        mirror = sum(self.cluster.numbers) - home
        number = self.random.choice((home, home, mirror))
        fence_by(self.cluster, number, "power")
        wait_calm(self.cluster, LONG_S)
        done, act = self.random.choice(
            (("killed", self.kill), ("frozen", self.freeze), ("isolated", self.isolate))
        )
        seconds, what = act(number), f"{'home' if number == home else 'mirror'} {done}"
        wait_until(lambda: self._serves_again(home), f"{WEB} serves after: {what}", LONG_S)
        fence_by(self.cluster, number, "none")
        for one in self.cluster.numbers:
            switch_on(self.cluster, one)
        reopen_mirrors(self.cluster, [WEB])
        wait_calm(self.cluster, LONG_S)
        return what if self.home == home else f"{what}, recovered", seconds

    def _serves_again(self, home: int) -> bool:
        """Whether the guest writes on a machine that is not lost."""
        before = self.attendant.last.get(WEB, 0)
        time.sleep(3)
        return self.attendant.last.get(WEB, 0) > before and (
            self.home != home or self.cluster.machine(home).machine.pid is not None
        )


@pytest.fixture(scope="module")
def rounds() -> Iterator[Rounds]:
    with machine_cluster(2, "kvm") as cluster:
        cluster.install_power()
        params = f"--node-parameters=oob_program={POWER},fence_methods=none"
        cluster.ok("gnt-cluster", "modify", params, timeout_s=LONG_S)
        add_guest(cluster, WEB, "node2:node3", "recovery=failover,recovery_attempts=1000")
        for number in cluster.numbers:
            attend(cluster, number)
        attendant = Attendant(cluster, uuids(cluster))
        wait_serves(attendant, WEB)
        yield Rounds(cluster, attendant, random.Random(SEED))


@pytest.mark.requirement("D4", "D6", "D7", "D9")
def test_no_round_of_failures_has_two_writers_or_loses_a_write(rounds: Rounds) -> None:
    done: Counter[str] = Counter()
    outages: list[float] = []
    """Seconds from the loss of power until the guest writes on another machine."""
    with Writers(rounds.attendant) as writers:
        for at in range(1, ROUNDS + 1):
            began = time.monotonic()
            what, seconds = rounds.one()
            done[what] += 1
            if what == "home killed, recovered":
                outages.append(writers.begun_at - rounds.lost_at)
            took = time.monotonic() - began
            say(f"{at} of {ROUNDS}: {what} for {seconds:.0f} s, round {took:.0f} s", flush=True)
            assert not writers.faults, (SEED, at, what)
    say(f"{dict(done)}; {writers.begins} begins, entry {rounds.attendant.last[WEB]}")
    say(f"outages of killed machines, in s: {' '.join(f'{one:.0f}' for one in sorted(outages))}")
    recovered = sum(count for what, count in done.items() if "recovered" in what)
    assert writers.begins >= recovered
