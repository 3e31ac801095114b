"""Run by Debian's Python on its master: adds a virtual node to a cluster of Debian's Ganeti, without ssh."""

import importlib
import json
import os
import subprocess
import sys
import time
from typing import Any, cast

sys.path.insert(0, "/usr/share/ganeti/3.0")


def main(node: str) -> None:
    """Let the node's own programs set it up, and submit the job."""
    names = ("cli", "opcodes", "pathutils", "ssconf", "vcluster")
    cli, opcodes, pathutils, ssconf, vcluster = (
        cast("Any", importlib.import_module(f"ganeti.{name}")) for name in names
    )
    client = cli.GetClient()
    (cluster,) = client.QueryConfigValues(["cluster_name"])

    def text(path: str) -> str:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 - as plain as can be
            return file.read()

    wanted = {
        "cluster_name": cluster,
        "node_daemon_certificate": text(pathutils.NODED_CERT_FILE),
        "hmac_key": text(pathutils.CONFD_HMAC_KEY),
        "ssconf": ssconf.SimpleStore().ReadAll(),
        "start_node_daemon": False,
        "node_name": node,
    }
    there = {**os.environ, **vcluster.EnvironmentForHost(node)}
    setup = [pathutils.NODE_DAEMON_SETUP]
    subprocess.run(setup, input=json.dumps(wanted).encode(), env=there, check=True)
    subprocess.run([pathutils.DAEMON_UTIL, "start", "ganeti-noded"], env=there, check=True)
    time.sleep(1)
    job = client.SubmitJob(
        [
            opcodes.OpNodeAdd(
                node_name=node,
                readd=False,
                vm_capable=True,
                master_capable=True,
                disk_state={},
                hv_state={},
                node_setup=False,
            )
        ]
    )
    cli.PollJob(job, cl=client)


if __name__ == "__main__":
    main(sys.argv[1])
