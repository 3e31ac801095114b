"""What tests with real guests share."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.hypervisor.kvm.acceleration import Acceleration
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.hypervisor.kvm.runtime import GuestFiles
from tests.support.kvm_nodes import Node
from tests.support.node_certificates import Authority
from tests.support.tiny_guest import build_tiny_guest, make_disk


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Short enough for the names of sockets, and users without rights can pass, as they can through a node's own."""
    with tempfile.TemporaryDirectory(prefix="gnt-", dir="/var/tmp") as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


@pytest.fixture(scope="module")
def guest() -> Path:
    return build_tiny_guest()


@pytest.fixture(scope="module")
def acceleration(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What one look at this host found out, so that not every test has to look."""
    paths = Paths(tmp_path_factory.mktemp("probe"))
    asyncio.run(Acceleration(paths, run).kvm_works(Programs.find({})))
    known = paths.kvm / "acceleration"
    return known.read_bytes() if known.exists() else b""


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest_asyncio.fixture
async def nodes(tmp_path: Path, acceleration: bytes) -> AsyncIterator[list[Node]]:
    """Two nodes that share this host; whatever they still run at the end is ended."""
    made = []
    for name in ("a", "b"):
        paths = Paths(tmp_path / name)
        paths.kvm.mkdir(parents=True)
        (paths.kvm / "acceleration").write_bytes(acceleration)
        made.append(Node(paths, KvmHypervisor(paths, run)))
    yield made
    for node in made:
        for one in await node.driver.running():
            spec = GuestFiles.of(node.paths, one.uuid).read()
            assert spec is not None
            await node.driver.stop(spec.instance, 0)


@pytest.fixture
def node(nodes: list[Node]) -> Node:
    return nodes[0]


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return make_disk(tmp_path / "disk")
