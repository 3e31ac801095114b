"""The command that asks confd."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.cli.confd_client import QUERIES, main
from ganeti.protocols.confd import QueryType
from tests.support.confd_port import serving
from tests.unit.confd.cluster import POSITION


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server, with the key and the list of candidates of the node that asks."""
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    with serving(Paths(tmp_path)) as port:
        yield port


def run(port: int, *words: str) -> int:
    return main([f"--port={port}", *words])


@pytest.mark.requirement("S52", "S56")
def test_answers_are_printed(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(port, "-v", "master") == 0
    said = capsys.readouterr()
    assert said.out == "node1.example.com\n"
    assert f"serial {POSITION}, 1 of 1" in said.err
    assert run(port, "node-role", "node2.example.com") == 0
    assert run(port, "offline-nodes", "-a", "127.0.0.1") == 0
    assert capsys.readouterr().out == '2\n[\n  "node2.example.com"\n]\n'


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["node-role", "none"], "Unknown node none"),
        (["primary-node", "none"], "there is none"),
        (["node-role"], "needs NODE"),
        (["master", "x"], "does not accept the argument 'x'"),
        (["ping", "--hmac-file", "/nowhere"], "only root can read it"),
    ],
)
def test_errors_name_the_remedy(
    port: int, capsys: pytest.CaptureFixture[str], words: list[str], wanted: str
) -> None:
    assert run(port, *words) == 1
    assert wanted in capsys.readouterr().err


def test_another_key_is_met_by_silence(
    port: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(b"wrong" * 8)
    assert run(port, "ping", "-t", "0.05", "--hmac-file", str(tmp_path / "key")) == 1
    assert "with this key" in capsys.readouterr().err


@pytest.mark.requirement("S238")
def test_regular_node_answers_itself_and_candidates_with_its_own_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    monkeypatch.setenv("GANETI_HOSTNAME", "node5.example.com")
    paths = Paths(tmp_path)
    with serving(paths, regular_node="node5.example.com") as port:
        # A candidate has the cluster's key, and derives the node's from it.
        assert run(port, "-a", "127.0.0.1", "master") == 0
        paths.confd_key.unlink()
        assert run(port, "master") == 0
        assert capsys.readouterr().out == 2 * "node1.example.com\n"
        paths.own_confd_key.write_bytes(b"of another node" * 4)
        assert run(port, "-t", "0.05", "master") == 1


def test_every_query_has_a_command() -> None:
    assert {name for name, _takes, _what in QUERIES.values()} == {one.name for one in QueryType}
