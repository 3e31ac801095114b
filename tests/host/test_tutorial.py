"""The tutorial's commands, word for word, in two virtual machines with a whole Debian system."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ganeti.vcluster.machine_image import archive
from tests.support.cloud_image import small_image
from tests.support.debian_machine import DebianMachine, debian_machines
from tests.support.tiny_guest import build_tiny_guest

pytestmark = [pytest.mark.host, pytest.mark.soak]

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


class Session:
    """Two machines, on which the commands of the page run."""

    def __init__(self, machines: list[DebianMachine]) -> None:
        self._machines = dict(zip(("node1", "node2"), machines, strict=True))
        self.uptime_s = 0

    def run(self, step: Step) -> None:
        wanted = ("node1", "node2") if step.machine == "both" else (step.machine,)
        for name in wanted:
            check_shown(step, self._said(self._machines[name], step.command))

    def _said(self, machine: DebianMachine, command: str) -> str:
        program = " ".join(command.split()[:2])
        if program == "ganeti-node-join":
            return self._waits(machine, command)
        if program == "gnt-node add":
            token = self._machines["node2"].ok("grep -m 1 '^[^ ]\\{100,\\}$' /run/waits.said")
            return machine.ok(f"{command} <<'END'\n{token}END")
        if program == "gnt-instance console":
            return self._types(machine, command)
        return machine.ok(f"cd; {command}")

    def _waits(self, machine: DebianMachine, command: str) -> str:
        """Start a command that waits while others run, as in another terminal; return its output so far."""
        machine.ok(f"cd; setsid {command} >/run/waits.said 2>&1 </dev/null &")
        machine.ok("until grep -q '^[^ ]\\{100,\\}$' /run/waits.said; do sleep 1; done")
        return machine.ok("cat /run/waits.said")

    def _types(self, machine: DebianMachine, command: str) -> str:
        """Log in on a console and ask for the uptime; return the output."""
        keys = (
            "until grep -aqE '(login:|~#) *$' /run/typed; do sleep 5; echo; done; "
            "grep -aqE '~# *$' /run/typed || echo root; "
            "until grep -aqE '~# *$' /run/typed; do sleep 2; done; "
            "echo 'cut -d. -f1 /proc/uptime'; until grep -aqE '^[0-9]+' /run/typed; do sleep 2; done; "
            r"printf '\035'"
        )
        words = f"script -qefc {shlex.quote(command)} /run/typed"
        said = machine.ok(
            f": >/run/typed; cd; ({keys}) | timeout -k 9 {BOOT_S} {words}", 2 * BOOT_S
        )
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


@pytest.mark.timeout(7200)
def test_commands_of_the_tutorial_do_what_the_page_shows(session: Session) -> None:
    for step in steps():
        session.run(step)
