"""The pictures of the manual are made by the real console: `make pictures` keeps them, `make soak` makes them only."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.host.test_console import MISSING, PROJECT, USERS, play
from tests.support.local_cluster import local_cluster

pytestmark = pytest.mark.host
PICTURES = PROJECT / "docs/pictures"
SHOWN: list[dict[str, Any]] = [
    {"name": "overview", "path": "", "ready": ".health"},
    {"name": "map", "path": "map?by=memory", "ready": ".tile"},
    {"name": "instances", "path": "instances", "ready": ".grid-row"},
    {"name": "instance", "path": "instances/db1.example.com", "ready": "dl.facts"},
    {
        "name": "create",
        "path": "create",
        "ready": ".with-panel",
        "fill": {"label": "^Name A host", "text": "web5.example.com", "ready": ".chosen a"},
    },
    {"name": "jobs", "path": "jobs", "ready": ".grid-row"},
]
RACKS = {1: "rack:a", 2: "rack:a", 3: "rack:b", 4: "rack:b"}
INSTANCES = {"web": 4, "db": 3, "mail": 1, "build": 2}


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_pictures_of_the_manual_are_made(tmp_path: Path) -> None:
    folder = Path(os.environ.get("PICTURES", tmp_path))
    with local_cluster("--rapi", nodes=4) as cluster:
        cluster.install_noop()
        for number, rack in RACKS.items():
            users = cluster.node(number).paths.rapi_users
            users.write_text(USERS)
            users.chmod(0o600)
            cluster.ok("gnt-node", "add-tags", cluster.node(number).name, rack)
        for kind, count in INSTANCES.items():
            for number in range(1, count + 1):
                memory = "512m" if kind == "db" else "256m"
                cluster.ok("gnt-instance", "add", "-t", "diskless", "-o", "noop",
                           "--no-install", "--no-nics", "-B", f"memory={memory},vcpus={number}",
                           "-I", "hail", f"{kind}{number}.example.com")  # fmt: skip
        cluster.ok("gnt-instance", "startup", "--all", "--force-multiple")
        cluster.ok("gnt-cluster", "verify")
        play(cluster, "pictures", folder, json.dumps(SHOWN))
    for one in SHOWN:
        assert (folder / f"{one['name']}.png").read_bytes().startswith(b"\x89PNG")


def test_documents_show_only_pictures_that_are_made() -> None:
    made = {f"{one['name']}.png" for one in SHOWN}
    for document in (PROJECT / "README.md", PROJECT / "docs/console.md"):
        found = re.findall(r"pictures/(\S+\.png)", document.read_text())
        assert found
        assert set(found) <= made
        assert all((PICTURES / one).is_file() for one in found)
