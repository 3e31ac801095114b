"""A checkout on a Debian with git, make and python3 only: `make demo` and tests find what they need.

The root is made by mmdebstrap from this host's own package sources. It shares the kernel and the network of this
host while it fetches packages, and has a network of its own while clusters run in it.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.debian_packages import unpacked
from tests.support.local_cluster import short_directory

pytestmark = [
    pytest.mark.host,
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make roots"),
]

TOP = Path(__file__).resolve().parents[2]
PLACE = "srv/checkout"
PASSED_ON = ("PIP_", "SSL_", "REQUESTS_", "HTTP", "http", "no_proxy", "NO_PROXY")
"""Variables (or their beginnings) by which this host reaches registries of packages."""
MOUNTS = """
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --make-rslave "$1/dev"
mount -t sysfs sys "$1/sys"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs tmpfs "$1/tmp"
mount --bind /opt "$1/opt"
mount --bind /etc/ssl/certs "$1/etc/ssl/certs"
ip link set lo up 2>/dev/null || true
exec chroot "$1" sh -c "cd /srv/checkout && $2"
"""


class Root:
    """The files of a small Debian; each command in it has mounts of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, command: str, *, is_apart: bool = False) -> str:
        """Run a line of shell in the checkout, with a network of its own if it is to be `is_apart`."""
        words = ["unshare", "--mount"]
        words += ["--net"] * is_apart
        done = subprocess.run(
            [*words, "sh", "-ec", MOUNTS, "sh", str(self.directory), command],
            env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}:\n{done.stdout[-20000:]}"
        return done.stdout


def environment() -> dict[str, str]:
    passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    return {**passed, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "TERM": "dumb"}


@pytest.fixture(scope="module")
def root() -> Iterator[Root]:
    with short_directory() as directory:
        make_root(directory / "root")
        yield Root(directory / "root")


def make_root(directory: Path) -> None:
    """A minimal Debian with this checkout, and what this host says about registries."""
    sources = [
        *Path("/etc/apt").glob("sources.list"),
        *Path("/etc/apt/sources.list.d").glob("*.sources"),
    ]
    suites = dict(
        line.partition("=")[::2] for line in Path("/etc/os-release").read_text().splitlines()
    )
    done = subprocess.run(
        [
            str(unpacked("mmdebstrap") / "usr/bin/mmdebstrap"), "--mode=root", "--variant=minbase",
            "--include=git,make,python3,ca-certificates",
            '--setup-hook=cp -r /etc/apt/apt.conf.d/. "$1/etc/apt/apt.conf.d/"',
            suites["VERSION_CODENAME"], str(directory), *map(str, sources),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"no root can be made here: {done.stdout[-500:]}")
    checkout = directory / PLACE
    checkout.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "ls-files"], cwd=TOP, check=True, capture_output=True, text=True
    )
    for name in listed.stdout.splitlines():
        target = checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / name, target, follow_symlinks=False)
    subprocess.run(["git", "init", "-q"], cwd=checkout, check=True)
    for path in (
        Path("/etc/pip.conf"),
        Path.home() / ".config/pip/pip.conf",
        Path("/etc/resolv.conf"),
    ):
        if path.exists():
            target = directory / path.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def test_the_demo_and_the_tests_find_what_they_need(root: Root) -> None:
    root.run("make packages setup && .venv/bin/python guest/build.py")
    said = root.run("make demo && make demo-down", is_apart=True)
    assert "The cluster is still running." in said
    assert "Removed /var/tmp/ganeti-demo." in said
    root.run(".venv/bin/pytest -q --collect-only tests")
    said = root.run(
        ".venv/bin/pytest -q -rs -m 'not soak' --sampled tests/unit/vcluster tests/unit/hypervisor"
        " tests/unit/cli tests/unit/web tests/unit/storage tests/unit/test_packaging.py"
        " tests/cluster/test_session.py tests/cluster/test_etcd_server.py tests/host/test_os_image.py"
        " tests/compat/test_hooks.py tests/compat/test_exports.py tests/benchmarks",
        is_apart=True,
    )
    assert [line for line in said.splitlines() if "there is no" in line] == [], (
        "a program is missing"
    )


def test_an_installation_is_taken_back_with_users_and_files(root: Root) -> None:
    prefix = "PREFIX=/srv/programs"  # /opt is this host's
    before = root.run("find / -xdev -path /srv/checkout -prune -o -type f -print | sort")
    root.run(f"make install {prefix} && /usr/local/sbin/ganeti-users-setup")
    shown = root.run(
        "getent passwd; gnt-cluster --version; ls /usr/local/share/man/man8 /etc/ganeti"
    )
    for sign in ("gnt-masterd", "ganeti", "gnt-instance.8.gz", "users"):
        assert sign in shown
    root.run(f"make uninstall {prefix}")
    assert "gnt-" not in root.run("getent passwd; getent group")
    after = root.run("find / -xdev -path /srv/checkout -prune -o -type f -print | sort")
    left = set(after.splitlines()) - set(before.splitlines())
    assert [one for one in left if "ganeti" in one or "gnt" in one or "/srv/" in one] == []
