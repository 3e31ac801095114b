"""The alert rules and the dashboards, with a real Prometheus that scrapes a real cluster."""

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.paths import RAPI_PORT
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until

PACKAGING = Path(__file__).parents[2] / "packaging"
RULES = PACKAGING / "prometheus/ganeti.rules.yml"
PROGRAMS = ("prometheus", "promtool")
pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        any(shutil.which(one) is None for one in PROGRAMS), reason="prometheus is not installed"
    ),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster("--rapi", nodes=2) as one:
        one.node(1).paths.rapi_users.write_text("prometheus secret read\n")
        one.ok("gnt-instance", "add", "-t", "sharedfile", "-s", "64m", "-o", "noop", "--no-install",
               "--no-nics", "-n", "node1", "web1.example.com")  # fmt: skip
        one.ok("gnt-instance", "startup", "web1.example.com")
        one.ok(
            "gnt-backup", "schedule", "add", "nightly", "--calendar=daily", "--all-instances=yes"
        )
        one.ok("gnt-cluster", "webhook", "add", "chat", "--url=https://hooks.example.invalid/")
        yield one


class Prometheus:
    """A running Prometheus on the loopback interface."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str, **query: str) -> Any:
        url = f"{self._base}/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - a loopback address
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def values(self, expression: str) -> list[Any]:
        return list(self.ask("query", query=expression)["result"])

    @property
    def is_ready(self) -> bool:
        try:
            return bool(self.values("ganeti_instance_cpu_busy"))
        except OSError:
            return False


def configuration(cluster: LocalCluster, folder: Path) -> Path:
    """Write the shipped jobs for this cluster: its address, its user, and fast scrapes."""
    address = cluster.node(1).address
    password = folder / "password"
    password.write_text("secret")
    jobs = (PACKAGING / "prometheus/scrape.yml").read_text()
    for shipped, own in {
        "/etc/prometheus/ganeti.password": str(password),
        "cluster.example.com:5080": f"{address}:{RAPI_PORT}",
        "ca_file: /etc/prometheus/ganeti-rapi.pem": "insecure_skip_verify: true",
        "15s": "1s",
    }.items():
        assert shipped in jobs
        jobs = jobs.replace(shipped, own)
    lines = "".join(f"  {line}\n" for line in jobs.splitlines())
    path = folder / "prometheus.yml"
    path.write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{RULES}]\n"
        f"scrape_configs:\n{lines}"
    )
    return path


@pytest.fixture(scope="module")
def prometheus(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    path = configuration(cluster, folder)
    checked = subprocess.run(
        ["promtool", "check", "config", str(path)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with (folder / "log").open("w") as log, subprocess.Popen(words, stdout=log, stderr=log) as one:
        try:
            found = Prometheus(port)
            wait_until(lambda: found.is_ready, "Prometheus has figures of an instance", 60)
            yield found
        finally:
            one.terminate()


def test_rules_are_valid_and_none_fires_in_a_healthy_cluster(prometheus: Prometheus) -> None:
    def rules() -> list[dict[str, Any]]:
        [group] = prometheus.ask("rules")["groups"]
        return list(group["rules"])

    wait_until(
        lambda: all(one["health"] != "unknown" for one in rules()), "rules were evaluated", 30
    )
    assert [one["name"] for one in rules() if one["health"] != "ok"] == []
    assert [one["name"] for one in rules() if one["state"] == "firing"] == []
    assert len(rules()) == RULES.read_text().count("- alert:")


def expressions(board: dict[str, Any]) -> Iterator[str]:
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield re.sub(r'"\$(node|guest)"', '".*"', target["expr"])


@pytest.mark.parametrize("name", ["ganeti-cluster", "ganeti-usage"])
def test_every_panel_of_a_dashboard_has_data(prometheus: Prometheus, name: str) -> None:
    board = json.loads((PACKAGING / f"grafana/{name}.json").read_text())
    assert board["uid"] == name
    # The simulated guest has a disk and no network, and a rate needs two scrapes.
    absent = {"instance_net"}
    end = time.monotonic() + 30
    wanted = [one for one in expressions(board) if not any(word in one for word in absent)]
    while empty := [one for one in wanted if not prometheus.values(one)]:
        assert time.monotonic() < end, f"no data: {empty}"
        time.sleep(1)


def test_every_metric_of_the_rules_exists(prometheus: Prometheus) -> None:
    known = set(prometheus.ask("label/__name__/values"))
    # Only clusters with a memory goal have it; `tests/unit/web/test_resources.py` shows it.
    known.add("ganeti_instance_memory_given_bytes")
    named = set(re.findall(r"\b(ganeti_\w+)", RULES.read_text()))
    assert named - known == set()
