"""Placement in arrays against Debian's htools: allocate, balance, capacity; by processor time.

The clusters are those of `placement_clusters`. A figure in the daemon begins with the encoded message and ends with
the answer. `hail` at 100 nodes takes minutes and is not run: the peer's record says 263 s, which is not measured here.
"""

import argparse
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Threads for products of small matrices cost more than they save.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import placement_clusters as clusters
from htools_peer import Peer
from machine import spin_ms

from ganeti.placement.answers import answer
from ganeti.placement.balance import Goals, balance, movable
from ganeti.placement.candidates import Options, best_move
from ganeti.placement.capacity import fill, tiers
from ganeti.placement.description import Instance
from ganeti.placement.load.text import format_cluster, parse
from ganeti.placement.places import Rules
from ganeti.placement.score import everywhere, score
from ganeti.placement.state import State


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    few: int
    """Repetitions of a short measurement."""
    start_repeats: int
    """Starts of a program."""
    peer_sizes: Sequence[int]
    """Nodes of the clusters on which `hspace` is compared with the peer's."""
    seeds: int
    """Clusters of each of these sizes."""
    is_whole: bool = False
    """Whether 1,000 nodes are filled, and the peer does what takes it long."""


FULL = Scale(few=5, start_repeats=3, peer_sizes=range(4, 11), seeds=4, is_whole=True)
QUICK = Scale(few=3, start_repeats=3, peer_sizes=(5, 7), seeds=4)
SMOKE = Scale(few=1, start_repeats=1, peer_sizes=(5,), seeds=1)
SOURCE = Path(__file__).resolve().parents[1] / "src"


def best_ms(work: Callable[[], Any], repeats: int) -> float:
    """Processor milliseconds of `work` (the best of some)."""
    taken = []
    for _ in range(repeats):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken) * 1000


def message(nodes: int) -> bytes:
    """A request for a mirrored instance."""
    return clusters.encoded(clusters.message(clusters.cluster(nodes), clusters.allocation()))


def allocate_ms(nodes: int, repeats: int) -> float:
    """One allocation with all checks, from the encoded message on."""
    text = message(nodes)
    assert answer(text)["success"]
    return best_ms(lambda: answer(text), repeats)


def step_ms(nodes: int, repeats: int) -> float:
    """The best of all moves, the arrays included."""
    cluster = clusters.cluster(nodes)

    def step() -> None:
        state = State(cluster)
        which = movable(state, everywhere(state), Goals())
        assert best_move(state, everywhere(state), which, Options()) is not None

    return best_ms(step, repeats)


