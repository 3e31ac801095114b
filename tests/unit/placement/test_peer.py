"""Against Debian's own tools; skipped where `make bench ONLY=placement` has not fetched them."""

import json
import re
from pathlib import Path

import placement_clusters as clusters
import pytest
from htools_peer import Peer

from ganeti.cli import hspace
from ganeti.placement.answers import answer
from ganeti.placement.balance import Goals, balance
from ganeti.placement.load.text import format_cluster
from ganeti.placement.score import score
from ganeti.placement.state import State
from tests.support.htools_fixtures import fixture_path


@pytest.fixture
def peer() -> Peer:
    found = Peer()
    if not found.binary.exists():
        pytest.skip("Debian's htools are not in the cache; make bench ONLY=placement fetches them")
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("template", ["drbd", "plain"])
def test_the_peer_would_have_allocated_to_the_same_nodes(
    peer: Peer, tmp_path: Path, seed: int, template: str
) -> None:
    message = clusters.message(clusters.cluster(6, seed), clusters.allocation(template))
    path = tmp_path / "message"
    path.write_bytes(clusters.encoded(message))
    printed, _spent = peer.run("hail", str(path))
    theirs, ours = json.loads(printed), answer(path.read_bytes())
    assert (ours["success"], ours["result"]) == (theirs["success"], theirs["result"])


@pytest.mark.sampled(1)
@pytest.mark.requirement("S186")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_peer_finds_our_balance_not_worse(peer: Peer, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "data"
    path.write_text(format_cluster(clusters.cluster(6, seed)))
    printed, _spent = peer.run("hbal", "-t", str(path))
    theirs = re.search(r"improved from ([\d.]+) to ([\d.]+)", printed)
    assert theirs is not None
    state = State(clusters.cluster(6, seed))
    assert f"{score(state):.8f}" == theirs[1]
    list(balance(state, Goals()))
    path.write_text(format_cluster(state.described()))
    again, _spent = peer.run("hbal", "-t", str(path), "-l", "0")
    judged = re.search(r"(?:Initial score: |initial score )([\d.]+)", again)
    assert judged is not None
    assert float(judged[1]) <= float(theirs[2]) + 1e-7


SAME = ["hroller-online", "hbal-split-insts", "n1-failure", "hbal-evac"]


@pytest.mark.sampled(0)
@pytest.mark.requirement("S187")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", SAME)
def test_hspace_prints_what_the_peer_prints(
    peer: Peer, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(fixture_path(f"{name}.data"))
    theirs, _spent = peer.run("hspace", "-t", path, "--machine-readable")
    assert hspace.main(["-t", path, "--machine-readable"]) == 0
    assert capsys.readouterr().out == theirs


@pytest.mark.sampled(0)
@pytest.mark.requirement("S187")
@pytest.mark.timeout(60)
def test_hspace_fills_a_generated_cluster_as_the_peer_does(
    peer: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data"
    path.write_text(format_cluster(clusters.cluster(6, 1)))
    words = ["-t", str(path), "--disk-template", "plain", "--machine-readable"]
    theirs, _spent = peer.run("hspace", *words)
    assert hspace.main(words) == 0
    assert capsys.readouterr().out == theirs


@pytest.mark.sampled(0)
@pytest.mark.requirement("S187")
@pytest.mark.timeout(60)
def test_hspace_promises_no_more_mirrored_instances_than_the_peer(
    peer: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data"
    path.write_text(format_cluster(clusters.cluster(6, 1)))
    words = ["-t", str(path), "--disk-template", "drbd", "--machine-readable"]
    theirs, _spent = peer.run("hspace", *words)
    assert hspace.main(words) == 0
    counts = [
        int(found[1])
        for text in (capsys.readouterr().out, theirs)
        if (found := re.search(r"^HTS_ALLOC_INSTANCES=(\d+)$", text, re.MULTILINE))
    ]
    assert counts == [25, 26]
