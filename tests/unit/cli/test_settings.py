"""gnt-cluster settings."""

import json
from typing import Any

from ganeti.cli.gnt_cluster import table as gnt_cluster
from tests.unit.cli.fake_master import FakeMaster, Run

VCPUS: dict[str, Any] = {
    "path": ["custom_beparams", "vcpus"], "title": "Backend parameters", "name": "vcpus", "form": "integer",
    "doc": "virtual processors", "value": 2, "inherited": 1, "inherited_from": "default", "minimum": 1,
    "policy": [1, 8], "applies": "start",
}  # fmt: skip
OS: dict[str, Any] = {"path": ["os_name"], "title": "Operating system", "name": "os", "value": ""}


def test_settings_are_a_table(master: FakeMaster, run: Run) -> None:
    master.replies["QuerySettings"] = {"settings": [VCPUS, OS]}
    words = ("settings", "instance", "web1", "--no-headers", "--separator=|")
    code, out, _ = run(gnt_cluster, *words)
    assert code == 0
    assert out.splitlines() == [
        "Backend parameters|vcpus|2|own|1|1..8|at the next start|virtual processors",
        "Operating system|os|-|own|-|-|at once|",
    ]
    assert master.args_of("QuerySettings") == ["instance", "web1"]


def test_settings_of_the_cluster_need_no_name(master: FakeMaster, run: Run) -> None:
    master.replies["QuerySettings"] = {"settings": [OS]}
    _, out, _ = run(gnt_cluster, "settings", "--json")
    assert json.loads(out)["settings"] == [OS]
    assert master.args_of("QuerySettings") == ["cluster", ""]
