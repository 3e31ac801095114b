"""The example firewall rules: understood by their programs, and doing what they say."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.patience import ran

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
NFT_RULES = EXAMPLES / "guest-firewall.nft"
WAIT = "--wait=30"  # the host has one lock for the tables of all its networks
LOAD = {
    "nft": ["nft", "-f", str(NFT_RULES)],
    "iptables": ["iptables-restore", WAIT, "--noflush", str(EXAMPLES / "guest-firewall.iptables")],
    "ip6tables": [
        "ip6tables-restore",
        WAIT,
        "--noflush",
        str(EXAMPLES / "guest-firewall.ip6tables"),
    ],
}
CHECK = {"nft": "-c", "iptables": "--test", "ip6tables": "--test"}
IN_OWN_NETWORK = ["unshare", "--net", "--"]

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has a firewall"),
]


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed on this host")


@pytest.mark.requirement("S231")
@pytest.mark.parametrize("kind", LOAD)
def test_the_rules_are_understood(kind: str) -> None:
    program, *words = LOAD[kind]
    need(program)
    done = subprocess.run(
        [*IN_OWN_NETWORK, program, CHECK[kind], *words], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.requirement("S231")
@pytest.mark.parametrize("kind", LOAD)
def test_a_mistake_in_the_rules_would_be_found(kind: str, tmp_path: Path) -> None:
    program, *words = LOAD[kind]
    need(program)
    wrong = tmp_path / "rules"
    text = Path(words[-1]).read_text()
    wrong.write_text(text.replace("skuid", "suid").replace("--uid-owner", "--user"))
    assert wrong.read_text() != text
    words[-1] = str(wrong)
    done = subprocess.run(
        [*IN_OWN_NETWORK, program, CHECK[kind], *words], capture_output=True, check=False
    )
    assert done.returncode != 0


CONNECTIONS = textwrap.dedent(
    """
    import encodings.idna, os, socket, subprocess, sys
    load, address = sys.argv[2:], sys.argv[1]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bits = ["/64", "nodad"] if family == socket.AF_INET6 else ["/24"]
    for words in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", address + bits[0], "dev", "lo", *bits[1:]],
        load,
    ):
        subprocess.run(words, check=True)
    servers = {port: socket.create_server((address, port), family=family) for port in (8102, 8103)}

    def reaches(uid, port):
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            try:
                socket.create_connection((address, port), timeout=5).close()
            except OSError:
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    print(reaches(61001, 8102), reaches(61001, 8103), reaches(61500, 8103), reaches(0, 8103))
    """
)


@pytest.mark.requirement("S231")
@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ("nft", "192.0.2.1"),
        ("nft", "2001:db8::1"),
        ("iptables", "192.0.2.1"),
        ("ip6tables", "2001:db8::1"),
    ],
)
def test_a_guest_reaches_other_nodes_for_a_migration_and_nothing_else(
    kind: str, address: str
) -> None:
    need(LOAD[kind][0])
    done = ran(
        [*IN_OWN_NETWORK, sys.executable, "-c", CONNECTIONS, address, *LOAD[kind]],
        limit_s=60,
    )
    assert done.stdout.split() == ["True", "False", "True", "True"], done.stderr
