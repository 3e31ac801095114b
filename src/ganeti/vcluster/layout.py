"""Layout of a cluster on one machine: its nodes, their directories and addresses."""

import os
import socket
import sys
import zlib
from pathlib import Path

import msgspec

import ganeti
from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.files import write_atomically
from ganeti.base.identifiers import host_name
from ganeti.base.paths import NODED_PORT, Paths
from ganeti.base.state_kinds import EMBEDDED
from ganeti.bootstrap.daemons import CONFD_VARIABLE, RAPI_VARIABLE
from ganeti.model import wire
from ganeti.model.hypervisors import HYPERVISORS
from ganeti.uidpool import DIRECTORY_VARIABLE

DOMAIN = "vcluster.test"
MAX_NODES = 100
MAX_DIRECTORY = 60
"""The limit of characters; unix sockets below it must stay shorter than 108."""
VOLUMES_MIB = 2048
"""The size of a machine's volume group; the file is sparse."""
VOLUME_GROUP = "xenvg"
STATE = "vcluster.json"
PROGRAMS = str(Path(sys.executable).parent)
"""Where nodes look for this installation's programs first."""
UID_LOCKS = Path("/run/ganeti-uid-pool")
"""Lock files of user ids, for the virtual nodes of all clusters on this host."""


class VirtualNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node: a directory that its daemons treat as `/`, and an address."""

    name: str
    root: str
    address: str
    namespace: str = ""
    """The network namespace of the node; '' with loopback addresses."""
    has_confd: bool = False
    """True if it runs the query daemon while it is a candidate."""
    has_rest: bool = False
    """True if it runs a REST server while it is the master."""
    tap: str = ""
    """The network cable of a node that is a virtual machine of its own; '' for one that is only a directory."""

    @property
    def paths(self) -> Paths:
        return Paths(Path(self.root))

    def environment(self) -> dict[str, str]:
        """Return the environment that binds a command or daemon to this node."""
        python = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        # An environment may contain another checkout: its programs run the code of this one.
        imports = [
            str(Path(ganeti.__file__).resolve().parents[1]),
            os.environ.get("PYTHONPATH", ""),
        ]
        # Only root can change its user, and all nodes on a host share its user ids.
        locks = {DIRECTORY_VARIABLE: str(UID_LOCKS)} if os.geteuid() == 0 else {}
        return {
            **python,
            **locks,
            "PYTHONPATH": os.pathsep.join(filter(None, imports)),
            "PATH": f"{PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": os.environ.get("HOME", "/root"),
            "GANETI_ROOTDIR": self.root,
            "GANETI_HOSTNAME": self.name,
            "GANETI_ADDRESS": self.address,
            **({CONFD_VARIABLE: "1"} if self.has_confd else {}),
            **({RAPI_VARIABLE: "1"} if self.has_rest else {}),
        }

    def words(self, argv: list[str]) -> list[str]:
        """Return a command of this node as words for the machine."""
        return ["ip", "netns", "exec", self.namespace, *argv] if self.namespace else argv


class VirtualCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A whole cluster, in the form of its state file."""

    directory: str
    hypervisor: str
    nodes: tuple[VirtualNode, ...]
    bridge: str = ""
    """The bridge between the nodes' namespaces; '' with loopback addresses."""
    domain: str = DOMAIN
    """The domain of all names: clusters that know each other need different ones."""
    guest_bridge: str = ""
    """The bridge of the guests' interfaces: on this host, or in each namespace; '' if there is none."""
    guest: str = ""
    """Directory of the test guest's kernel and OS definition; '' if unset."""
    has_monitoring: bool = False
    """True if the nodes run the monitoring daemon."""
    state: str = EMBEDDED
    """The cluster's state back end (`STATE_KINDS`)."""
    init_options: tuple[str, ...] = ()
    """Further options of `gnt-cluster init`."""
    volumes_mib: int = 0
    """The size of the disk for the volume group of each machine."""
    is_complete: bool = False
    """False during creation: the cluster may be removed then."""

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return f"cluster.{self.domain}"

    @property
    def master(self) -> VirtualNode:
        return self.nodes[0]

    @property
    def local_nodes(self) -> tuple[VirtualNode, ...]:
        """The nodes whose daemons run on this host."""
        return tuple(node for node in self.nodes if not node.tap)

    @property
    def machines(self) -> tuple[VirtualNode, ...]:
        """The nodes that are virtual machines."""
        return tuple(node for node in self.nodes if node.tap)

    def node_called(self, text: str) -> VirtualNode:
        """Return the node with this number (from 1), name, or first part of its name; InputError."""
        for number, node in enumerate(self.nodes, 1):
            if text in (str(number), node.name, node.name.partition(".")[0]):
                return node
        names = ", ".join(node.name.partition(".")[0] for node in self.nodes)
        raise InputError(f"node {text!r:.100} does not exist: choose one of {names}", "node")

    @property
    def directory_path(self) -> Path:
        return Path(self.directory)

    @property
    def shared_directory(self) -> Path:
        """Directory shared by all nodes, for disks of template `sharedfile`."""
        return self.directory_path / "shared"

    @property
    def state_file(self) -> Path:
        return self.directory_path / STATE

    def save(self) -> None:
        """Record the cluster, so that `down` ends what `up` began."""
        write_atomically(self.state_file, wire.encode(self), mode=0o600)


