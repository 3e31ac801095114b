"""The web console in a real browser, with a real cluster and a real guest."""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.paths import RAPI_PORT
from tests.support.local_cluster import LocalCluster, local_cluster, wait_until
from tests.support.openid_provider import openid_provider
from tests.support.patience import patience
from tests.support.tiny_guest import build_tiny_guest

PROJECT = Path(__file__).parents[2]
BUILT = PROJECT / "src/ganeti/web/ui/index.html"
MODULES = PROJECT / "console/node_modules/playwright-core"
MISSING = next(
    (
        why
        for is_missing, why in (
            (shutil.which("node") is None, "node is not installed"),
            (shutil.which("chromium") is None, "chromium is not installed"),
            (not BUILT.exists() or not MODULES.exists(), "run `make console` first"),
        )
        if is_missing
    ),
    "",
)
pytestmark = [
    pytest.mark.host,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]
USERS = """admin secret write
op secret operator
viewer look read
shop secret write,name=shop-*
shopview look read,name=shop-*
guest look
"""
OF_ALL_NODES = ["map", "nodes", "node", "groups", "group", "networks", "storage"]
OF_READERS = ["whatif", "os", "locks", "filters", "backups"]
UNLIMITED = ["whatif", "os", "images", "locks", "filters"]
OF_ADMINISTRATORS = ["audit", "users", "create"]
ROLES = [
    ("admin", "secret", []),
    ("op", "secret", OF_ADMINISTRATORS),
    ("viewer", "look", OF_ADMINISTRATORS),
    ("guest", "look", [*OF_READERS, *OF_ADMINISTRATORS]),
    ("shop", "secret", [*OF_ALL_NODES, *UNLIMITED, "audit", "users"]),
    ("shopview", "look", [*OF_ALL_NODES, *UNLIMITED, *OF_ADMINISTRATORS]),
]
"""Users, their passwords, and the pages that their roles do not have."""
LIST = ".empty, .grid-row, details.series, table"
"""A list, whether or not the other scenarios have left something in it."""
PAGES = [
    ("overview", "", ".health"),
    ("instances", "instances", ".grid-row"),
    ("instance", "instances/shop-1.example.com", "dl.facts"),
    ("create", "create", ".with-panel"),
    ("jobs", "jobs", ".grid-row"),
    ("job", "jobs/1", "dl.facts"),
    ("nodes", "nodes", ".grid-row"),
    ("node", "nodes/node1.vcluster.test", "dl.facts"),
    ("groups", "groups", ".grid-row"),
    ("group", "groups/default", "dl.facts"),
    ("cluster", "cluster", "dl.facts"),
    ("networks", "networks", LIST),
    ("map", "map", ".tile"),
    ("whatif", "whatif", "form.card"),
    ("audit", "audit", "table"),
    ("users", "users", "table"),
    ("storage", "storage", "table"),
    ("os", "os", "table"),
    ("images", "images", LIST),
    ("backups", "exports", LIST),
    ("locks", "locks", LIST),
    ("filters", "filters", LIST),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running_cluster() as one:
        yield one


@contextlib.contextmanager
def running_cluster() -> Iterator[LocalCluster]:
    """Three nodes with the console, and two instances of a real guest."""
    guest = build_tiny_guest()
    options = ("--hypervisor", "kvm", "--guest", str(guest), "--rapi")
    with local_cluster(*options, nodes=3) as cluster:
        for number in (1, 2, 3):
            paths = cluster.node(number).paths
            paths.rapi_users.write_text(USERS)
        for name in ("shop-1.example.com", "web1.example.com"):
            add(cluster, name)
        yield cluster


def add(cluster: LocalCluster, name: str) -> None:
    cluster.ok("gnt-instance", "add", "-t", "diskless", "-o", "noop", "--no-install",
               "--no-nics", "-I", "hail", name)  # fmt: skip


def add_guest(cluster: LocalCluster, name: str, node: str) -> None:
    """Add an instance whose guest runs."""
    cluster.ok("gnt-instance", "add", "-t", "sharedfile", "-s", "64m", "-o", "tiny+default",
               "-B", "memory=96m", "--no-nics", "-n", node, name, timeout_s=120)  # fmt: skip


def address(cluster: LocalCluster, node: int = 1) -> str:
    return f"https://{cluster.node(node).address}:{RAPI_PORT}"


def words(cluster: LocalCluster, scenario: str, folder: Path, *more: str) -> list[str]:
    """Return the command of a scenario, which waits longer on a busy machine."""
    script = PROJECT / "console/browser" / f"{scenario}.mjs"
    environment = ["env", f"CONSOLE_PATIENCE={patience()}"]
    return [*environment, "node", str(script), address(cluster), str(folder), *more]


def play(cluster: LocalCluster, scenario: str, folder: Path, *more: str) -> None:
    """Run one scenario; its report is that of the failure."""
    done = subprocess.run(
        words(cluster, scenario, folder, *more), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_console_signs_in_and_shows_each_role_what_it_may(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    play(cluster, "signin", tmp_path)


@pytest.mark.in_turn
def test_no_role_sees_an_error_on_any_page(cluster: LocalCluster, tmp_path: Path) -> None:
    """The job of the list is one that limited users do not see, so they get a page that says so."""
    pages = [(name, path) for name, path, _ in PAGES if name != "job"]
    play(cluster, "roles", tmp_path, json.dumps(ROLES), json.dumps(pages))


async def test_console_signs_in_by_an_openid_provider(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    settings = cluster.node(1).paths.rapi_openid
    async with openid_provider(tmp_path) as provider:
        provider.claims = {"preferred_username": "alice", "groups": ["admins"]}
        settings.write_text(provider.settings(address=address(cluster), label="Example login"))
        try:
            await asyncio.to_thread(play, cluster, "openid", tmp_path, provider.issuer)
        finally:
            settings.unlink()


@pytest.mark.in_turn
def test_all_pages_are_accessible_in_both_colours_and_all_widths(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    play(cluster, "pages", tmp_path, json.dumps(PAGES))


def test_instance_lives_from_creation_to_removal_in_the_console(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    play(cluster, "life", tmp_path)
    assert "life1.example.com" not in cluster.names("instance")


def test_map_shows_failures_and_moves_instances(cluster: LocalCluster, tmp_path: Path) -> None:
    play(cluster, "map", tmp_path)


def test_failure_is_simulated_and_played(cluster: LocalCluster, tmp_path: Path) -> None:
    name = "whatif1.example.com"
    add_guest(cluster, name, "node2")
    play(cluster, "whatif", tmp_path)
    cluster.ok("gnt-instance", "remove", "-f", name)


def test_image_is_uploaded_used_and_saved_by_a_schedule(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    file = tmp_path / "box.img"
    file.write_bytes(os.urandom(6 << 20))
    play(cluster, "images", tmp_path, str(file))
    stored = cluster.value("image", "box", "disk.sha256")
    assert stored == hashlib.sha256(file.read_bytes()).hexdigest()
    cluster.ok("gnt-instance", "remove", "-f", "box1.example.com")
    cluster.ok("gnt-image", "remove", "-f", "box")


@pytest.mark.in_turn
def test_edit_shows_the_difference_and_its_effect_first(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    play(cluster, "edit", tmp_path)
    assert cluster.value("instance", "shop-1.example.com", "be/vcpus") == "2"


MARKUP = "<img src=x onerror=window.ran=true><b class=stored>x</b>"
MARKED = {"job", "instance", "audit", "filters", "backups"}
"""Pages that must show the markup; on all others it must at least do nothing."""


@pytest.mark.in_turn
def test_stored_markup_is_only_text_on_every_page(cluster: LocalCluster, tmp_path: Path) -> None:
    """Names and tags cannot have markup: all that can is set here."""
    name = "web1.example.com"
    refused = cluster.run("gnt-instance", "add-tags", name, MARKUP)
    assert refused.status != 0
    cluster.ok("gnt-instance", "modify", "--force", "-O", f"motd={MARKUP}", "-H", f"kernel_args={MARKUP}",
               "--reason", MARKUP, name)  # fmt: skip
    cluster.ok("gnt-filter", "add", "--priority=9", f"--reason={MARKUP}", "--action=CONTINUE",
               f'--predicates=[["reason", ["=", "reason", "{MARKUP}"]]]')  # fmt: skip
    make_backups(cluster, name)
    failed = cluster.run(
        "gnt-instance", "modify", "--reason", MARKUP, "-H", f"cpu_type={MARKUP}", name
    )
    assert failed.status != 0
    jobs = cluster.ok("gnt-job", "list", "--no-headers", "-o", "id").out.split()
    pages = [
        (page, path, ".page", page in MARKED)
        for page, path, _ready in (
            *(one for one in PAGES if one[0] not in ("instance", "job")),
            ("instance", f"instances/{name}", ""),
            ("job", f"jobs/{jobs[-1]}", ""),
        )
    ]
    play(cluster, "markup", tmp_path, json.dumps(pages))


def make_backups(cluster: LocalCluster, instance: str) -> None:
    """Whoever can write to a directory for backups or exports chooses the names of what is in it."""
    name = MARKUP.replace("/", "")
    paths = cluster.node(1).paths
    backups, export = paths.below("/srv/ganeti/backup"), paths.exports / name
    for directory in (backups / instance, backups / name, export):
        directory.mkdir(parents=True, exist_ok=True)
    for file in ("20261127-180500.json", f"{name}.json"):
        (backups / instance / file).write_text(json.dumps({"format": MARKUP}))
    (export / "config.ini").write_text("")


@pytest.mark.in_turn
def test_charts_of_a_guest_grow(cluster: LocalCluster, tmp_path: Path) -> None:
    name = "charts1.example.com"
    add_guest(cluster, name, "node1")
    wait_until(lambda: cluster.value("instance", name, "usage.cpu") != "-", "it is measured", 30)
    play(cluster, "charts", tmp_path)


def test_console_follows_a_change_of_the_master(tmp_path: Path) -> None:
    """It has a cluster of its own, because all other tests talk to the first node."""
    with (
        running_cluster() as cluster,
        subprocess.Popen(
            words(cluster, "failover", tmp_path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as browser,
    ):
        assert browser.stdin is not None
        assert browser.stdout is not None
        try:
            line = browser.stdout.readline()
            if line:
                add(cluster, "meanwhile.example.com")
                done = cluster.run("gnt-cluster", "master-failover", node=2)
                assert done.status == 0, done.err
                wait_until(lambda: is_served(cluster, 2), "the new master serves the console", 60)
                browser.stdin.write(f"{address(cluster, 2)}\n")
                browser.stdin.flush()
            _, report = browser.communicate()
            assert browser.returncode == 0, report
        finally:
            browser.kill()


def is_served(cluster: LocalCluster, node: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection((cluster.node(node).address, RAPI_PORT), timeout=1).close()
        return True
    return False
