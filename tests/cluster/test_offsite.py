"""The recipes for copies off site, with the real restic and borg: what they bring back can be restored exactly."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.test_gnt_backup import add, digests, disks_of, install_os
from tests.cluster.test_incremental_backups import backups_of, change, save
from tests.support.local_cluster import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.in_turn, pytest.mark.timeout(300)]
DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "offsite.md").read_text()
SETTINGS = {
    "restic": {"RESTIC_REPOSITORY": "repository", "RESTIC_PASSWORD_FILE": "password"},
    "borg": {"BORG_REPO": "repository", "BORG_PASSCOMMAND": "cat password"},
}


def commands(program: str, after: str) -> str:
    """The commands of the page about a program in one section; paths of the host are those of the test."""
    section = TEXT.partition(after)[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    (block,) = (
        one for one in blocks if re.search(rf"^    (offsite )?{program} ", one, re.MULTILINE)
    )
    return "\n".join(line for line in block.splitlines() if "export" not in line)


@pytest.mark.requirement("S132")
@pytest.mark.parametrize("program", ["restic", "borg"])
def test_copies_off_site_bring_each_backup_back(
    cluster: LocalCluster, new_name: Callable[[], str], tmp_path: Path, program: str
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed on this host")
    install_os(cluster, program, ["create", "verify"])
    short = new_name()
    add(cluster, short, program)
    name = cluster.value("instance", short, "name")
    disks = disks_of(cluster, 1, short)
    place = backups_of(cluster, 2, name)
    (tmp_path / "password").write_text("secret")
    own = {
        "HOME": str(tmp_path),
        "PATH": f"{DOCS / 'examples'}:{os.environ['PATH']}",
        "TARGET": str(place.parent),
    }
    password = str(tmp_path / "password")
    settings = {
        key: value.replace("repository", str(tmp_path / "repository")).replace("password", password)
        for key, value in SETTINGS[program].items()
    }

    def run(script: str) -> None:
        done = subprocess.run(
            ["sh", "-euc", script], env={**own, **settings}, check=False, capture_output=True, text=True
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def copy() -> int:
        run(commands(program, "## Copy"))
        assert not (place.parent / ".offsite").exists()
        return sum(
            one.stat().st_size for one in (tmp_path / "repository").rglob("*") if one.is_file()
        )

    run(commands(program, "## Set up"))
    change(disks[0], list(range(50)))
    states, points = [digests(disks)], [save(cluster, "-n", "node2", short)[0]]
    size = copy()
    change(disks[0], [3])
    states.append(digests(disks))
    points.append(save(cluster, short)[0])
    assert copy() < 1.5 * size
    shutil.rmtree(place)
    run(
        commands(program, "## Restore")
        .replace("/srv/ganeti/backup", str(place.parent))
        .replace("web1.example.com", name)
    )
    cluster.ok("gnt-backup", "check", name)
    for point, state in zip(points, states, strict=True):
        change(disks[0], [0, 1])
        cluster.ok("gnt-backup", "restore", "-f", "--point", point, short)
        assert digests(disks) == state
