"""The original's own QA against a virtual cluster of ours, whose nodes it believes to reach by ssh."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ganeti.bootstrap.daemons import MASTERD, NODED, RAPI
from tests.support.debian_ganeti import COMMANDS, PROGRAMS
from tests.support.debian_packages import PYTHON, environment, unpacked
from tests.support.local_cluster import LocalCluster, wait_until

PACKAGES = (*COMMANDS, "ganeti-testsuite", "python3-yaml", "libyaml-0-2", "libcurl3-gnutls")
SUITE = "usr/share/ganeti/testsuite/qa"
TOUR = Path(__file__).parents[1] / "compat" / "original_qa_tour.py"
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_ON_NODE = """#!/bin/bash
# Runs a line of shell as this node: its files are where they would be if it had a machine of its own.
at() { mkdir -p "$1" "$2" && mount --bind "$1" "$2"; }
at "$1/etc" /etc; at "$1/srv" /srv; at "$1/tmp" /tmp; at "$1/var/run/ganeti" /run/ganeti
at "$1/var/lib/ganeti" /var/lib/ganeti; at "$1/var/log/ganeti" /var/log/ganeti
shift
exec "$@"
"""
_SSH = """#!/bin/bash
# In place of ssh: [options] [user@]node command.
while [[ $1 == -* ]]; do
  case $1 in -[olp]) shift 2 ;; *) shift ;; esac
done
node=$1; shift
exec "$(dirname "$0")/on-${node#*@}" "$*"
"""
_SCP = """#!/bin/bash
# In place of scp: [options] file node:directory.
while [[ $1 == -* ]]; do shift; done
tar -C "$(dirname "$1")" -c "$(basename "$1")" | "$(dirname "$0")/ssh" "${2%%:*}" "tar -C '${2#*:}' -x"
"""


@dataclass(frozen=True)
class Outcome:
    """What came of one call of one of its functions; `failure` is '' if it passed."""

    function: str
    failure: str


def run_original_qa(
    cluster: LocalCluster, config: Mapping[str, Any], log: Path, *, limit_s: float
) -> list[Outcome]:
    """Each of its functions that ran, in order; what it says goes to `log`."""
    if os.geteuid() != 0 or not Path(PYTHON).exists():
        pytest.skip("the original's QA needs Debian's Python, and root for mount namespaces")
    root = unpacked(*PACKAGES)
    tools = _tools(cluster, [cluster.cluster.name, config["rename"]])
    _start_anew(cluster, tools)
    nodes = [{"primary": one.name, "secondary": one.address} for one in cluster.cluster.nodes]
    settings, results = (cluster.directory / f"qa-{what}.json" for what in ("config", "results"))
    settings.write_text(json.dumps({"name": cluster.cluster.name, "nodes": nodes, **config}))
    found = environment(root)
    script = 'mount --bind "$1" /etc/hosts; shift; exec "$@"'
    theirs = [PYTHON, "-u", "-W", "ignore", *map(str, (TOUR, root / SUITE, settings, results))]
    with log.open("w") as said:
        done = subprocess.run(
            ["unshare", "-m", "--propagation", "slave", "bash", "-c", script, "bash",
             str(tools / "hosts"), *theirs],
            env={
                **found,
                "PATH": f"{tools}:{SYSTEM_PATH}",
                "PYTHONPATH": f"{root / PROGRAMS}:{found['PYTHONPATH']}",
            },
            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
            check=False, timeout=limit_s,
        )  # fmt: skip
    text = log.read_text(errors="replace")
    if done.returncode and "ModuleNotFoundError" in text:
        pytest.skip(f"Debian's Python lacks a library: {text.splitlines()[-1]}")
    return [Outcome(*json.loads(line)) for line in results.read_text().splitlines()]


def _tools(cluster: LocalCluster, names: list[str]) -> Path:
    """A directory with programs in place of those that reach other hosts, and with a list of hosts."""
    tools = cluster.directory / "qa-tools"
    tools.mkdir()
    lines = [f"{node.address} {node.name}" for node in cluster.cluster.nodes]
    lines += [f"{cluster.cluster.master.address} {name}" for name in names]
    (tools / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
    _program(tools / "ssh", _SSH)
    _program(tools / "scp", _SCP)
    _program(tools / "on-node", _ON_NODE)
    for name in ("fping", "iptables-save", "iptables-restore"):
        _program(tools / name, "#!/bin/sh\nexec true\n")
    for node in cluster.cluster.nodes:
        etc = Path(node.root) / "etc"
        subprocess.run(["cp", "-a", "-n", "/etc/.", etc], check=True)
        shutil.copy(tools / "hosts", etc / "hosts")
        found = node.environment()
        found["PATH"] = f"{tools}:{found['PATH']}"
        assigned = [f"{name}={value}" for name, value in found.items()]
        words = ["unshare", "-m", "--propagation", "slave", str(tools / "on-node"), node.root,
                 "env", "-i", *assigned, "bash", "-c"]  # fmt: skip
        _program(tools / f"on-{node.name}", f'#!/bin/sh\nexec {shlex.join(words)} "$1"\n')
    return tools


def _start_anew(cluster: LocalCluster, tools: Path) -> None:
    """The daemons see the files and names that commands on their nodes see."""
    numbered = list(enumerate(cluster.cluster.nodes, 1))
    for daemon in (RAPI, NODED, MASTERD):
        for number, _node in numbered:
            if cluster.runs(daemon, number):
                cluster.stop(daemon, number)
    for _number, node in numbered:
        starting = [str(tools / f"on-{node.name}"), "ganeti-watcher"]
        subprocess.run(starting, stdin=subprocess.DEVNULL, check=True)
    wait_until(lambda: cluster.runs(RAPI), "the REST server runs")


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
