"""`--mond` and `--mond-data`: loads from monitoring daemons, real HTTP on loopback."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import placement_clusters as clusters
import pytest
from htools_peer import Peer

from ganeti.cli import hbal, monitoring_input
from ganeti.placement.load.text import format_cluster
from tests.unit.cli.fake_master import FakeMaster
from tests.unit.cli.test_hsqueeze import luxi_answers
from tests.unit.placement.test_squeeze import a_cluster

Printed = pytest.CaptureFixture[str]
CPU, XEN = "/1/report/default/cpu-avg-load", "/1/report/default/xen-cpu-avg-load"


class Daemon(http.server.ThreadingHTTPServer):
    """A monitoring daemon that answers from a table; bytes are sent as they are."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Any] = {
            CPU: {"name": "cpu-avg-load", "data": {"cpu_number": 8, "cpus": [], "cpu_total": 6.0}},
            XEN: {"name": "xen-cpu-avg-load", "data": {"inst0-0": 0.5}},
        }
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    server: Daemon

    def do_GET(self) -> None:
        found = self.server.answers.get(self.path)
        text = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def daemon(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """Both nodes have this daemon; the master tells its address."""
    luxi_answers(master)
    known = master.replies["Query"]

    def query(kind: str, fields: list[str], filter_: object) -> Any:
        if fields == ["name", "pip"]:
            return {"data": [[[0, f"node{number}"], [0, "127.0.0.1"]] for number in range(2)]}
        return known(kind, fields, filter_)

    master.replies["Query"] = query
    one = Daemon()
    monkeypatch.setattr(monitoring_input, "MOND_PORT", one.server_address[1])
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    yield one
    one.close()


def loads(capsys: Printed) -> dict[str, str]:
    """The processor load of each instance, as hbal's map of instances has it."""
    lines = capsys.readouterr().err.partition("Initial instance map:\n")[2].splitlines()
    rows = [line.split() for line in lines[1:] if line.startswith(" R ")]
    return {row[1]: row[-4] for row in rows}


def test_the_load_of_a_node_is_spread_over_its_instances(daemon: Daemon, capsys: Printed) -> None:
    assert hbal.main(["-L", "--mond", "-l0", "--print-instances"]) == 0
    assert loads(capsys) == {"inst0-0": "2.000", "inst0-1": "2.000", "inst1-0": "3.000"}


def test_without_the_option_no_node_is_asked(daemon: Daemon, capsys: Printed) -> None:
    daemon.answers.clear()
    assert hbal.main(["-L", "-l0", "--print-instances"]) == 0
    assert loads(capsys)["inst0-0"] == "1.000"


def test_xen_reports_more_of_single_instances(daemon: Daemon, capsys: Printed) -> None:
    assert hbal.main(["-L", "--mond=yes", "--mond-xen", "-l0", "--print-instances"]) == 0
    assert loads(capsys) == {"inst0-0": "0.500", "inst0-1": "2.000", "inst1-0": "3.000"}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"{",
        b"[]",
        b'{"name": "cpu-avg-load", "data": {"error": "too early"}}',
        b" " * (monitoring_input.REPORT_LIMIT + 1),
    ],
)
def test_reports_that_are_not_complete_are_ignored_or_end_it(
    daemon: Daemon, capsys: Printed, answer: bytes | None
) -> None:
    daemon.answers[CPU] = answer
    assert hbal.main(["-L", "--mond", "-l0", "--print-instances"]) == 0
    said = capsys.readouterr().err
    assert "node0, node1 did not report cpu-avg-load: this collector is ignored." in said
    assert " 1.000 1.000 1.000 1.000" in said
    assert hbal.main(["-L", "--mond", "-l0", "--exit-on-missing-mond-data"]) == 1
    assert "required monitoring data is missing" in capsys.readouterr().err


def test_the_peer_spreads_a_load_in_the_same_way(tmp_path: Path, capsys: Printed) -> None:
    peer = Peer()
    if not peer.binary.exists():
        pytest.skip("Debian's htools are not in the cache; make bench ONLY=placement fetches them")
    data, reports = tmp_path / "data", tmp_path / "reports"
    data.write_text(format_cluster(clusters.cluster(3)))
    loads_of = [(f"node{number:04}", 3.5 * number) for number in range(3)]
    reports.write_text(
        json.dumps(
            [
                {"node": node, "reports": [{
                    "name": "cpu-avg-load", "version": "B", "format_version": 1, "timestamp": 1,
                    "category": None, "kind": 0,
                    "data": {"cpu_number": 64, "cpus": [0.1] * 64, "cpu_total": load}}]}
                for node, load in loads_of
            ]
        )
    )  # fmt: skip
    words = ["-t", str(data), "-l0", "--mond=yes", f"--mond-data={reports}", "-v", "-v"]
    printed, _spent = peer.run("hbal", *words)
    assert hbal.main(words) == 0
    score = [line for line in printed.splitlines() if "cpu_load_cv" in line]
    assert score
    assert score[0] in capsys.readouterr().out


def test_a_file_of_reports_has_to_name_every_online_node(tmp_path: Path, capsys: Printed) -> None:
    data, reports = tmp_path / "data", tmp_path / "reports"
    data.write_text(format_cluster(a_cluster([2, 1, 0], offline=1)))
    load = {"name": "cpu-avg-load", "data": {"cpu_total": 2.0}}
    words = ["-t", str(data), f"--mond-data={reports}", "-l0", "--print-instances"]
    reports.write_text(json.dumps([{"node": "node0", "reports": [load]}]))
    assert hbal.main(words) == 0
    assert "node1 did not report" in capsys.readouterr().err
    every = [{"node": f"node{number}", "reports": [load]} for number in range(2)]
    reports.write_text(json.dumps(every))
    assert hbal.main(words) == 0
    assert loads(capsys) == {"inst0-0": "0.667", "inst0-1": "0.667", "inst1-0": "1.000"}