def load(directory: Path) -> VirtualCluster | None:
    """Return the cluster in `directory`, or None."""
    try:
        data = (directory / STATE).read_bytes()
    except FileNotFoundError:
        return None
    return wire.decode(data, VirtualCluster, what=STATE)


def plan(  # noqa: PLR0913 - each is an option of the command
    directory: Path,
    count: int,
    *,
    hypervisor: str,
    netns: bool,
    guest: Path | None,
    monitoring: bool = False,
    confd: bool = False,
    rest: bool = False,
    state: str = EMBEDDED,
    init_options: tuple[str, ...] = (),
    machines: int = 0,
    domain: str = DOMAIN,
) -> VirtualCluster:
    """Plan a cluster of `count` nodes in `directory` with unused addresses, and `machines` more as virtual machines."""
    netns = netns or machines > 0
    if machines and not guest:
        raise InputError(
            "is required for --storage-vms: the directory that guest/build.py created", "--guest"
        )
    local, count = count, count + machines
    if not 1 <= count <= MAX_NODES:
        raise InputError(f"must be from 1 to {MAX_NODES}", "--nodes")
    if len(str(directory)) > MAX_DIRECTORY:
        raise InputError(
            f"{directory} is too long: unix sockets need a directory of at most {MAX_DIRECTORY} characters",
            "--dir",
        )
    tag = f"{zlib.crc32(str(directory).encode()):08x}"
    names = [f"node{number}" for number in range(1, count + 1)]
    addresses = _private_addresses(tag, count) if netns else _loopback_addresses(tag, count)
    return VirtualCluster(
        directory=str(directory),
        hypervisor=hypervisor,
        bridge=f"gnt-{tag}" if netns else "",
        domain=host_name(domain, "--domain"),
        # Only root can make one, or interfaces of guests at all.
        guest_bridge=f"br-{tag}"
        if HYPERVISORS[hypervisor].runs_guests and os.geteuid() == 0
        else "",
        guest=str(guest) if guest else "",
        has_monitoring=monitoring,
        state=state,
        init_options=init_options,
        volumes_mib=VOLUMES_MIB if machines else 0,
        nodes=tuple(
            VirtualNode(
                name=f"{name}.{domain}",
                root=str(directory / name),
                address=address,
                has_rest=rest and number <= local,
                namespace=f"gnt-{tag}-{number}" if netns and number <= local else "",
                tap=f"t{tag}-{number}" if number > local else "",
                has_confd=confd and number <= local,
            )
            for number, (name, address) in enumerate(zip(names, addresses, strict=True), 1)
        ),
    )


def _private_addresses(tag: str, count: int) -> list[str]:
    """Return addresses inside the cluster's own namespaces, which are invisible outside."""
    return [f"10.{int(tag[:2], 16)}.{int(tag[2:4], 16)}.{number}" for number in range(1, count + 1)]


def _loopback_addresses(tag: str, count: int) -> list[str]:
    start = int(tag, 16)
    for attempt in range(200):
        number = (start + attempt * 7919) % (254 * 255)
        prefix = f"127.{1 + number // 255}.{number % 255}"
        addresses = [f"{prefix}.{last}" for last in range(1, count + 1)]
        if all(_is_free(address) for address in addresses):
            return addresses
    raise PrereqError(
        f"no loopback network has port {NODED_PORT} free: end other clusters first",
        ErrorCode.NO_RESOURCES,
    )


def _is_free(address: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, NODED_PORT))
        except OSError:
            return False
    return True
