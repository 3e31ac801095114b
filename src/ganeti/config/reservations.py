"""Unique values that a job has chosen and not yet recorded (G11)."""

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import mac_address
from ganeti.base.ids import IdSource
from ganeti.config.index import address_claim, part_claim
from ganeti.config.view import View
from ganeti.model.address_pool import AddressPool
from ganeti.model.objects import Network, NodeUuid

MAC_TRIES = 64
PORT = "network port"
PORTS = range(11000, 15000)
"""For displays of instances; one port in the whole cluster, so that it moves with its instance."""
MAC_SUFFIXES = 1 << 24


class Reservations:
    """The reservations of each job until its end; in memory, like the plans of jobs."""

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids
        self._jobs: dict[tuple[str, str], int] = {}
        self._next_port = PORTS.start
        self._of_job: dict[int, set[tuple[str, str]]] = {}

    def new_mac(self, job_id: int, snapshot: View, network: Network | None = None) -> str:
        """Return an unused MAC address with the prefix of the network, or of the cluster."""
        prefix = (network.mac_prefix if network else None) or snapshot.cluster.mac_prefix
        for _ in range(MAC_TRIES):
            suffix = self._ids.number(MAC_SUFFIXES).to_bytes(3, "big").hex(":")
            mac = f"{prefix}:{suffix}".lower()
            in_use = snapshot.index.owner("MAC address", mac) is not None
            if not in_use and ("MAC address", mac) not in self._jobs:
                self._take(job_id, "MAC address", mac)
                return mac
        raise PrereqError(
            f"no free MAC address found with the prefix {prefix} in {MAC_TRIES} tries;"
            " set another prefix for the cluster, or for the network",
            ErrorCode.NO_RESOURCES,
        )

    def take_mac(self, job_id: int, mac: str, snapshot: View) -> str:
        """Reserve this MAC address, in lower case; PrereqError if another object has it."""
        mac = mac_address(mac, "mac")
        self._take_unowned(job_id, "MAC address", mac, snapshot)
        return mac

    def new_port(self, job_id: int, snapshot: View) -> int | None:
        """Return an unused port for a display, the least recently used first; None if all are in use."""
        count = PORTS.stop - PORTS.start
        for offset in range(count):
            port = PORTS.start + (self._next_port - PORTS.start + offset) % count
            in_use = snapshot.index.owner(PORT, str(port)) is not None
            if not in_use and (PORT, str(port)) not in self._jobs:
                self._take(job_id, PORT, str(port))
                self._next_port = port + 1
                return port
        return None

    def new_number(self, job_id: int, template: str, node: NodeUuid, snapshot: View) -> int:
        """Return the least number that no disk of a template has on a node."""
        number = 0
        while True:
            kind, value = part_claim(template, node, (number,))
            in_use = snapshot.index.owner(kind, value) is not None
            if not in_use and (kind, value) not in self._jobs:
                self._take(job_id, kind, value)
                return number
            number += 1

    def take_ip(self, job_id: int, ip: str, link: str, snapshot: View) -> None:
        """Reserve an IP address on a link; PrereqError if another object has it."""
        self._take_unowned(job_id, "IP address", f"{ip} on {link}", snapshot)

    def take_address(self, job_id: int, network: Network, ip: str, snapshot: View) -> None:
        """Reserve an address of a network; PrereqError if it is in use or reserved."""
        why = AddressPool(network).why_not(ip)
        if why is not None:
            raise PrereqError(
                f"{ip} cannot be used in the network {network.name}: {why}", ErrorCode.NOT_UNIQUE
            )
        kind, value = address_claim(network.uuid, ip)
        if snapshot.index.owner(kind, value) is not None or not self._take(job_id, kind, value):
            raise PrereqError(
                f"the IP address {ip} in the network {network.name} is already in use; choose another,"
                " or let the pool choose (ip=pool)",
                ErrorCode.NOT_UNIQUE,
            )

    def new_address(self, job_id: int, network: Network, snapshot: View) -> str:
        """Return the first free address of a network's pool; PrereqError if all are used."""

        def is_taken(ip: str) -> bool:
            claim = address_claim(network.uuid, ip)
            return snapshot.index.owner(*claim) is not None or claim in self._jobs

        ip = AddressPool(network).free(is_taken)
        if ip is None:
            raise PrereqError(
                (
                    f"the network {network.name} ({network.network}) has no free address; "
                    "release reserved ones (gnt-network modify --remove-reserved-ips), or use "
                    "another network"
                ),
                ErrorCode.NO_RESOURCES,
            )
        self._take(job_id, *address_claim(network.uuid, ip))
        return ip

    def take_name(self, job_id: int, name: str) -> None:
        """Reserve the name of a new node or instance."""
        if not name:
            raise InputError("a name is needed", "name")
        if not self._take(job_id, "host name", name):
            raise self._promised("host name", name, ErrorCode.EXISTS)

    def take_image(self, job_id: int, name: str) -> None:
        """Reserve the name of a new image."""
        if not self._take(job_id, "image name", name):
            raise self._promised("image name", name, ErrorCode.EXISTS)

    def release(self, job_id: int) -> None:
        """Release all reservations of a job; does nothing if it has none."""
        for thing in self._of_job.pop(job_id, ()):
            del self._jobs[thing]

    def host_names(self) -> frozenset[str]:
        """Return the names of nodes and instances that jobs are creating."""
        return frozenset(value for kind, value in self._jobs if kind == "host name")

    def count(self) -> int:
        """Return the number of reservations; 0 when no job runs."""
        return len(self._jobs)

    def _take_unowned(self, job_id: int, kind: str, value: str, snapshot: View) -> None:
        if snapshot.index.owner(kind, value) is not None:
            raise PrereqError(
                f"the {kind} {value} is already in use; choose another", ErrorCode.NOT_UNIQUE
            )
        if not self._take(job_id, kind, value):
            raise self._promised(kind, value, ErrorCode.NOT_UNIQUE)

    def _take(self, job_id: int, kind: str, value: str) -> bool:
        owner = self._jobs.setdefault((kind, value), job_id)
        if owner == job_id:
            self._of_job.setdefault(job_id, set()).add((kind, value))
        return owner == job_id

    def _promised(self, kind: str, value: str, code: ErrorCode) -> PrereqError:
        job_id = self._jobs[kind, value]
        return PrereqError(f"the {kind} {value} is reserved by job {job_id}", code)
