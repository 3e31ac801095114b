"""What exports, imports and moves take against a bare `dd | socat TLS | dd`, and `gnt-os diagnose`.

`export_ratio`, `import_ratio`, `move_ratio`: seconds of the bare copy of one disk of random data, from a file to a file
that is synced at the end, over the seconds of a whole job; the fastest of some of each, in turns. A move goes from a
cluster to the same one under another name. `stream_ratio` counts the two programs of a stream alone, and
`stream_processor_ratio` compares the processor time of both.
`diagnose_s`: definitions of an OS with variants, on fake nodes.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from local_cluster import local_cluster, run_job
from machine import spin_ms, sync_ms
from sizes import chosen_size

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ganeti.base import certificates
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Cluster, GroupUuid, Node, NodeGroup, NodeUuid
from ganeti.model.opcodes.os import OpOsDiagnose
from ganeti.node.carrier import program
from ganeti.node.tasks import open_port
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.programs import OS_DIAGNOSE, OsInfo
from ganeti.units.context import UnitContext
from ganeti.units.os.diagnose import LUOsDiagnose
from ganeti.vcluster.layout import VirtualCluster
from tests.support.fake_rpc import FakeRpc
from tests.support.lone_run import LoneRun

MIB = 1024 * 1024
ROUNDS = 3
DEFINITIONS, VARIANTS, NODES = 50, 10, 50
BARE_PORT = 40399
NAME, OTHER = "source.example.com", "other.example.com"
NODE1, NODE2 = "node1.vcluster.test", "node2.vcluster.test"


def processor_s() -> float:
    """Processor time of all children of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Copies:
    """Copies of one file by programs alone, with a certificate for each end that the other checks."""

    def __init__(self, directory: Path, source: Path) -> None:
        self._directory, self._source, self._target = directory, source, directory / "copy"
        for end in ("a", "b"):
            key = certificates.new_key()
            (directory / f"{end}.key").write_bytes(key)
            made = certificates.for_transfer(key, f"x509-{end * 10}", time.time())
            (directory / f"{end}.pem").write_bytes(made)

    def bare(self) -> None:
        """By `dd | socat | socat | dd`."""
        listens = f"OPENSSL-LISTEN:{BARE_PORT},bind=127.0.0.1,reuseaddr,{self._options('a', 'b')}"
        calls = f"OPENSSL:127.0.0.1:{BARE_PORT},retry=50,interval=0.1,{self._options('b', 'a')}"
        write = f"dd of={self._target} bs=1M iflag=fullblock conv=fsync status=none"
        receiver = subprocess.Popen(  # noqa: S602 - words of this script
            f"socat -u -b {MIB} {listens} - | {write}", shell=True
        )
        subprocess.run(  # noqa: S602
            f"dd if={self._source} bs=1M status=none | socat -u -b {MIB} - {calls}",
            shell=True,
            check=True,
        )
        self._check(receiver.wait())

    def stream(self) -> None:
        """By the programs that nodes run, without a digest."""
        size = self._source.stat().st_size
        both = {"size": size, "token": "bench", "address": "127.0.0.1", "form": "raw"}
        orders = {
            "in": {**both, "sink": {"path": str(self._target), "makes_file": True}, "limit": size},
            "out": {**both, "source": {"path": str(self._source)}},
        }  # fmt: skip
        files = {end: self._directory / f"{end}.order" for end in orders}
        port_file = files["in"].with_suffix(".port")
        listener = open_port("127.0.0.1", port_file)
        processes = []
        for end, own, other in (("in", "a", "b"), ("out", "b", "a")):
            place = self._directory
            names = {"certificate": f"{own}.pem", "key": f"{own}.key", "peer": f"{other}.pem"}
            order = orders[end] | {name: str(place / file) for name, file in names.items()}
            if end == "out":
                order["port"] = int(port_file.read_text())
            files[end].write_text(json.dumps(order))
            words = [sys.executable, "-m", program.__name__, str(files[end])]
            stdin = listener.fileno() if end == "in" else subprocess.DEVNULL
            processes.append(subprocess.Popen(words, stdin=stdin))
        listener.close()
        self._check(*[process.wait() for process in processes])

    def _options(self, own: str, other: str) -> str:
        place = self._directory
        return (
            f"cert={place}/{own}.pem,key={place}/{own}.key,cafile={place}/{other}.pem,verify=1,"
            f"openssl-commonname=x509-{other * 10},openssl-min-proto-version=TLS1.3"
        )

    def _check(self, *statuses: int) -> None:
        if any(statuses) or self._target.stat().st_size != self._source.stat().st_size:
            raise RuntimeError("a copy failed")
        self._target.unlink()


