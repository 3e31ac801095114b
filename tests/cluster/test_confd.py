"""Query daemons of real candidates: what they answer, when they are there, and what they never do."""

import contextlib
import functools
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.paths import CONFD_PORT
from ganeti.base.roles import held_files
from ganeti.bootstrap.daemons import CONFD, MASTERD
from ganeti.node.files import candidates_only
from ganeti.protocols.confd import (
    Answer,
    NodeRole,
    Query,
    QueryType,
    Request,
    pack_request,
    parse_answer,
)
from tests.support.crash_points import HAS_STRACE
from tests.support.debian_ganeti import run_debian
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.patience import patience

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
OP_ADD = {
    "OP_ID": "OP_INSTANCE_CREATE",
    "mode": "create",
    "disk_template": "diskless",
    "disks": [],
    "nics": [],
    "pnode": "node2.vcluster.test",
    "os_type": "none",
    "no_install": True,
    "start": False,
    "name_check": False,
    "ip_check": False,
    "reason": [],
}


class Asking:
    """A client that has the key, with one socket."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.key = cluster.cluster.master.paths.confd_key.read_bytes()
        self.addresses = [node.address for node in cluster.cluster.nodes]
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(2)

    def ask(self, number: int, kind: QueryType, query: Query = None) -> Answer:
        """The answer of one node."""
        rsalt = secrets.token_hex(8)
        packet = pack_request(self.key, Request(1, kind, rsalt, query), time.time())
        self.socket.sendto(packet, (self.addresses[number - 1], CONFD_PORT))
        while (answer := parse_answer(self.socket.recv(65_536), self.key, rsalt)) is None:
            continue
        return answer

    def answers(self, number: int) -> bool:
        self.socket.settimeout(0.2)
        try:
            self.ask(number, QueryType.PING)
        except OSError:
            return False
        finally:
            self.socket.settimeout(2)
        return True

    def close(self) -> None:
        self.socket.close()


@pytest.fixture(scope="module")
def answering() -> Iterator[LocalCluster]:
    with local_cluster("--confd") as cluster:
        # It is silent until it has read the state for the first time.
        with contextlib.closing(Asking(cluster)) as asking:
            for node in (1, 2, 3):
                answers = functools.partial(asking.answers, node)
                wait_until(answers, f"confd of node {node} answers")
        yield cluster


@pytest.fixture
def asking(answering: LocalCluster) -> Iterator[Asking]:
    with contextlib.closing(Asking(answering)) as made:
        yield made


@pytest.mark.requirement("S50", "S53", "S56", "S61")
def test_every_candidate_answers_a_change_within_a_second(
    answering: LocalCluster, asking: Asking
) -> None:
    """And candidates that stand at the same serial say the same."""
    seen: dict[int, object] = {}
    with answering.luxi() as client:
        for number in range(4):
            name = f"c{number}.example.com"
            before = asking.ask(1, QueryType.PING).serial
            job = client.call("SubmitJob", [{**OP_ADD, "instance_name": name}])
            while client.call("QueryJobs", [job], ["status"])[0][0] not in ("success", "error"):
                for node in (1, 2, 3):
                    answer = asking.ask(node, QueryType.INSTANCES)
                    assert seen.setdefault(answer.serial, answer.answer) == answer.answer
            done = time.monotonic()
            for node in (1, 2, 3):
                while name not in (answer := asking.ask(node, QueryType.INSTANCES)).answer:
                    assert time.monotonic() - done < 1 * patience()
                assert answer.serial > before
                assert asking.ask(node, QueryType.INSTANCE_PRIMARY_NODE, name).answer == (
                    "node2.vcluster.test"
                )
    assert len(seen) > 2
    answering.ok("gnt-instance", "remove", "-f", "c0.example.com")
    wait_until(
        lambda: "c0.example.com" not in asking.ask(3, QueryType.INSTANCES).answer, "it is gone"
    )


@pytest.mark.requirement("S50", "S51")
def test_it_comes_and_goes_with_the_candidates_role(
    answering: LocalCluster, asking: Asking
) -> None:
    key = answering.node(3).paths.confd_key
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_bytes() == asking.key
    answering.ok("gnt-node", "modify", "--master-candidate=no", "-f", "node3")
    wait_until(lambda: not answering.runs(CONFD, 3), "confd of node 3 has ended")
    wait_until(lambda: not key.exists(), "node 3 has no key")
    of_candidates = candidates_only(answering.node(3).paths)
    wait_until(
        lambda: not any(path.exists() for path in of_candidates),
        "node 3 has no other secret of candidates",
    )
    assert not asking.answers(3)
    role = asking.ask(1, QueryType.NODE_ROLE_BY_NAME, "node3.vcluster.test")
    assert role.answer == NodeRole.REGULAR
    answering.ok("gnt-node", "modify", "--master-candidate=yes", "node3")
    wait_until(lambda: answering.runs(CONFD, 3), "confd of node 3 serves")
    wait_until(lambda: asking.answers(3), "node 3 answers")
    assert key.read_bytes() == asking.key
    secrets_of = [
        [path.read_bytes() for path in candidates_only(answering.node(node).paths) if path.exists()]
        for node in (1, 3)
    ]
    assert secrets_of[0] == secrets_of[1]
    assert len(secrets_of[0]) >= 2


@pytest.mark.requirement("S238", "G23", "S51")
def test_regular_node_answers_by_option_and_loses_everything_without_it(
    answering: LocalCluster, asking: Asking
) -> None:
    node = answering.node(3)
    paths = node.paths
    copy = (paths.own_confd_key, paths.confd_copy)
    answering.ok("gnt-node", "modify", "--master-candidate=no", "-f", "node3")
    wait_until(lambda: not answering.runs(CONFD, 3), "confd of node 3 has ended")
    answering.ok("gnt-cluster", "modify", "--confd-on-all-nodes=yes")
    assert "confd on all nodes: True" in answering.ok("gnt-cluster", "info").out

    def primary_node(instance: str, asked_from: int = 3) -> str:
        words = ("-t", "1", "-a", node.address, "primary-node", instance)
        return answering.run("ganeti-confd-client", *words, node=asked_from).out.strip()

    try:
        wait_until(lambda: answering.runs(CONFD, 3), "confd of node 3 runs")
        answering.ok(
            "gnt-instance",
            "add",
            "-t",
            "diskless",
            "--no-install",
            "-n",
            "node2",
            "copied.example.com",
        )
        wanted = "node2.vcluster.test"
        wait_until(lambda: primary_node("copied.example.com") == wanted, "node 3 asks itself")
        assert primary_node("copied.example.com", asked_from=1) == wanted
        # It holds neither the cluster's key nor another secret of candidates.
        assert not asking.answers(3)
        assert {
            path.name.partition("-wal")[0].partition("-shm")[0] for path in held_files(paths)
        } == {path.name for path in copy}
        answering.kill(CONFD, 3)
        assert answering.run("ganeti-watcher", node=3).status == 0
        assert answering.runs(CONFD, 3)
        paths.confd_copy.unlink()
        wait_until(lambda: not answering.runs(CONFD, 3), "confd ends without its copy")
        answering.ok("gnt-cluster", "modify", "--confd-on-all-nodes=no")
        wait_until(lambda: held_files(paths) == [], "node 3 has lost what it answered from")
        assert not answering.runs(CONFD, 3)
        # What comes back otherwise goes with the next run of the watcher.
        paths.own_confd_key.write_bytes(b"k" * 64)
        assert answering.run("ganeti-watcher", node=3).status == 0
        assert held_files(paths) == []
        # A node that becomes a candidate has the cluster's key in the place of its own.
        answering.ok("gnt-cluster", "modify", "--confd-on-all-nodes=yes")
        wait_until(lambda: primary_node("copied.example.com") == wanted, "node 3 answers again")
        answering.ok("gnt-node", "modify", "--master-candidate=yes", "node3")
        wait_until(lambda: asking.answers(3), "node 3 answers as a candidate")
        assert not any(path.exists() for path in copy)
        answering.ok("gnt-cluster", "verify")
    finally:
        answering.ok("gnt-cluster", "modify", "--confd-on-all-nodes=no")
        answering.ok("gnt-instance", "remove", "-f", "copied.example.com")
        answering.run("gnt-node", "modify", "--master-candidate=yes", "node3")


@pytest.mark.requirement("S63")
def test_confd_answers_while_the_master_is_dead(answering: LocalCluster, asking: Asking) -> None:
    answering.kill(MASTERD, 1)
    try:
        for node in (1, 2, 3):
            assert asking.ask(node, QueryType.MASTER).answer == "node1.vcluster.test"
        done = answering.run("ganeti-confd-client", "-v", "node-ips", node=2)
        assert done.status == 0, done.err
        assert answering.node(3).address in done.out
        assert re.search(r"serial \d+, [23] of 3", done.err)
    finally:
        answering.start(MASTERD)


@pytest.mark.requirement("G25", "A38")
def test_garbage_gets_no_answer_and_costs_no_memory(
    answering: LocalCluster, asking: Asking
) -> None:
    pid = answering.pid(CONFD)
    forged = pack_request(b"no key of this cluster", Request(1, 0, "r"), time.time())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.connect((answering.node(1).address, CONFD_PORT))
        stranger.setblocking(False)

        def throw(count: int) -> None:
            for number in range(count):
                with contextlib.suppress(BlockingIOError):
                    stranger.send(forged if number % 2 else secrets.token_bytes(200))

        throw(2000)
        asking.ask(1, QueryType.PING)
        before = resident_kib(pid)
        throw(20_000)
        asking.ask(1, QueryType.PING)
        assert resident_kib(pid) - before < 1024
        with pytest.raises(BlockingIOError):
            stranger.recv(1)


def resident_kib(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


@pytest.mark.requirement("S64", "S63")
@pytest.mark.skipif(not HAS_STRACE, reason="strace is not installed")
def test_confd_contacts_no_process_and_writes_nothing(
    answering: LocalCluster, asking: Asking, tmp_path: Path
) -> None:
    """So neither a dead master nor a full disk keeps it from answering."""
    record = tmp_path / "calls"
    words = [
        "-e",
        "trace=connect,sendto,sendmsg,write,pwrite64,ftruncate,fallocate,openat,unlink,rename",
    ]
    with subprocess.Popen(
        ["strace", "-f", "-p", str(answering.pid(CONFD)), "-o", str(record), *words],
        stderr=subprocess.DEVNULL,
    ) as tracer:
        try:
            wait_until(record.exists, "strace records")
            answering.ok("gnt-cluster", "add-tags", "traced")
            serial = asking.ask(2, QueryType.PING).serial
            wait_until(
                lambda: asking.ask(1, QueryType.PING).serial >= serial, "the change was followed"
            )
            for kind in (QueryType.MASTER, QueryType.NODE_IPS, QueryType.INSTANCES):
                asking.ask(1, kind)
        finally:
            tracer.send_signal(signal.SIGINT)
    calls = record.read_text()
    answers = len(re.findall(r"sendto\(\d+, \"plj0", calls))
    assert answers >= 4
    # A write of one byte wakes the loop when its thread has read the database.
    calls = re.sub(r".*write\(\d+, \"\\0\", 1\).*\n", "", calls)
    others = [
        line
        for line in calls.splitlines()
        if re.match(r"\d+ +\w+\(", line) and "sendto(" not in line and "unfinished" not in line
    ]
    assert others == []


@pytest.mark.requirement("S56")
def test_one_address_in_two_networks_is_two_instances(
    answering: LocalCluster, asking: Asking
) -> None:
    for number in (1, 2):
        name, link = f"lan{number}", f"link={100 + number}"
        answering.ok("gnt-network", "add", "--network=192.0.2.0/24", name)
        answering.ok("gnt-network", "connect", name, f"--nic-parameters=mode=routed,{link}")
        answering.ok(
            "gnt-instance", "add", "-t", "diskless", "--no-install", "-n", f"node{number}",
            f"--net=0:ip=192.0.2.7,network={name}", f"n{number}.example.com",
        )  # fmt: skip
    for number in (1, 2):
        query: Query = {"0": str(100 + number), "1": "192.0.2.7"}
        wanted = answering.node(number).address

        def is_known(query: Query = query, wanted: str = wanted) -> bool:
            return bool(asking.ask(3, QueryType.NODE_IP_BY_INSTANCE_IP, query).answer == wanted)

        wait_until(is_known, f"the address at link {100 + number} is known")
    assert asking.ask(3, QueryType.INSTANCE_IPS, "102").answer == ["192.0.2.7"]
    for number in (1, 2):
        answering.ok("gnt-instance", "remove", "-f", f"n{number}.example.com")


@pytest.mark.requirement("S50", "S57")
def test_debians_own_client_understands_the_answers(answering: LocalCluster) -> None:
    node = answering.node(1)
    done = run_debian("confd-client", node.paths, "-a", node.address, "-r", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert "non-ok" not in said
    for line in ("Ping: OK", "Master: OK (node1.vcluster.test)", "Node role for master: OK"):
        assert line in said
    assert "Master candidates primary IP query: OK" in said
    assert "per instance ips request" in said


def with_address_scripts(cluster: LocalCluster) -> Path:
    """Each node has an administrator's script for the cluster's address; where they write who did what."""
    record = cluster.directory / "address"
    for node in (1, 2, 3):
        path = cluster.node(node).paths.master_ip_script
        path.parent.mkdir(mode=0o755, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "node{node} $1 $MASTER_NETDEV" >>{record}\n')
        path.chmod(0o755)
    cluster.ok("gnt-cluster", "modify", "--master-netdev=lo", "--use-external-mip-script=yes")
    assert record.read_text() == "node1 start lo\n"
    return record


def taken(record: Path, by: int) -> None:
    """Wait until a new master has the address; the others were told first."""
    start = f"node{by} start lo"
    wait_until(lambda: record.read_text().endswith(f"{start}\n"), f"node {by} has the address")
    *stops, last = record.read_text().splitlines()[-3:]
    assert (sorted(stops), last) == (
        [f"node{node} stop lo" for node in (1, 2, 3) if node != by],
        start,
    )


@pytest.mark.requirement("F39", "S51", "G22", "S206", "F5")
def test_keys_and_certificates_are_renewed_while_the_cluster_works(answering: LocalCluster) -> None:
    paths = [node.paths for node in answering.cluster.nodes]

    def content(name: str) -> list[bytes]:
        return [(one.data / name).read_bytes() for one in paths]

    shared = ("ca.pem", "ca.key", "hmac.key", "cluster-domain-secret")
    own = ("node.pem", "node.key")
    before = {name: content(name) for name in (*shared, *own)}
    words = ["new-cluster-certificate", "new-confd-hmac-key", "new-cluster-domain-secret"]
    words += ["new-rapi-certificate", "new-spice-certificate"]
    answering.ok("gnt-cluster", "renew-crypto", "--force", *(f"--{word}" for word in words))
    for name in shared:
        now = content(name)
        assert len(set(now)) == 1, name
        assert not set(now) & set(before[name]), name
    for name in own:
        assert not set(content(name)) & set(before[name]), name
    assert not [path for one in paths for path in one.data.glob("*.next")]
    assert not [path for one in paths for path in one.data.glob("*.former")]
    answering.ok("gnt-cluster", "verify")
    fresh = Asking(answering)
    for node in (1, 2, 3):
        assert fresh.ask(node, QueryType.MASTER).answer == "node1.vcluster.test"
    fresh.socket.close()
    record = with_address_scripts(answering)
    assert answering.run("gnt-cluster", "master-failover", node=2).status == 0
    assert answering.run("gnt-cluster", "verify", node=2).status == 0
    taken(record, by=2)
    assert answering.run("gnt-cluster", "master-failover", node=1).status == 0
    taken(record, by=1)
    answering.ok("gnt-cluster", "modify", "--master-netdev=", "--use-external-mip-script=no")
    assert record.read_text().endswith("node1 start lo\nnode1 stop lo\n")


@pytest.mark.requirement("S50")
def test_confd_ends_when_its_file_is_abandoned(answering: LocalCluster, asking: Asking) -> None:
    state = answering.node(2).paths.state
    pid = answering.pid(CONFD, 2)
    moved = state.with_name("moved")
    state.rename(moved)
    try:
        wait_until(lambda: not answering.runs(CONFD, 2), "confd of node 2 has ended")
    finally:
        moved.rename(state)
    assert answering.start(CONFD, 2) != pid
    assert asking.ask(2, QueryType.MASTER).answer == "node1.vcluster.test"
