"""How long the guests of merged clusters are down: three clusters of real daemons, real sshd (root), no real guests."""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from machine import spin_ms, sync_ms

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ganeti.bootstrap.merge.steps import Instances, StartedInstances, Verified
from tests.support.merging import Merging, clusters_to_merge


def by_hand_s(merging: Merging) -> float:
    """Return what stopping and starting the same guests takes where nothing is merged."""
    begun = time.monotonic()
    for one in merging.others:
        for command in ("shutdown", "startup"):
            one.ok("gnt-instance", command, f"up.{one.cluster.domain}", timeout_s=300)
    return time.monotonic() - begun


def merge_s(merging: Merging) -> tuple[float, float]:
    """From the stop of the first guest to the start of the last; and the whole merge."""
    master, seen = merging.ours.cluster.master, dict[str, float]()
    words = master.words(merging.words("--force", *merging.contacts))
    begun = time.monotonic()
    with subprocess.Popen(
        words,
        env=master.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(merging.passwords)
        process.stdin.close()
        for line in process.stdout:
            print(f"{time.monotonic() - begun:7.1f}  {line}", end="", file=sys.stderr)
            seen[line.removesuffix(" ...\n")] = time.monotonic()
    assert process.returncode == 0
    assert StartedInstances().title in seen
    return seen[Verified().title] - seen[Instances().title], time.monotonic() - begun


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with clusters_to_merge(*((1, 1, 1) if quick else (2, 2, 1))) as merging:
        by_hand = by_hand_s(merging)
        stopped, whole = merge_s(merging)
        figures = {
            "merge_stop_s": round(stopped - by_hand, 1),
            "by_hand_s": round(by_hand, 1),
            "merge_s": round(whole, 1),
            "sync_ms": sync_ms(merging.ours.directory),
            "spin_ms": spin_ms(),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
