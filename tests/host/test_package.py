"""The Debian package, installed in two roots of its own: a cluster is made of them.

A root is this host's files below an overlay, with its own network namespace, users and processes; the
checkout and everybody's home are hidden in it, so that only what the package brings is used.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.fast_files import DISK
from tests.support.local_cluster import wait_until
from tests.support.patience import ran, text_of

pytestmark = [
    pytest.mark.host,
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make roots"),
]

TOP = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}


START_MASTER = """
import asyncio
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import MASTERD, Daemons
from ganeti.bootstrap.init import answers

async def start():
    await Daemons(Paths()).start(MASTERD)
    await answers(Paths())

asyncio.run(start())
"""


def run(
    *words: str, check: bool = True, stdin: str | None = None
) -> "subprocess.CompletedProcess[str]":
    done = ran(words, given=stdin or "", limit_s=600)
    assert not check or done.returncode == 0, f"{words}:\n{done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(str(TOP / "scripts" / "build_deb"), sys.executable, str(out))
    [found] = out.glob("ganeti_*.deb")
    return found


class Root:
    """A host with a clean root; commands in it see nothing of the checkout."""

    def __init__(self, directory: Path, number: int, tag: str) -> None:
        self.directory, self.number = directory, number
        self.merged = directory / "merged"
        self.namespace = f"gnt-{tag}-{number}"
        self.name, self.address = f"node{number}.example.com", f"10.99.77.{number}"

    def mount(self) -> None:
        for part in ("upper", "work", "merged"):
            (self.directory / part).mkdir(parents=True)
        options = f"lowerdir=/,upperdir={self.directory}/upper,workdir={self.directory}/work"
        run("mount", "-t", "overlay", "overlay", "-o", options, str(self.merged))
        run("mount", "-t", "proc", "proc", str(self.merged / "proc"))
        run("mount", "--bind", "/dev", str(self.merged / "dev"))
        places = ["run", "tmp", "root", "var/lib/ganeti", "etc/ganeti", str(TOP.parent).lstrip("/")]
        for place in places:
            (self.merged / place).mkdir(parents=True, exist_ok=True)
            run("mount", "-t", "tmpfs", "tmpfs", str(self.merged / place))

    def unmount(self) -> None:
        mounted = Path("/proc/mounts").read_text().splitlines()
        points = [line.split()[1] for line in mounted]
        for point in reversed([one for one in points if one.startswith(f"{self.directory}/")]):
            run("umount", "-l", point, check=False)

    def words(self, argv: Sequence[str]) -> list[str]:
        inside = ["chroot", str(self.merged), "/usr/bin/env", "-i"]
        inside += [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        inside += [f"GANETI_HOSTNAME={self.name}", f"GANETI_ADDRESS={self.address}"]
        return ["ip", "netns", "exec", self.namespace, *inside, *argv]

    def ok(self, *argv: str, stdin: str | None = None) -> str:
        return run(*self.words(argv), stdin=stdin).stdout

    def processes(self) -> list[int]:
        """Those whose root this is."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and (entry / "root").readlink() == self.merged:
                    found.append(int(entry.name))
        return found


@pytest.fixture(scope="module")
def roots(package: Path) -> Iterator[list[Root]]:
    tag = secrets.token_hex(3)
    place = DISK / f"gnt-roots-{tag}"
    made = [Root(place / f"r{number}", number, tag) for number in (1, 2)]
    try:
        for one in made:
            run("ip", "netns", "add", one.namespace)
            one.mount()
        ends = [f"v{tag}{one.number}" for one in made]
        run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for one, end in zip(made, ends, strict=True):
            run("ip", "link", "set", end, "netns", one.namespace)
            inside = ["ip", "-n", one.namespace]
            run(*inside, "addr", "add", f"{one.address}/24", "dev", end)
            run(*inside, "link", "set", end, "up")
            run(*inside, "link", "set", "lo", "up")
            (one.merged / "tmp" / package.name).write_bytes(package.read_bytes())
            one.ok("dpkg", "--force-depends", "--force-conflicts", "-i", f"/tmp/{package.name}")
        yield made
    finally:
        for one in made:
            for pid in one.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            one.unmount()
            run("ip", "netns", "del", one.namespace, check=False)
        run("rm", "-rf", "--one-file-system", str(place), check=False)


def test_the_package_has_programs_pages_units_and_users(roots: list[Root]) -> None:
    root = roots[0]
    assert "ganeti" in root.ok("gnt-cluster", "--version")
    listed = root.ok("dpkg", "-L", "ganeti").splitlines()
    for path in (
        "/usr/sbin/gnt-instance",
        "/usr/sbin/ganeti-confd",
        "/usr/bin/hbal",
        "/usr/lib/ganeti/iallocators/hail",
        "/usr/lib/ganeti/tools/lvmstrap",
        "/usr/sbin/ganeti-guard",
        "/lib/systemd/system/ganeti-guard.service",
        "/lib/systemd/system/ganeti-watcher.timer",
        "/lib/systemd/system/ganeti-cleaner.timer",
        "/etc/logrotate.d/ganeti",
        "/usr/share/man/man8/gnt-instance.8.gz",
        "/usr/share/bash-completion/completions/gnt-instance",
        "/usr/share/bash-completion/completions/burnin",
    ):
        assert path in listed
    assert "gnt-masterd" in root.ok("getent", "passwd")
    assert "hail" in root.ok("hail", "--help")
    assert "lvmstrap" in root.ok("/usr/lib/ganeti/tools/lvmstrap", "--help")
    page = root.ok("man", "--warnings", "-l", "/usr/share/man/man8/gnt-instance.8.gz")
    assert "GNT-INSTANCE(8)" in page
    root.ok("bash", "-n", "/usr/share/bash-completion/completions/gnt-instance")
    where = root.ok(
        "/usr/lib/ganeti/python/bin/python3", "-c", "import ganeti; print(ganeti.__file__)"
    )
    assert where.startswith("/usr/lib/ganeti/python/")


