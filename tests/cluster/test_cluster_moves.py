"""Instances go from one real cluster to another, by REST and by sockets: in one place, whole, whatever dies."""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED, RAPI
from ganeti.cli import move_instance
from ganeti.cli.remote_clusters import FINAL, RestCluster
from tests.support.debian_ganeti import run_debian
from tests.support.local_cluster import NOOP, LocalCluster, local_cluster, wait_until
from tests.support.patience import text_of

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(400)]

MIB = 1024 * 1024
USER, PASSWORD = "mover", "a-password"


@dataclass
class Both:
    """Two clusters that share a secret, and files for who moves instances."""

    source: LocalCluster
    target: LocalCluster
    directory: Path
    former: set[Path] = field(default_factory=set)
    """Keys of moves that were refused before: they wait for the watcher (S219)."""

    @property
    def all(self) -> tuple[LocalCluster, LocalCluster]:
        return self.source, self.target

    @property
    def rest(self) -> list[str]:
        """Options and both names."""
        return [
            f"--src-username={USER}",
            f"--src-password-file={self.directory / 'password'}",
            f"--src-ca-file={self.directory / 'source.pem'}",
            f"--dest-ca-file={self.directory / 'target.pem'}",
            *[one.node(1).address for one in self.all],
        ]

    @property
    def sockets(self) -> list[str]:
        return [str(one.node(1).paths.luxi_socket) for one in self.all]

    def add(
        self,
        name: str,
        sizes: tuple[int, ...] = (4, 2),
        system: tuple[str, ...] = ("--no-install",),
    ) -> list[str]:
        """An instance of the source with data; the digests of its disks."""
        self.former = self.keys()
        disks = [word for index, size in enumerate(sizes) for word in ("--disk", f"{index}:size={size}m")]  # fmt: skip
        self.source.ok(
            "gnt-instance", "add", "-t", "file", *disks, *system, "-B", "memory=16m",
            "--no-nics", "-n", "node1", "--no-start", name, timeout_s=120,
        )  # fmt: skip
        for path in disks_of(self.source, name):
            with path.open("r+b") as disk:
                disk.write(os.urandom(MIB))
        return digests(self.source, name)

    def check_nothing_is_left(self) -> None:
        """No key, no program of a transfer, and no disk that no instance has."""
        for cluster in self.all:
            paths = cluster.node(1).paths
            assert not list(paths.streams.glob("*"))
        assert self.keys() <= self.former

    def keys(self) -> set[Path]:
        """The keys of transfers on all nodes."""
        places = [cluster.node(1).paths.transfer_keys for cluster in self.all]
        return {path for place in places for path in place.glob("*")}


def disks_of(cluster: LocalCluster, instance: str) -> list[Path]:
    places = [cluster.node(1).paths.below("/srv/ganeti/file-storage"), cluster.directory / "shared"]
    found = [path for place in places for path in place.rglob(f"{instance}*/*")]
    return sorted(found, key=lambda path: path.name.partition(".disk")[2])


def digests(cluster: LocalCluster, instance: str) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in disks_of(cluster, instance)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    directory = tmp_path_factory.mktemp("moves")
    with ExitStack() as stack:
        source, target = [stack.enter_context(local_cluster("--rapi", nodes=1)) for _ in range(2)]
        made = Both(source, target, directory)
        secret = made.source.node(1).paths.cluster_domain_secret
        said = made.target.ok(
            "gnt-cluster", "renew-crypto", "-f", f"--cluster-domain-secret={secret}"
        ).out
        assert "cluster domain secret" in said
        for cluster, name in zip(made.all, ("source", "target"), strict=True):
            users = cluster.node(1).paths.rapi_users
            users.write_text(f"{USER} {PASSWORD} write\n")
            users.chmod(0o600)
            wait_until(partial(cluster.runs, RAPI), "the REST server runs")
            pem = cluster.node(1).paths.rapi_certificate.read_text()
            (directory / f"{name}.pem").write_text(pem[pem.index("-----BEGIN CERTIFICATE") :])
        (directory / "password").write_text(f"{PASSWORD}\n")
        yield made


