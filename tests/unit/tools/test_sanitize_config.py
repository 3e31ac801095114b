"""What of a configuration is left for strangers."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import InputError
from ganeti.tools.sanitize_config import main
from ganeti.tools.sanitizing import Replacements, parsed, sanitized
from ganeti.upstream.forms import parse
from tests.unit.upstream import sample

SECRETS = ("s3cret", "d3c3fd475fcbaf5fd177fb245ac43b71247ada38", "KEY")
NAMES = ("cluster.example.com", "node1.example.com", "web1.example.com", "web2.example.com")


def text(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True)


@pytest.mark.parametrize("old", [False, True])
def test_secrets_are_always_removed(old: bool) -> None:
    given = sample.document()
    given["cluster"]["osparams_private_cluster"] = {"debian": {"password": "s3cret"}}
    before = text(given)
    document = sample.older(given) if old else given
    found = sanitized(document, Replacements(names=False, addresses=False, systems=False))
    assert text(given) == before
    left = text(found)
    assert [secret for secret in SECRETS if secret in left] == []
    assert all(name in left for name in NAMES)
    parse(sample.encoded(found))


@pytest.mark.parametrize("old", [False, True])
def test_names_and_addresses_are_others_everywhere_and_fit_together(old: bool) -> None:
    document = sample.document()
    document["disks"][sample.PLAIN]["logical_id"] = ["xenvg", "web2.example.com.disk0"]
    document = sample.older(document) if old else document
    found = sanitized(document, Replacements(domain="example.net", volumes=True))
    left = text(found)
    assert [
        name for name in (*NAMES, "debian", "203.0.113", "192.0.2", "198.51") if name in left
    ] == []
    new = parse(sample.encoded(found))
    (network,) = new["networks"].values()
    nics = [nic for one in new["instances"].values() for nic in one["nics"] if nic.get("ip")]
    assert (network["network"], network["gateway"]) == ("10.0.0.0/24", "10.0.0.7")
    assert [nic["ip"] for nic in nics] == ["10.0.0.20"]
    assert new["cluster"]["cluster_name"] == "cluster.example.net"
    assert {one["name"] for one in new["nodes"].values()} == {
        "node1.example.net",
        "node2.example.net",
    }
    assert new["cluster"]["os_hvp"].keys() == {"os1"}
    assert {one["os"] for one in new["instances"].values()} == {"os1+base"}
    volumes = [disk["logical_id"] for disk in new["disks"].values() if disk["dev_type"] == "plain"]
    assert all(name.startswith("volume") for _group, name in volumes)
    assert new["nodes"].keys() == set(sample.NODES)


def test_addresses_in_old_disks_are_those_of_their_nodes() -> None:
    document = sample.older(sample.document())
    (disk,) = document["instances"]["web1.example.com"]["disks"]
    disk["physical_id"] = ["198.51.100.1", 11002, "198.51.100.2", 11002, 0, SECRETS[1]]
    found = sanitized(document, Replacements())
    nodes = [node["secondary_ip"] for node in found["nodes"].values()]
    (words,) = [
        disk["physical_id"]
        for one in found["instances"].values()
        for disk in one["disks"]
        if disk["dev_type"] == "drbd8"
    ]
    assert words == [nodes[0], 11002, nodes[1], 11002, 0, "0" * 40]


def test_a_name_inside_of_another_is_left_for_the_longer_one() -> None:
    document = sample.document()
    one, two = document["instances"].values()
    one["name"], two["name"] = "a.example.com", "b.a.example.com"
    two["hvparams"]["cdrom_image_path"] = "/iso/b.a.example.com/a.example.com.iso/xa.example.com"
    found = sanitized(document, Replacements())
    changed = found["instances"][two["uuid"]]
    assert changed["name"] == "instance2.example.com"
    path = changed["hvparams"]["cdrom_image_path"]
    assert path == "/iso/instance2.example.com/instance1.example.com.iso/xa.example.com"


@given(st.recursive(st.none() | st.integers() | st.text(), lambda below: st.lists(below) | st.dictionaries(st.text(), below), max_leaves=10))  # fmt: skip
def test_what_has_another_shape_is_kept_or_refused(thing: Any) -> None:
    for table in ("nodes", "instances", "networks"):
        document = {
            "cluster": {"cluster_name": "c.example.com", "os_hvp": thing},
            table: {"a": thing},
        }
        assert isinstance(sanitized(document, Replacements(volumes=True)), dict)


def test_a_file_is_written_for_root_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, made = tmp_path / "config.data", tmp_path / "made"
    given.write_bytes(sample.encoded(sample.document()))
    assert main([f"--path={given}", "--no-randomization", str(made)]) == 0
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert "web1.example.com" in made.read_text()
    assert main([f"--path={given}", "--sanitize-names=no", str(made)]) == 0
    assert "web1.example.com" in made.read_text()
    assert "203.0.113" not in made.read_text()
    given.write_text("[]")
    assert main([f"--path={given}", str(made)]) == 1
    assert "not a config.data" in capsys.readouterr().err
    with pytest.raises(InputError):
        parsed(b"{}")
