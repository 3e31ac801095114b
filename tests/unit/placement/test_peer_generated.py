"""Against Debian's own tools on clusters full of trouble; skipped where `make bench ONLY=placement` has not fetched them."""

import json
from pathlib import Path

import placement_clusters as clusters
import pytest
from htools_peer import Peer

from ganeti.cli import hbal, hinfo, hspace
from ganeti.placement.answers import answer
from ganeti.placement.load.text import format_cluster
from tests.support.generated_clusters import TEMPLATES, Kind, cluster

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def peer() -> Peer:
    found = Peer()
    if not found.binary.exists():
        pytest.skip("Debian's htools are not in the cache; make bench ONLY=placement fetches them")
    return found


KINDS = [
    Kind(),
    Kind(closed=0.2),
    Kind(stopped=0.5, fullest=0.6),
    Kind(stopped=0.5, fullest=0.6, tags=0.6, closed=0.2),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("template", ["drbd", "plain"])
def test_hail_answers_as_the_peer(peer: Peer, tmp_path: Path, kind: Kind, template: str) -> None:
    for seed in range(5):
        message = clusters.message(cluster(seed, kind), clusters.allocation(template))
        path = tmp_path / "message"
        path.write_bytes(clusters.encoded(message))
        theirs, ours = json.loads(peer.run("hail", str(path))[0]), answer(path.read_bytes())
        assert (ours["success"], ours["result"]) == (theirs["success"], theirs["result"])


@pytest.mark.requirement("S186")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_hbal_prints_what_the_peer_prints(
    peer: Peer, tmp_path: Path, kind: Kind, capsys: Printed
) -> None:
    path = tmp_path / "data"
    path.write_text(format_cluster(cluster(2, kind)))
    theirs, _spent = peer.run("hbal", "-t", str(path))
    assert hbal.main(["-t", str(path)]) == 0
    assert capsys.readouterr().out == theirs


@pytest.mark.parametrize("kind", [*KINDS, Kind(groups=3, closed=0.3)], ids=str)
def test_hinfo_prints_what_the_peer_prints(
    peer: Peer, tmp_path: Path, kind: Kind, capsys: Printed
) -> None:
    path = tmp_path / "data"
    path.write_text(format_cluster(cluster(3, kind)))
    for words in (["-t", str(path)], ["-v", "-t", str(path)]):
        theirs, _spent = peer.run("hinfo", *words)
        assert hinfo.main(words) == 0
        assert capsys.readouterr().out == theirs


def node(number: int, spindles: int, free: int = 0, group: str = "u", memory: int = 262144) -> str:
    """A node without instances, with exclusive storage if it has free spindles."""
    role, flag = "M" if number == 1 else "N", "Y" if free else "N"
    sizes = f"{memory}|1024|{memory - 1024}|2097152|2097152|8"
    return f"node{number}|{sizes}|{role}|{group}|{spindles}||{flag}|{free}"


LARGE = "129024,4,1047552,1,1,2;131072,4,1048576,16,8,4"
SMALL = "63488,2,522240,1,1,2;65536,2,524288,16,8,2"
WIDE = "63488,2,522240,1,1,2;131072,4,1048576,16,8,12"
NARROW = "129024,2,1040384,1,1,2;131072,4,1048576,16,8,12"
EMPTY = {
    "exclusive": ([node(i, s, s) for i, s in enumerate((10, 9, 9, 12), 1)], {"u": NARROW}),
    "two intervals": ([node(i, 9, 9) for i in range(1, 5)], {"u": f"{LARGE};{SMALL}"}),
    "half exclusive": ([node(1, 10, 10), node(2, 12, 12), node(3, 1), node(4, 1)], {"u": NARROW}),
    "one group exclusive": (
        [node(1, 10, 10), node(2, 12, 12), node(3, 1, group="v"), node(4, 1, group="v")],
        {"u": WIDE, "v": WIDE},
    ),
    "groups of different sizes": (
        [node(1, 1), node(2, 1), *(node(i, 1, 0, "v", 131072) for i in (3, 4))],
        {"u": LARGE, "v": SMALL},
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.requirement("S187")
@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("more", [[], ["--no-capacity-checks"]], ids=["checked", "unchecked"])
def test_hspace_shrinks_as_the_peer_does(
    peer: Peer, tmp_path: Path, name: str, more: list[str], capsys: Printed
) -> None:
    nodes, policies = EMPTY[name]
    first = next(iter(policies.values()))
    lines = [
        f"{owner}|131072,4,1048576,1,1,2|{bounds}|plain,drbd|4.0|32.0"
        for owner, bounds in [("", first), *policies.items()]
    ]
    groups = [f"{owner}|{owner}|preferred||" for owner in policies]
    path = tmp_path / "data"
    path.write_text("\n".join([*groups, "", *nodes, "", "", "", *lines, ""]))
    words = ["-t", str(path), "--machine-readable", *more]
    assert hspace.main(words) == 0
    assert capsys.readouterr().out == peer.run("hspace", *words)[0]


@pytest.mark.sampled(0)
@pytest.mark.requirement("S187")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("option", ["--accept-existing-errors", "--independent-groups"])
def test_hspace_leaves_out_what_the_peer_leaves_out(
    peer: Peer, tmp_path: Path, option: str, capsys: Printed
) -> None:
    path = tmp_path / "data"
    for seed, templates in ((0, TEMPLATES), (3, ("drbd", "plain")), (1, ("drbd",))):
        kind = Kind(groups=2, fullest=0.7, closed=0.1, templates=templates)
        path.write_text(format_cluster(cluster(seed, kind)))
        words = ["-t", str(path), "--disk-template=plain", "--tiered-alloc=40g,8g,4", option]
        words.append("--machine-readable")
        assert hspace.main(words) == 0
        assert capsys.readouterr().out == peer.run("hspace", *words)[0]
