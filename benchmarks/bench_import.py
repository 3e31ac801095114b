"""What it takes to make a cluster of the original's configuration: `gnt-cluster import` of a large one."""

import argparse
import asyncio
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from local_cluster import local_cluster
from machine import spin_ms, sync_ms

from ganeti.bootstrap.daemons import CONFD, MASTERD, NODED, Daemons
from ganeti.bootstrap.destroy import forget_cluster
from ganeti.upstream.forms import derived_uuid
from ganeti.vcluster.layout import VirtualNode

NODES, INSTANCES, GROUPS = 1000, 10_000, 20
MIB = 1024


def configuration(first: VirtualNode, nodes: int, instances: int) -> dict[str, Any]:
    """A cluster of 3.0: groups, nodes, and instances with two mirrored disks and an interface each."""
    uuids = [derived_uuid("node", str(number)) for number in range(nodes)]
    groups = [derived_uuid("group", str(number)) for number in range(GROUPS)]
    disks: dict[str, Any] = {}
    minors = dict.fromkeys(uuids, 0)
    found = {
        uuid: _instance(number, uuid, uuids, disks, minors)
        for number in range(instances)
        if (uuid := derived_uuid("instance", str(number)))
    }
    return {
        "version": 3_000_000, "serial_no": 1, "ctime": 0.0, "mtime": 0.0,
        "cluster": {
            "uuid": derived_uuid("cluster", ""), "serial_no": 1, "cluster_name": "cluster.example.com",
            "master_node": uuids[0], "master_ip": first.address, "master_netdev": "",
            "enabled_hypervisors": ["fake"], "enabled_disk_templates": ["drbd", "diskless"],
            "volume_group_name": "xenvg", "mac_prefix": "aa:00:00", "ipolicy": {},
        },
        "nodes": {
            uuid: {
                "uuid": uuid, "name": first.name if not number else f"n{number}.example.com",
                "primary_ip": first.address if not number else _address(number),
                "group": groups[number % GROUPS], "serial_no": 1,
                "master_candidate": not number,
            }
            for number, uuid in enumerate(uuids)
        },
        "nodegroups": {
            uuid: {"uuid": uuid, "name": f"group{number}", "serial_no": 1}
            for number, uuid in enumerate(groups)
        },
        "instances": found, "disks": disks, "networks": {}, "filters": {},
    }  # fmt: skip


def _address(number: int) -> str:
    return f"10.1.{number // 250}.{number % 250 + 1}"


def _instance(
    number: int, uuid: str, nodes: list[str], disks: dict[str, Any], minors: dict[str, int]
) -> dict[str, Any]:
    # Nodes of one group are as many apart as there are groups.
    pair = nodes[number % len(nodes)], nodes[(number + GROUPS) % len(nodes)]
    own = []
    for index in range(2):
        disk = derived_uuid(uuid, f"disk/{index}")
        numbers = [minors[node] for node in pair]
        for node in pair:
            minors[node] += 1
        below = [
            {"dev_type": "plain", "logical_id": ["xenvg", f"{disk}.{use}"], "size": size,
             "params": {}, "uuid": derived_uuid(disk, use)}
            for use, size in (("data", 10240), ("meta", 128))
        ]  # fmt: skip
        disks[disk] = {
            "uuid": disk, "dev_type": "drbd", "size": 10240, "mode": "rw", "params": {},
            "iv_name": f"disk/{index}", "nodes": list(pair), "children": below,
            "logical_id": [*pair, 11000 + 2 * number + index, *numbers, "5ec7e7" * 6],
        }  # fmt: skip
        own.append(disk)
    nic = {"uuid": derived_uuid(uuid, "nic/0"), "nicparams": {},
           "mac": "aa:00:00:" + number.to_bytes(3, "big").hex(":")}  # fmt: skip
    return {
        "uuid": uuid, "name": f"i{number}.example.com", "primary_node": pair[0], "os": "debian",
        "hypervisor": "fake", "hvparams": {}, "beparams": {"maxmem": 512}, "osparams": {},
        "admin_state": "down", "disks": own, "nics": [nic], "serial_no": 1, "tags": ["web"],
    }  # fmt: skip


def measured(node: VirtualNode, words: list[str]) -> tuple[float, float]:
    """Seconds that a command of a node takes, and MiB that it has at most."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        node.words(words), env=node.environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words} ended with {process.returncode}")
    return time.perf_counter() - begun, usage.ru_maxrss / MIB


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the cluster")
    args = parser.parse_args()
    share = 10 if args.quick else 1
    with local_cluster(nodes=1) as cluster:
        (node,) = cluster.nodes
        daemons = Daemons(node.paths, environment=node.environment())
        for name in (CONFD, MASTERD, NODED):
            asyncio.run(daemons.stop(name))
        forget_cluster(node.paths)
        path = Path(cluster.directory) / "config.data"
        path.write_text(json.dumps(configuration(node, NODES // share, INSTANCES // share)))
        seconds, mib = measured(node, ["gnt-cluster", "import", str(path)])
        back_s, back_mib = measured(node, ["gnt-cluster", "export", f"{path}.out"])
        figures = {
            f"import_{INSTANCES // share}_s": round(seconds, 2),
            "peak_mib": round(max(mib, back_mib), 1),
            f"export_{INSTANCES // share}_s": round(back_s, 2),
            "file_mib": round(path.stat().st_size / MIB / MIB, 1),
            "sync_ms": sync_ms(Path(cluster.directory)),
            "spin_ms": spin_ms(),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
