"""The tutorial's commands, word for word: in two virtual machines with a whole Debian system, and partly without them."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from ganeti.vcluster.machine_image import archive
from tests.support.cloud_image import small_image
from tests.support.debian_machine import debian_machines
from tests.support.local_cluster import LocalCluster, local_cluster
from tests.support.patience import patience
from tests.support.tiny_guest import build_tiny_guest

pytestmark = [pytest.mark.host, pytest.mark.in_turn]

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "docs" / "tutorial.md").read_text()
PROMPT = re.compile(r"(node1|node2|both)# (.+)")
BOOT_S = 900
"""Emulated in an emulated machine, the guest boots for a minute on a quiet host."""
IMAGE = "debian-12-nocloud-amd64.qcow2"
# Answers on its serial line as the system of the real image does, as far as the page shows it.
GUEST = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec </dev/ttyS0 >/dev/ttyS0 2>&1
while :; do
  printf '\nlocalhost login: '
  read -r name
  [ "$name" = root ] || continue
  while printf 'root@localhost:~# ' && read -r line && [ "$line" != exit ]; do eval "$line"; done
done
"""
_SERVER = """import http.server, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/served/certificate", "/served/key")
server = http.server.HTTPServer(("127.0.0.1", 443), http.server.SimpleHTTPRequestHandler)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
_SERVE = f"""set -e
mkdir -p /served/images/cloud/bookworm/latest
cd /served
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=tests \\
  -addext subjectAltName=DNS:cloud.debian.org -keyout key -out certificate 2>/dev/null