def hail_process_s(path: Path) -> float:
    """The script, from start to end."""
    command = [sys.executable, "-m", "ganeti.cli.hail", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def process_s(*words: str, repeats: int) -> float:
    """Processor seconds of a local command from start to end, its modules compiled before."""
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        taken = []
        for _ in range(1 + repeats):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", f"ganeti.cli.{words[0]}", *words[1:]]
            subprocess.run(command, env=environment, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken[1:])


def hspace_small_ratio(peer: Peer, folder: Path, repeats: int) -> float:
    """Our `hspace` on four nodes, the whole process, mirrored and not, over the peer's."""
    path = folder / "small.data"
    path.write_text(format_cluster(clusters.cluster(4)))
    own = theirs = 0.0
    for template in ("plain", "drbd"):
        words = ("-t", str(path), "--disk-template", template, "--machine-readable")
        own += process_s("hspace", *words, repeats=repeats)
        theirs += min(peer.run("hspace", *words)[1] for _ in range(repeats))
    return own / theirs


def balanced(nodes: int, moves: int) -> tuple[str, float, float]:
    """(text of the cluster, score at the end, processor seconds)."""
    text = format_cluster(clusters.cluster(nodes))
    begun = time.process_time()
    state = State(parse(text))
    for _step in balance(state, Goals(max_moves=moves)):
        pass
    return text, score(state), time.process_time() - begun


def against_hbal(peer: Peer, folder: Path, nodes: int, moves: int) -> tuple[float, float]:
    """(the local final score over the peer's, the peer's processor time over the local one)."""
    text, own, seconds = balanced(nodes, moves)
    path = folder / f"{nodes}.data"
    path.write_text(text)
    limit = ["-l", str(moves)] if moves > 0 else []
    printed, theirs = peer.run("hbal", "-t", str(path), *limit)
    found = re.search(r"improved from [\d.]+ to ([\d.]+)", printed)
    assert found is not None, printed
    return round(own, 8) / float(found[1]), theirs / seconds


def standard(template: str) -> Instance:
    """The policy's standard size."""
    spec = clusters.POLICY["std"]
    disk = spec["disk-size"]
    return Instance("new", spec["memory-size"], disk, spec["cpu-count"], template=template,
                    spindles=1, disks=(disk,))  # fmt: skip


def capacity(nodes: int, template: str) -> tuple[int, float]:
    """(how many fit, processor seconds)."""
    begun = time.process_time()
    number = len(fill(State(clusters.cluster(nodes)), standard(template), Rules()).nodes)
    return number, time.process_time() - begun


def tiered(nodes: int, template: str) -> tuple[str, float]:
    """(how many of which size as `hspace` prints it, processor seconds), beginning with the largest size."""
    largest = clusters.POLICY["minmax"][0]["max"]
    one = Instance("new", largest["memory-size"], largest["disk-size"], largest["cpu-count"],
                   template=template, spindles=largest["spindle-use"],
                   disks=(largest["disk-size"],))  # fmt: skip
    begun = time.process_time()
    found = tiers(State(clusters.cluster(nodes)), [one], Rules()).instances
    spent = time.process_time() - begun
    sizes = Counter((one.memory, one.disk, one.vcpus, one.spindles or 0) for one in found)
    shown = (",".join(f"{part:.0f}" for part in size) for size in sizes)
    return " ".join(
        f"{size}={number}" for size, number in zip(shown, sizes.values(), strict=True)
    ), spent


def capacity_equal(peer: Peer, folder: Path) -> int:
    """Return whether as many fit on 10 nodes as `hspace` says, of one size and of shrinking ones, without mirrors.

    Mirrored ones are checked here as `hail` checks them; the peer's `hspace` promises some that its `hail` refuses.
    """
    path = folder / "capacity.data"
    path.write_text(format_cluster(clusters.cluster(10)))
    words = ("-t", str(path), "--disk-template", "plain", "--machine-readable")
    printed, _spent = peer.run("hspace", *words)
    is_equal = f"HTS_ALLOC_INSTANCES={capacity(10, 'plain')[0]}\n" in printed
    return int(is_equal and f"HTS_TSPEC='{tiered(10, 'plain')[0]}'\n" in printed)


def hspace_seconds(
    peer: Peer, folder: Path, nodes: int, scale: Scale, *, exclusive: bool = False
) -> list[tuple[float, float]]:
    """(our `hspace`, the peer's) in processor seconds, whole processes, on clusters of that size, mirrored and not."""
    path = folder / "seeds.data"
    seconds = []
    for seed in range(1, scale.seeds + 1):
        cluster = clusters.cluster(nodes, seed)
        if exclusive:
            cluster = clusters.with_exclusive_storage(cluster)
        path.write_text(format_cluster(cluster))
        for template in ("plain", "drbd"):
            words = ("-t", str(path), "--disk-template", template, "--machine-readable")
            own = process_s("hspace", *words, repeats=scale.start_repeats)
            theirs = (peer.run("hspace", *words)[1] for _ in range(scale.start_repeats))
            seconds.append((own, min(theirs)))
    return seconds


def hspace_1000_s(template: str) -> float:
    """Our `hspace` on 1,000 nodes, the whole process."""
    with tempfile.NamedTemporaryFile("w", suffix=".data") as file:
        file.write(format_cluster(clusters.cluster(1000)))
        file.flush()
        words = ("-t", file.name, "--disk-template", template, "--machine-readable")
        return process_s("hspace", *words, repeats=1)


def with_peer(peer: Peer, figures: dict[str, Any], scale: Scale) -> None:
    """The figures that need Debian's tools."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ratio, _speed = against_hbal(peer, folder, 10, -1)
        figures["final_score_ratio"] = round(ratio, 6)
        figures["capacity_equal"] = capacity_equal(peer, folder)
        figures["hspace_small_ratio"] = round(
            hspace_small_ratio(peer, folder, scale.start_repeats), 2
        )
        ratios = []
        for nodes in scale.peer_sizes:
            seconds = hspace_seconds(peer, folder, nodes, scale)
            own, theirs = map(sum, zip(*seconds, strict=True))
            figures[f"hspace_{nodes}_ratio"] = round(own / theirs, 2)
            ratios += [one / other for one, other in seconds]
        figures["hspace_worst_ratio"] = round(max(ratios), 2)
        seconds = hspace_seconds(peer, folder, scale.peer_sizes[0], scale, exclusive=True)
        own, theirs = map(sum, zip(*seconds, strict=True))
        figures["hspace_exclusive_ratio"] = round(own / theirs, 2)
        figures["hspace_exclusive_s"] = round(own / len(seconds), 2)
        if not scale.is_whole:
            return
        ratio, speed = against_hbal(peer, folder, 40, 20)
        figures["score_after_20_ratio"] = round(ratio, 6)
        figures["balance_40_peer_ratio"] = round(speed)
        path = folder / "message.json"
        path.write_bytes(message(40))
        _printed, spent = peer.run("hail", str(path))
        figures["hail_40_peer_s"] = round(spent, 2)
        figures["allocate_40_peer_ratio"] = round(spent * 1000 / figures["allocate_40_ms"])


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without what takes the peer long")
    parser.add_argument(
        "--smoke", action="store_true", help="one of everything, to see that it runs"
    )
    args = parser.parse_args()
    scale = SMOKE if args.smoke else QUICK if args.quick else FULL
    few = scale.few
    sizes = {nodes: allocate_ms(nodes, few * 2) for nodes in (10, 40, 100)}
    sizes[1000] = allocate_ms(1000, few)
    growth = math.log(sizes[1000] / sizes[100]) / math.log(10)
    figures: dict[str, Any] = {f"allocate_{nodes}_ms": round(ms, 2) for nodes, ms in sizes.items()}
    figures["allocate_exponent"] = round(growth, 2)
    for nodes in (40, 100, 1000):
        figures[f"step_{nodes}_ms"] = round(step_ms(nodes, 1 if nodes > 100 else few), 2)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(message(40))
        file.flush()
        figures["hail_process_s"] = round(
            min(hail_process_s(Path(file.name)) for _ in range(few)), 3
        )
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(message(10))
        file.flush()
        figures["cli_start_ms"] = round(
            process_s("hail", file.name, repeats=scale.start_repeats) * 1000
        )
    figures["balance_100_whole_s"] = round(balanced(100, -1)[2], 2)
    for nodes in (40, 100):
        for template in ("plain", "drbd"):
            spent = {"standard": capacity(nodes, template)[1], "tiered": tiered(nodes, template)[1]}
            for way, seconds in spent.items():
                figures[f"{way}_{nodes}_{template}_s"] = round(seconds, 2)
        figures[f"capacity_{nodes}_s"] = round(
            max(value for key, value in figures.items() if f"d_{nodes}_" in key), 2
        )
    if scale.is_whole:
        for template in ("plain", "drbd"):
            figures[f"standard_1000_{template}_s"] = round(capacity(1000, template)[1], 2)
            figures[f"tiered_1000_{template}_s"] = round(tiered(1000, template)[1], 2)
            figures[f"hspace_1000_{template}_s"] = round(hspace_1000_s(template), 2)
        figures["balance_1000_step_s"] = round(balanced(1000, 20)[2] / 20, 3)
    figures["peak_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    peer = Peer()
    why_not = peer.fetch()
    if why_not:
        figures["peer"] = why_not
    else:
        with_peer(peer, figures, scale)
    figures["spin_ms"] = spin_ms()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