@pytest.mark.requirement("S203", "S206", "S210", "S211", "S212", "S214", "S215", "S216", "G14")
def test_two_instances_are_moved_by_rest_and_no_key_is_seen(
    both: Both, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {name: both.add(name) for name in ("web1.example.com", "web2.example.com")}
    traffic: list[str] = []
    ask = RestCluster._ask

    def recorded(self: RestCluster, method: str, path: str, body: Any = None) -> Any:
        answer = ask(self, method, path, body)
        traffic.append(json.dumps([path, body, answer]))
        return answer

    monkeypatch.setattr(RestCluster, "_ask", recorded)
    status = move_instance.run([*both.rest, "--parallel=2", *data])
    said = capsys.readouterr()
    assert status == 0, said.err
    for name, wanted in data.items():
        assert f"{name}: moved" in said.out
        assert digests(both.target, name) == wanted
        assert disks_of(both.source, name) == []
    assert both.source.names("instance") == set()
    assert both.target.names("instance") == set(data)
    both.check_nothing_is_left()
    secret = both.source.node(1).paths.cluster_domain_secret.read_text().strip()
    whole = "\n".join(traffic)
    assert "BEGIN CERTIFICATE" in whole
    assert "PRIVATE KEY" not in whole
    assert secret not in whole
    for name in data:
        both.target.ok("gnt-instance", "remove", "-f", name)


@pytest.mark.requirement("S203", "S217", "S221", "S216")
def test_one_is_moved_by_sockets_to_other_disks_and_kept(both: Both) -> None:
    data = both.add("db1.example.com", (3,))
    done = both.source.ok(
        "move-instance", "--keep-source-instance", "--dest-disk-template=sharedfile",
        "--dest-instance-name=db9.example.com", "--compress=gzip", *both.sockets,
        "db1.example.com", timeout_s=200,
    )  # fmt: skip
    assert "moved, and kept, down" in done.out
    assert both.target.value("instance", "db9.example.com", "disk_template") == "sharedfile"
    assert (
        digests(both.target, "db9.example.com") == data == digests(both.source, "db1.example.com")
    )
    both.check_nothing_is_left()
    both.target.ok("gnt-instance", "remove", "-f", "db9.example.com")
    both.source.ok("gnt-instance", "remove", "-f", "db1.example.com")


@pytest.mark.requirement("S203", "S208", "S213", "G14", "F32")
def test_forbidden_or_invalid_moves_are_refused_without_changes(both: Both) -> None:
    data = both.add("mail1.example.com", (2,))
    (both.directory / "wrong").write_text("nothing\n")
    wrong = [
        ([f"--src-password-file={both.directory / 'wrong'}"], "refuses (401)"),
        ([f"--dest-ca-file={both.directory / 'source.pem'}"], "certificate verify failed"),
        (["--dest-disk-template=plain"], "plain"),
        (["--dest-rapi-port=1"], "cannot query"),
    ]
    for options, text in wrong:
        said = both.source.fails("move-instance", *both.rest, *options, "mail1.example.com")
        assert "was not moved" in said
        assert text in said
    other = both.directory / "another-secret"
    other.write_text("7" * 40 + "\n")
    secret = both.source.node(1).paths.cluster_domain_secret
    both.target.ok("gnt-cluster", "renew-crypto", "-f", f"--cluster-domain-secret={other}")
    said = both.source.fails("move-instance", *both.sockets, "mail1.example.com")
    assert "a different domain secret" in said
    both.target.ok("gnt-cluster", "renew-crypto", "-f", f"--cluster-domain-secret={secret}")
    assert digests(both.source, "mail1.example.com") == data
    assert both.target.names("instance") == set()
    both.source.ok("gnt-instance", "remove", "-f", "mail1.example.com")


@pytest.mark.requirement("S203", "S208", "S209", "S214")
@pytest.mark.parametrize("has_os", [pytest.param(True, marks=pytest.mark.soak), False])
def test_debian_s_own_move_instance_moves_one_between_our_clusters(
    both: Both, *, has_os: bool
) -> None:
    if has_os:
        for one in both.all:
            one.install_noop()
    with_os = ("-o", NOOP, "-O", f"record={both.source.record}")
    data = both.add("ns1.example.com", system=with_os if has_os else ("--no-install",))
    done = run_debian(
        "move-instance", both.source.node(1).paths, "--debug",
        "--iallocator=hail", "--opportunistic-tries=1", *both.rest,
        "ns1.example.com", timeout_s=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert both.source.names("instance") == set()
    assert digests(both.target, "ns1.example.com") == data
    both.check_nothing_is_left()
    both.target.ok("gnt-instance", "remove", "-f", "ns1.example.com")


KILLS: dict[str, tuple[str, str, float]] = {
    "source's master, before the disks": ("source", "waiting for the destination", 0.0),
    "target's master, before the disks": ("target", "waiting for the destination", 0.5),
    "source's master, in the disks": ("source", "sending the disks", 0.3),
    "target's master, in the disks": ("target", "sending the disks", 0.3),
    "target's master, late": ("target", "sending the disks", 2.0),
    "source's master, late": ("source", "sending the disks", 2.0),
}


@pytest.mark.soak
@pytest.mark.requirement("G14", "F32", "S218", "S216")
@pytest.mark.parametrize("when", KILLS)
@pytest.mark.parametrize("daemon", [MASTERD, NODED])
def test_a_death_at_any_step_leaves_it_whole_in_one_place(
    both: Both, when: str, daemon: str
) -> None:
    which, line, delay = KILLS[when]
    name = "app1.example.com"
    data = both.add(name, (96, 32))
    cluster = both.source if which == "source" else both.target
    mover = subprocess.Popen(
        both.source.node(1).words(["move-instance", *both.sockets, name]),
        env=both.source.node(1).environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with mover:
        assert mover.stdout is not None
        for said in mover.stdout:
            if line in said:
                break
        time.sleep(delay)
        cluster.kill(daemon)
        time.sleep(1.0)
        cluster.start(daemon)
        text_of(mover, 300)
    wait_until(_is_idle(both.source), "all jobs of the source have ended", 300)
    # The destination would wait ten minutes for who never comes.
    if jobs_of(both.source)[-1] != ("success", f"BACKUP_EXPORT({name})"):
        both.target.run("gnt-job", "cancel", "-f", "--running", "--kill", "--yes-do-it")
    wait_until(_is_idle(both.target), "all jobs of the destination have ended", 300)
    kept = {one.names("instance") == {name} for one in both.all}
    places = [one for one in both.all if name in one.names("instance")]
    assert places, f"{name} is nowhere: {kept}"
    for one in places:
        assert digests(one, name) == data
    if len(places) == 2:  # the source was never told: it is down there
        assert both.source.value("instance", name, "admin_state") == "down"
    for one in places:
        one.ok("gnt-instance", "remove", "-f", name, timeout_s=120)
    for one in both.all:
        assert disks_of(one, name) == []
        assert not list(one.node(1).paths.streams.glob("*/stream.commit"))


def _is_idle(cluster: LocalCluster) -> Callable[[], bool]:
    return lambda: {status for status, _what in jobs_of(cluster)} <= set(FINAL)


def jobs_of(cluster: LocalCluster) -> list[tuple[str, str]]:
    """Status and summary of all jobs, the newest last."""
    with cluster.luxi() as client:
        rows = client.call("QueryJobs", None, ["status", "summary"])
    return [(status, summary[0]) for status, summary in rows]