class Figures:
    """The fastest of each kind."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.processor: dict[str, list[float]] = {}

    def measure(self, what: str, act: Callable[[], None]) -> None:
        """Time one act."""
        processor, begun = processor_s(), time.perf_counter()
        act()
        self.seconds.setdefault(what, []).append(time.perf_counter() - begun)
        self.processor.setdefault(what, []).append(processor_s() - processor)

    def ratios(self) -> dict[str, float]:
        """Each kind against the bare one."""
        found: dict[str, float] = {"bare_s": round(min(self.seconds["bare"]), 2)}
        for what in ("stream", "export", "import", "move"):
            found[f"{what}_ratio"] = _ratio(self.seconds, what)
        found["stream_processor_ratio"] = _ratio(self.processor, "stream")
        return found


def _ratio(taken: dict[str, list[float]], what: str) -> float:
    return round(min(taken["bare"]) / min(taken[what]), 2)


class Jobs:
    """What is done with the instance."""

    def __init__(self, cluster: VirtualCluster, size: int) -> None:
        self._cluster, self._size = cluster, size

    def _create(self, name: str, node: str, **more: object) -> None:
        given = {
            "OP_ID": "OP_INSTANCE_CREATE", "instance_name": name, "mode": "create", "start": False,
            "disk_template": "file", "disks": [{"size": self._size}], "pnode": node, "nics": [],
        }  # fmt: skip
        run_job(self._cluster, **{**given, **more})

    def make(self) -> Path:
        """The instance, with random data; its disk."""
        self._create(NAME, NODE1, no_install=True)
        place = self._cluster.master.paths.below("/srv/ganeti/file-storage")
        [disk] = [path for path in place.rglob("*") if path.is_file()]
        with disk.open("r+b") as file:
            for _ in range(self._size):
                file.write(os.urandom(MIB))
        return disk

    def export(self) -> None:
        """To the other node."""
        run_job(
            self._cluster,
            OP_ID="OP_BACKUP_EXPORT",
            instance_name=NAME,
            target_node=NODE2,
            shutdown=True,
        )

    def bring_in(self) -> None:
        """From the other node to the first."""
        self._create(OTHER, NODE1, mode="import", src_node=NODE2, src_path=NAME)

    def move(self) -> None:
        """To the other node, as if that were one of another cluster."""
        subprocess.run(
            ["move-instance", "--keep-source-instance", "--dest-instance-name", OTHER,
             "--dest-primary-node", NODE2, *[str(self._cluster.master.paths.luxi_socket)] * 2, NAME],
            check=True, stdout=sys.stderr,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )  # fmt: skip

    def remove(self) -> None:
        """What came out of an import or a move."""
        run_job(
            self._cluster, OP_ID="OP_INSTANCE_REMOVE", instance_name=OTHER, ignore_failures=False
        )


def transfers(size: int, rounds: int) -> dict[str, float]:
    """The ratios."""
    figures = Figures()
    with (
        tempfile.TemporaryDirectory(prefix="gnt-bench-") as name,
        local_cluster(2) as cluster,
    ):
        jobs = Jobs(cluster, size)
        copies = Copies(Path(name), jobs.make())
        for _ in range(rounds):
            figures.measure("bare", copies.bare)
            figures.measure("stream", copies.stream)
            figures.measure("export", jobs.export)
            figures.measure("import", jobs.bring_in)
            jobs.remove()
            figures.measure("move", jobs.move)
            jobs.remove()
    return figures.ratios()


def _nodes() -> Snapshot:
    """A cluster reduced to its nodes."""
    group = GroupUuid("group")
    uuids = [NodeUuid(f"node{number}") for number in range(NODES)]
    nodes = [
        Node(
            uuid=uuid,
            name=f"{uuid}.example.com",
            primary_ip="192.0.2.1",
            secondary_ip="192.0.2.1",
            certificate="",
            group=group,
        )
        for uuid in uuids
    ]
    cluster = Cluster(uuid="c", name="c", master_node=uuids[0])
    groups = [NodeGroup(uuid=group, name="default")]
    return Snapshot.of(1, cluster, nodes=nodes, groups=groups, instances=[])


async def diagnose_s() -> float:
    """Seconds until the definitions of all nodes are compared; the nodes answer at once."""
    snapshot = _nodes()

    async def definitions(_args: Nothing, _call: Call) -> list[OsInfo]:
        return [
            OsInfo(
                name=f"os{number}",
                path=f"/srv/ganeti/os/os{number}",
                problem="",
                api_versions=[20],
                variants=[f"variant{variant}" for variant in range(VARIANTS)],
                parameters=[("size", "how large"), ("release", "which")],
                version=f"{number}",
                scripts=["create", "export", "import", "rename", "verify"],
            )
            for number in range(DEFINITIONS)
        ]

    answers: Handlers = {OS_DIAGNOSE.name: definitions}
    rpc = FakeRpc({node.name: answers for node in snapshot.nodes.values()})
    services: Any = SimpleNamespace(config=SimpleNamespace(snapshot=snapshot), rpc=rpc)
    fields = ["name", "variants", "valid", "api_versions", "parameters", "node_status", "hidden"]
    op = OpOsDiagnose(output_fields=fields)
    ctx = UnitContext(services, LoneRun(op))
    unit = LUOsDiagnose(op)
    begun = time.perf_counter()
    await unit.check_prereq(ctx)
    outcome = await unit.execute(ctx, None)
    took = time.perf_counter() - begun
    if len(outcome.result) != DEFINITIONS:
        raise RuntimeError(f"{len(outcome.result)} definitions were found")
    return took


def main() -> None:
    """Print the figures as one JSON object."""
    chosen = chosen_size(__doc__, "a smaller disk, one round")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled
    size, rounds = ((96, 1), (256, 1), (2048, ROUNDS))[chosen]
    figures = {"size_mib": size, **transfers(size, rounds)}
    figures["diagnose_s"] = round(asyncio.run(diagnose_s()), 3)
    print(json.dumps({**figures, "sync_ms": sync_ms(Path.cwd()), "spin_ms": spin_ms()}))


if __name__ == "__main__":
    main()