def test_units_are_what_systemd_understands(roots: list[Root]) -> None:
    units = sorted((roots[0].merged / "lib/systemd/system").glob("ganeti-*"))
    assert len(units) >= 7
    said = roots[0].ok(
        "sh", "-c", "systemd-analyze verify /lib/systemd/system/ganeti-*.service 2>&1 || true"
    )
    ours = [line for line in said.splitlines() if "ganeti" in line]
    assert [
        line for line in ours if "Unknown" in line or "fatal" in line or "not an abs" in line
    ] == []


def test_what_a_unit_may_is_little(roots: list[Root]) -> None:
    for name, most in (("masterd", 50), ("confd", 45), ("rapi", 45), ("etcd", 50), ("mond", 75)):
        path = f"/lib/systemd/system/ganeti-{name}.service"
        words = ("systemd-analyze", "security", "--offline=true", f"--threshold={most}", path)
        assert "Overall exposure level" in roots[0].ok(*words)


def test_a_cluster_of_two_such_hosts_is_clean(roots: list[Root]) -> None:
    first, second = roots
    first.ok(
        *("gnt-cluster", "init", "--enabled-hypervisors=fake", "--enabled-disk-templates=diskless"),
        *("--file-storage-dir=", "--shared-file-storage-dir=", "--master-ip=10.99.77.1"),
        "cluster.example.com",
    )
    with subprocess.Popen(
        second.words(["ganeti-node-join"]), stdout=subprocess.PIPE, text=True
    ) as listener:
        assert listener.stdout is not None
        token = next(
            line.strip() for line in listener.stdout if len(line) > 100 and " " not in line.strip()
        )
        first.ok("gnt-node", "add", "--token-file=-", second.name, stdin=f"{token}\n")
        text_of(listener, 60)
    assert first.ok("gnt-node", "list", "--no-headers", "-o", "name").split() == [
        first.name,
        second.name,
    ]
    first.ok("gnt-cluster", "verify")
    done = second.ok("ganeti-confd-client", "-v", "master")
    assert done.strip() == first.name
    owners = first.ok("ps", "-eo", "user:20,args")
    assert any(
        line.startswith("gnt-confd") and "ganeti.daemons.confd" in line
        for line in owners.splitlines()
    )
    second.ok("gnt-cluster", "master-failover")
    second.ok("gnt-cluster", "verify")
    with daemons_as_their_units(second):
        second.ok("gnt-cluster", "verify")
        assert second.ok("ganeti-confd-client", "-v", "master").strip() == second.name
        page = f"https://{second.address}:5080/version"
        answer = second.ok("curl", "-sSk", "-m", "60", "-w", "%{http_code}", page)
        assert answer.endswith("401"), "it serves, and wants to know who asks"


@contextlib.contextmanager
def daemons_as_their_units(root: Root) -> Iterator[None]:
    """Daemons have the rights that their units leave them, as far as that works without systemd."""
    for name in ("masterd", "rapi", "confd"):
        for pid in root.processes():
            with contextlib.suppress(FileNotFoundError):
                if f"ganeti.daemons.{name}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    end(pid)
    with contextlib.ExitStack() as started:
        for name in ("confd", "rapi", "masterd"):
            started.enter_context(as_its_unit(root, name))
        yield


def end(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), f"process {pid} has ended", 60)


@contextlib.contextmanager
def as_its_unit(root: Root, name: str) -> Iterator[None]:
    unit = (root.merged / f"lib/systemd/system/ganeti-{name}.service").read_text()
    [rights] = [one for one in unit.splitlines() if one.startswith("CapabilityBoundingSet=")]
    kept = [f"+{one.removeprefix('CAP_').lower()}" for one in rights.partition("=")[2].split()]
    words = ["setpriv", "--no-new-privs", f"--bounding-set=-all,{','.join(kept)}"]
    pid_file = root.merged / f"run/ganeti/ganeti-{name}.pid"
    with subprocess.Popen(root.words([*words, f"/usr/sbin/ganeti-{name}"])) as daemon:
        try:
            wait_until(
                lambda: pid_file.exists() and pid_file.read_text().startswith(f"{daemon.pid} "),
                f"{name} serves",
                90,
            )
            yield
        finally:
            daemon.terminate()


def test_a_purge_after_the_end_of_the_cluster_leaves_nothing(roots: list[Root]) -> None:
    first, second = roots
    # The test before this one has ended the daemons that it had started.
    second.ok("/usr/lib/ganeti/python/bin/python3", "-c", START_MASTER)
    second.ok("gnt-node", "remove", first.name)
    second.ok("gnt-cluster", "destroy", "--yes-do-it")
    for root in (first, second):
        assert "gnt-masterd" in root.ok("getent", "passwd")
        root.ok("dpkg", "-P", "ganeti")
        assert "gnt-" not in root.ok("getent", "passwd")
        assert "gnt-" not in root.ok("getent", "group")
        for place in ("etc/ganeti", "var/lib/ganeti"):  # mounted, so that they themselves stay
            assert list((root.merged / place).iterdir()) == [], place
        for place in ("var/log/ganeti", "run/ganeti", "var/cache/ganeti/images"):
            assert not (root.merged / place).exists(), place