cat certificate >>/etc/ssl/certs/ca-certificates.crt
echo "127.0.0.1 cloud.debian.org" >>/etc/hosts
cp /mnt/{IMAGE} images/cloud/bookworm/latest/
(cd images/cloud/bookworm/latest && sha512sum * >SHA512SUMS)
setsid python3 /mnt/server.py >/dev/null 2>&1 &
"""


@dataclass(frozen=True)
class Step:
    """A command of the page, and the lines that it shows."""

    machine: str
    command: str
    shown: tuple[str, ...]


def steps() -> list[Step]:
    found: list[Step] = []
    text = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)  # the drawing
    for line in re.findall(r"^    (.*)$", text, re.MULTILINE):
        if begins := PROMPT.fullmatch(line):
            found.append(Step(begins[1], begins[2], ()))
        elif line:
            last = found.pop()
            found.append(Step(last.machine, last.command, (*last.shown, line)))
    return found


def check_shown(step: Step, said: str) -> None:
    """Each line of the page is in the output, in order; … stands for any text, and any space for any other."""
    rest = [" ".join(line.split()) for line in said.splitlines()]
    for line in step.shown:
        parts = (re.escape(part.strip()) for part in " ".join(line.split()).split("…"))
        wanted = re.compile(r"\s*.*\s*".join(parts))
        places = [at for at, one in enumerate(rest) if wanted.fullmatch(one)]
        assert places, f"{step.command} does not show {line!r}:\n{said}"
        del rest[: places[0] + 1]


class Runs(Protocol):
    """A machine, or a node on this host."""

    def ok(self, script: str, limit_s: float = 600) -> str:
        """Run a script as root, which must succeed; return its output."""


class Session:
    """Two machines, on which the commands of the page run; `typed` is a file there."""

    def __init__(self, machines: Sequence[Runs], typed: str = "/run/typed") -> None:
        self._machines = dict(zip(("node1", "node2"), machines, strict=True))
        self._typed = typed
        self.uptime_s = 0

    def run(self, step: Step) -> None:
        wanted = ("node1", "node2") if step.machine == "both" else (step.machine,)
        for name in wanted:
            check_shown(step, self._said(self._machines[name], step.command))

    def _said(self, machine: Runs, command: str) -> str:
        program = " ".join(command.split()[:2])
        if program == "ganeti-node-join":
            return self._waits(machine, command)
        if program == "gnt-node add":
            token = self._machines["node2"].ok("grep -m 1 '^[^ ]\\{100,\\}$' /run/waits.said")
            return machine.ok(f"{command} <<'END'\n{token}END")
        if program == "gnt-instance console":
            return self._types(machine, command)
        return machine.ok(f"cd; {command}")

    def _waits(self, machine: Runs, command: str) -> str:
        """Start a command that waits while others run, as in another terminal; return its output so far."""
        machine.ok(f"cd; setsid {command} >/run/waits.said 2>&1 </dev/null &")
        machine.ok("until grep -q '^[^ ]\\{100,\\}$' /run/waits.said; do sleep 1; done")
        return machine.ok("cat /run/waits.said")

    def _types(self, machine: Runs, command: str) -> str:
        """Log in on a console and ask for the uptime; return the output."""
        typed = self._typed
        keys = (
            # The console may end before it shows what is waited for.
            f"wait_for() {{ until grep -aqE \"$1\" {typed}; do ! grep -aq '^Script done' {typed} || exit;"
            ' sleep 2; "${@:2}"; done; }; '
            "wait_for '(login:|~#) *$' echo; "
            # The guest answers an Enter with a second prompt.
            f'until [ "$size" = "$(stat -c %s {typed})" ]; '
            f"do size=$(stat -c %s {typed}); sleep 5; done; "
            f"grep -aqE '~# *$' {typed} || echo root; "
            "wait_for '~# *$'; "
            "echo 'cut -d. -f1 /proc/uptime'; wait_for '^[0-9]+'; "
            r"printf '\035'"
        )
        words = f"script -qefc {shlex.quote(command)} {typed}"
        said = machine.ok(f": >{typed}; cd; ({keys}) | timeout -k 9 {BOOT_S} {words}", 2 * BOOT_S)
        [seconds] = re.findall(r"^([0-9]+)\s*$", said, re.MULTILINE)
        assert int(seconds) > self.uptime_s, "the guest was started again"
        self.uptime_s = int(seconds)
        return said


def build_package(directory: Path) -> None:
    words = [str(TOP / "scripts" / "build_deb"), sys.executable, str(directory)]
    subprocess.run(words, check=True, capture_output=True)


def build_guest(directory: Path, work: Path) -> None:
    """What the page downloads: an image with a small system."""
    guest, initrd = build_tiny_guest(), work / "initrd"
    initrd.write_bytes((guest / "initrd").read_bytes() + archive({"init": GUEST.encode()}))
    append = f"console=ttyS0 quiet {(guest / 'kernel-args').read_text().strip()}"
    small_image(work / IMAGE, guest / "vmlinuz", initrd, append)
    (work / IMAGE).rename(directory / IMAGE)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    work = tmp_path_factory.mktemp("machines")
    files = work / "files"
    files.mkdir()
    build_package(files)
    build_guest(files, work)
    (files / "server.py").write_text(_SERVER)
    names = {"node1.example.com": "192.0.2.11", "node2.example.com": "192.0.2.12"}
    with debian_machines(work, names, files) as machines:
        machines[0].ok(_SERVE)
        for one in machines:
            one.ok("cp /mnt/ganeti_*.deb /root/")
        yield Session(machines)


class LocalNode:
    """A node of a virtual cluster on this host."""

    def __init__(self, cluster: LocalCluster, number: int) -> None:
        self._cluster, self._number = cluster, number

    def ok(self, script: str, limit_s: float = 600) -> str:
        words = self._cluster.node(self._number).words(["bash", "-c", script])
        env = self._cluster.environment(self._number)
        done = subprocess.run(
            words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=limit_s * patience(), check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{script} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout


@pytest.mark.timeout(600)
def test_commands_from_the_image_on_do_what_the_page_shows_in_a_virtual_cluster(
    tmp_path: Path,
) -> None:
    files, work = tmp_path / "files", tmp_path / "work"
    files.mkdir()
    work.mkdir()
    build_guest(files, work)
    found = steps()
    begin = next(at for at, one in enumerate(found) if one.command.startswith("gnt-image import"))
    with local_cluster(
        "--hypervisor", "kvm", "--guest", str(build_tiny_guest()), nodes=2
    ) as cluster:
        # The cluster starts its guests with a kernel of the host.
        own = "kvm:kernel_path=,initrd_path=,kernel_args=,root_path="
        cluster.ok("gnt-cluster", "modify", "-H", own)
        session = Session([LocalNode(cluster, at) for at in (1, 2)], str(tmp_path / "typed"))
        for step in found[begin:]:
            session.run(
                Step(step.machine, local(step.command, files), tuple(map(local, step.shown)))
            )


def local(text: str, files: Path = Path()) -> str:
    """Return a line of the page with the names of the virtual cluster."""
    text = re.sub(r"\b(node[12])\.example\.com", r"\1.vcluster.test", text)
    return text.replace(IMAGE, str(files / IMAGE))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_commands_of_the_tutorial_do_what_the_page_shows(session: Session) -> None:
    for step in steps():
        session.run(step)
