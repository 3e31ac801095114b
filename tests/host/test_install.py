"""What `make install` leaves on a host."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ganeti import __version__
from ganeti.base.paths import Paths

pytestmark = [pytest.mark.host, pytest.mark.in_turn]

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(900)
@pytest.mark.requirement("S159", "S240")
def test_an_installation_has_programs_an_allocator_and_units(tmp_path: Path) -> None:
    prefix, root = tmp_path / "opt", tmp_path / "root"
    gone = TOP / "build/lib/ganeti/units/gone.py"  # as an earlier version would have left it
    gone.parent.mkdir(parents=True, exist_ok=True)
    gone.write_text("import nosuch\n")
    subprocess.run(
        [
            str(TOP / "scripts" / "install"),
            "--with-iallocator-search-path=/usr/local/lib/iallocators,/usr/lib/ganeti/iallocators",
            sys.executable,
            str(prefix),
            str(root),
        ],
        check=True,
        env={**os.environ, "PYTHONPATH": str(TOP / "src")},  # nothing there counts as installed
    )
    shown = subprocess.run(
        [str(root / "usr/local/sbin/gnt-cluster"), "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert __version__ in shown.stdout
    hail = (root / "usr/local/lib/iallocators/hail").resolve()
    assert hail == (prefix / "bin" / "hail").resolve()
    search_path = "from ganeti.base.paths import Paths; print(*Paths().iallocator_search_path)"
    words = [str(prefix / "bin" / "python"), "-c", search_path]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["/usr/local/lib/iallocators", "/usr/lib/ganeti/iallocators"]
    unit = (root / "etc/systemd/system/ganeti-noded.service").read_text()
    assert f"ExecStart={prefix}/bin/ganeti-noded\n" in unit
    assert (root / "etc/systemd/system/ganeti-watcher.timer").exists()
    assert f"-x {prefix}/bin/ganeti-watcher" in (root / "etc/cron.d/ganeti-watcher").read_text()
    assert (root / "etc/cron.d/ganeti-cleaner").exists()
    strap = root / "usr/lib/ganeti/tools/lvmstrap"
    assert (
        "usage: lvmstrap"
        in subprocess.run([str(strap), "--help"], check=True, capture_output=True, text=True).stdout
    )
    assert (root / "usr/local/share/bash-completion/completions/gnt-instance").exists()
    tools = [
        str(prefix / "bin" / "python"),
        "-c",
        "import ganeti.daemons.master, ganeti.daemons.noded",
    ]
    subprocess.run(tools, check=True)
    assert (root / "usr/local/share/man/man8/gnt-instance.8.gz").exists()
    assert (root / "etc/logrotate.d/ganeti").exists()
    packages = list((prefix / "lib").glob("python*/site-packages/*"))
    assert not any(one.name in ("pytest", "mypy", "hypothesis") for one in packages)
    check_removal(prefix, root)


def check_removal(prefix: Path, root: Path) -> None:
    """It is refused while the host is in a cluster, and leaves nothing but what an administrator has."""
    words = [str(TOP / "scripts" / "uninstall"), str(prefix), str(root)]
    paths = Paths(root)
    paths.data.mkdir(parents=True)
    paths.log.mkdir(parents=True)
    paths.register.write_text("of a cluster")
    (paths.log / "node-daemon.log").write_text("done")
    mine = root / "usr/local/sbin/mine"
    mine.write_text("an administrator's")
    refused = subprocess.run(words, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "node-cleanup" in refused.stderr
    assert (prefix / "installed").exists()
    paths.register.unlink()
    subprocess.run(words, check=True)
    assert [path for path in root.rglob("*") if path.is_file()] == [mine]
    assert not prefix.exists()
