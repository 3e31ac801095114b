"""The hosts below the nodes of a virtual cluster: a node whose trigger is written restarts with another boot id."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from ganeti.bootstrap.daemons import NODED
from ganeti.node.host_restart import TRIGGER
from ganeti.node.lease_record import BOOT_ID
from tests.support.local_cluster import LocalCluster

LOOK_S = 0.2


class VirtualHosts:
    """Restarts the hosts of some nodes until `end`; guests are not touched."""

    def __init__(self, cluster: LocalCluster, numbers: Sequence[int]) -> None:
        self._cluster, self._numbers = cluster, numbers
        self._end = threading.Event()
        self.restarted: list[int] = []
        for number in numbers:
            self._file(number, TRIGGER).parent.mkdir(parents=True, exist_ok=True)
            self._file(number, TRIGGER).touch()
            boot_id = self._file(number, BOOT_ID)
            boot_id.parent.mkdir(parents=True, exist_ok=True)
            boot_id.write_text("boot-0\n")
            # It has read the identifier of this machine.
            cluster.stop(NODED, number)
            cluster.start(NODED, number)
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def end(self) -> None:
        """Restart no more hosts."""
        self._end.set()
        self._thread.join()

    def _file(self, number: int, path: str) -> Path:
        return self._cluster.node(number).paths.below(path)

    def _watch(self) -> None:
        while not self._end.wait(LOOK_S):
            for number in self._numbers:
                trigger = self._file(number, TRIGGER)
                if trigger.read_text() != "b":
                    continue
                trigger.write_text("")
                self._cluster.stop(NODED, number)
                self.restarted.append(number)
                self._file(number, BOOT_ID).write_text(f"boot-{len(self.restarted)}\n")
                self._cluster.start(NODED, number)


@contextlib.contextmanager
def virtual_hosts(cluster: LocalCluster, *numbers: int) -> Iterator[VirtualHosts]:
    """Hosts below these nodes, for a while."""
    found = VirtualHosts(cluster, numbers)
    try:
        yield found
    finally:
        found.end()
