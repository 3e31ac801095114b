"""Hooks run where, and with the variables with which, the original's (3.0.2) run: recorded there, repeated here.

`original_hooks.json` has a row for each command: the nodes on which its hooks ran, and what was in their environment.
It was recorded on two virtual nodes of Debian's Ganeti with the fake hypervisor, by the commands in it, and by a
program in each directory of hooks that writes its environment down. What differs from one cluster to the next
(UUIDs, MAC addresses, paths, names of nodes) is normalised there as it is here.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ganeti.model.hooks import CONFIG_UPDATE, HOOKS
from tests.support.local_cluster import NOOP, LocalCluster, local_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

RECORD = Path(__file__).with_name("original_hooks.json")
DIFFERENT = {
    r"instance-add \w+ (POST_)?INSTANCE_STATUS": "there it is whether to start it, True or False",
    r"instance-add \w+ (POST_)?INSTANCE_DISK\d_UUID": "there the UUID is not known yet",
    r"instance-add \w+ (POST_)?SRC_(PATH|IMAGES)": "there it is below the directory of a virtual node",
    r"instance-(migrate|failover) post POST_OLD_PRIMARY": "there it is the new one: asked again afterwards",
    r"instance-rename post POST_(OP_TARGET|INSTANCE_NAME)": "there it is the name that was",
    r"network-disconnect post POST_GROUP_NETWORK_LINK": "there it is what was, here what is",
    r".* (POST_)?INSTANCE_TAGS": "in an order, here",
}
"""Where a value is another one on purpose: hook, phase and variable, and why."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_RULES = (
    (_UUID, "UUID"),
    (re.compile(r"aa:00:00(:[0-9a-f]{2}){3}"), "MAC"),
    (re.compile(r"node(\d)\.vcluster\.test"), r"node\1"),
    (re.compile(r"cluster\.vcluster\.test"), "cluster"),
    (re.compile(r"/[^ ]*/h\d\.peer/UUID"), "PATH/UUID"),
    (re.compile(r"127\.77\.\d+\.\d+"), "ADDRESS"),
)


def normalised(value: str) -> str:
    for expression, text in _RULES:
        value = expression.sub(text, value)
    return value


def install(cluster: LocalCluster, record: Path) -> None:
    """Let every hook on both nodes write its environment down."""
    for number, node in enumerate(cluster.cluster.nodes, 1):
        for hook in HOOKS:
            for phase in ("pre", "post"):
                directory = node.paths.hooks / f"{hook}-{phase}.d"
                directory.mkdir(parents=True, exist_ok=True)
                program = directory / "dump"
                program.write_text(f"#!/bin/sh\nenv >{record}/{hook}.{phase}.{number}\n")
                program.chmod(0o755)


def collected(record: Path) -> dict[str, dict[str, Any]]:
    """Where each hook ran, and its variables."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(record.iterdir()):
        hook, phase, node = file.name.split(".")
        lines = (line.partition("=") for line in file.read_text().splitlines())
        own = {
            name.removeprefix("GANETI_"): normalised(value)
            for name, _, value in lines
            if name.startswith("GANETI_")
        }
        entry = found.setdefault(f"{hook} {phase}", {"nodes": [], "variables": own})
        entry["nodes"].append(int(node))
        file.unlink()
    return found


def differences(name: str, theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    found = []
    if theirs["nodes"] != ours["nodes"]:
        found.append(f"{name}: on {ours['nodes']} instead of {theirs['nodes']}")
    for variable, value in theirs["variables"].items():
        here = ours["variables"].get(variable)
        known = any(re.fullmatch(one, f"{name} {variable}") for one in DIFFERENT)
        if here != value and (here is None or not known):
            found.append(f"{name}: {variable} is {here!r} instead of {value!r}")
    return found


@pytest.mark.soak
def test_hooks_run_where_and_with_what_they_run_in_the_original() -> None:
    wrong = []
    with local_cluster(nodes=2) as cluster:
        cluster.install_noop()
        for node in cluster.cluster.nodes:
            directory = node.paths.os_search_path[0] / NOOP
            (directory / "variants.list").write_text("default\n")
            for script in ("create", "export", "import", "rename"):
                (directory / script).write_text("#!/bin/sh\nexit 0\n")
                (directory / script).chmod(0o755)
        cluster.ok("gnt-cluster", "modify", "--nic-parameters=mode=routed,link=lo")
        record = cluster.directory / "hooks"
        record.mkdir()
        install(cluster, record)
        for line in json.loads(RECORD.read_text()):
            cluster.ok(*shlex.split(line["command"]), timeout_s=120)
            ours = collected(record)
            assert f"{CONFIG_UPDATE} pre" not in ours
            for name, theirs in line["hooks"].items():
                none: dict[str, Any] = {"nodes": [], "variables": {}}
                wrong += [
                    f"{line['command']}: {one}"
                    for one in differences(name, theirs, ours.get(name, none))
                ]
            extra = set(ours) - set(line["hooks"]) - {f"{CONFIG_UPDATE} post"}
            wrong += [f"{line['command']}: {name} runs" for name in sorted(extra)]
    assert "\n".join(wrong) == ""
