"""What `hspace` says fits, placed by `hail` one instance after the other; also where nodes cannot be lost."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from ganeti.base.errors import PrereqError
from ganeti.cli import hspace
from ganeti.placement.allocate import allocate
from ganeti.placement.description import Instance
from ganeti.placement.load.text import format_cluster, parse
from ganeti.placement.places import Rules
from ganeti.placement.redundancy import Violations, is_redundant
from ganeti.placement.state import State
from tests.support.generated_clusters import Kind, cluster

ACCEPT, INDEPENDENT = "--accept-existing-errors", "--independent-groups"
SEEDS = range(16)
OPTIONS: tuple[tuple[str, ...], ...] = ((), (ACCEPT,), (INDEPENDENT,), (ACCEPT, INDEPENDENT))
CASES = [
    pytest.param(
        seed, options, marks=() if number == (seed + seed // 4) % len(OPTIONS) else pytest.mark.soak
    )
    for seed in SEEDS
    for number, options in enumerate(OPTIONS)
]
"""Each kind of cluster meets each option; in `make soak` each cluster does."""
TEMPLATES = (("drbd", "plain"), ("drbd", "plain", "sharedfile"), ("plain",), ("drbd",))


def kind_of(seed: int) -> Kind:
    return Kind(
        groups=1 + seed % 3, closed=0.2 * (seed % 3 == 0), stopped=0.3 * (seed % 4 == 1),
        tags=0.3 * (seed % 5 == 0), fullest=(0.5, 0.7, 0.9, 0.9)[seed % 4], templates=TEMPLATES[seed % 4],
    )  # fmt: skip


def promised(template: str, printed: str) -> list[list[Instance]]:
    """The instances of the standard size, and those of the shrinking sizes."""
    keys = dict(line.split("=", 1) for line in printed.splitlines())
    std = [int(float(keys[f"HTS_SPEC_{name}"])) for name in ("MEM", "DSK", "CPU", "SPN")]
    tiers: list[Instance] = []
    for word in keys["HTS_TSPEC"].strip("'").split():
        size, _, count = word.partition("=")
        tiers += [sized(template, [int(one) for one in size.split(",")])] * int(count)
    number = int(keys["HTS_ALLOC_INSTANCES"])
    return [[sized(template, std)] * number, tiers]


def sized(template: str, sizes: Sequence[int]) -> Instance:
    memory, disk, cpus, spindles = sizes
    return Instance("new", memory, disk, cpus, template=template, spindles=spindles, disks=(disk,))


def hails_rules(state: State, options: tuple[str, ...]) -> Rules:
    """As the allocator's: several groups keep their violations; a single group must be redundant, unless asked."""
    if len(state.groups) > 1:
        return Rules(before=Violations(state.copy()))
    return Rules(capacity=ACCEPT not in options)


def placed(state: State, wanted: list[Instance], options: tuple[str, ...]) -> int:
    """How many of them `hail` places, one after the other."""
    for number, one in enumerate(wanted):
        named = msgspec.structs.replace(one, name=f"new-{number}")
        try:
            place, _groups = allocate(state, named, hails_rules(state, options))
        except PrereqError:
            return number
        state.append(named, *place.pair)
    return len(wanted)


@pytest.mark.sampled(4)
@pytest.mark.rotated(6)
@pytest.mark.requirement("S187")
@pytest.mark.parametrize(("seed", "options"), CASES)
def test_hspace_promises_no_more_than_hail_places(
    seed: int, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.data"
    path.write_text(format_cluster(cluster(seed, kind_of(seed))))
    for template in ("plain", "drbd"):
        words = ["-t", str(path), f"--disk-template={template}", "--machine-readable", "-l", "10"]
        assert hspace.main([*words, *options]) == 0
        for wanted in promised(template, capsys.readouterr().out):
            state = State(parse(path.read_text()))
            assert placed(state, wanted, options) == len(wanted), (template, len(wanted))


def test_generated_clusters_are_redundant_and_not() -> None:
    found = [is_redundant(State(cluster(seed, kind_of(seed)))) for seed in SEEDS]
    assert 4 <= sum(found) <= len(SEEDS) - 4
