"""Hostile names and parameters, by the real commands and daemons: refused with the field's name, and nothing is made."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_cluster import LocalCluster, local_cluster
from tests.support.tiny_guest import build_tiny_guest

pytestmark = [pytest.mark.host, pytest.mark.in_turn, pytest.mark.timeout(240)]

NAME, OTHER = "web1.example.com", "web2.example.com"
HOSTILE = (
    *("../x", "/etc/x", "a/../b", ".", "..", "", "x" * 256, "x\n", "a\nb", "a b", "$(id)"),
    *("`id`", ";id", "a|b", "'a'", '"a"', "%s%n", "{0}", "a\u202eb", "\uff0e\uff0e", "xn--\u00e4"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    guest = build_tiny_guest()
    with local_cluster("--hypervisor", "kvm", "--guest", str(guest), nodes=1) as made:
        for name in (NAME, OTHER):
            made.ok(
                "gnt-instance", "add", "-n", "node1", "-t", "file", "--disk", "0:size=64m", "--no-start",
                "-o", "tiny+default", "-B", "memory=96m", "--no-nics", name,
            )  # fmt: skip
        yield made


def everything(cluster: LocalCluster) -> tuple[set[str], str]:
    """What the configuration has, and all that lies on the node but logs and what changes by itself."""
    root = Path(cluster.cluster.master.root)
    files = {str(path) for top in ("etc", "srv", "root") for path in (root / top).rglob("*")}
    return files, cluster.ok("gnt-instance", "info", "--all").out


@pytest.fixture(autouse=True)
def nothing_changes(cluster: LocalCluster) -> Iterator[None]:
    before = everything(cluster)
    yield
    assert everything(cluster) == before


def refused(cluster: LocalCluster, *words: str) -> str:
    done = cluster.run(*words)
    said = done.out + done.err
    assert done.status != 0, words
    assert "Traceback" not in said
    return said


@pytest.mark.rotated(3)
@pytest.mark.requirement("A40")
@pytest.mark.parametrize(
    "name",
    [*HOSTILE[:8], *(pytest.param(name, marks=pytest.mark.soak) for name in HOSTILE[8:])],
)
def test_a_hostile_name_makes_nothing(cluster: LocalCluster, name: str) -> None:
    add = ["gnt-instance", "add", "--no-install", "--no-nics"]
    other = name or "-"  # an empty option is one that was not given
    for words in (
        [*add, "-t", "diskless", "-n", "node1", "--", name],
        [*add, "-t", "diskless", "-n", other, "web3.example.com"],
        [*add, "-t", "diskless", "-g", other, "web3.example.com"],
        [*add, "-t", "diskless", "-I", f"x{name}", "web3.example.com"],
        [*add, "-t", f"x{name}", "-n", "node1", "web3.example.com"],
        [*add, "-t", "file", "--disk", "0:size=8m", "-n", "node1", f"--file-storage-dir=../{name}",
         "web3.example.com"],
        ["gnt-instance", "rename", NAME, name],
        ["gnt-instance", "modify", "-o", name, NAME],
        ["gnt-group", "add", name],
    ):  # fmt: skip
        refused(cluster, *words)


@pytest.mark.rotated(6)
@pytest.mark.requirement("A44", "A45", "G24")
@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("cdrom_image_path", "{data}/ca.key"),
        ("cdrom_image_path", "{data}/node.key"),
        ("cdrom_image_path", "{disk}"),
        ("cdrom_image_path", "/etc/shadow"),
        ("cdrom_image_path", "http://169.254.169.254/latest/meta-data"),
        ("floppy_image_path", "/proc/self/environ"),
        ("kernel_path", "/nosuch"),
        ("kernel_args", "ro\nquiet"),
        ("usb_devices", "disk:/etc/shadow"),
        ("usb_devices", "serial::/dev/ttyS0"),
        ("cpu_type", r"host\,-S -monitor stdio"),
        ("machine_version", r"pc\,accel=kvm"),
        ("vnc_bind_address", r"0.0.0.0\,password=off"),
        ("vnc_bind_address", "-1"),
        ("vnc_password_file", "/etc/../etc/shadow"),
        ("spice_bind", r"lo\,disable-ticketing=on"),
        ("keymap", "../../etc/passwd"),
        ("security_domain", "root"),
        ("security_model", "pool"),
        ("mem_path", "/etc/../tmp"),
        ("migration_port", "1"),
        ("migration_caps", "postcopy-ram"),
        ("kvm_extra", "-device 'x"),
        ("kvm_path", "/bin/sh"),
    ],
)
def test_a_hostile_parameter_changes_nothing_and_is_named(
    cluster: LocalCluster, parameter: str, value: str
) -> None:
    (disk,) = (path for path in cluster.disks() if OTHER in str(path))
    given = value.format(data=cluster.cluster.master.paths.data, disk=disk)
    assert parameter in refused(
        cluster, "gnt-instance", "modify", "-H", f"{parameter}={given}", NAME
    )
    words = ["gnt-instance", "add", "-n", "node1", "-t", "diskless", "--no-install", "--no-nics"]
    said = refused(cluster, *words, "-H", f"kvm:{parameter}={given}", "web3.example.com")
    assert parameter in said
    assert refused(cluster, "gnt-instance", "startup", "-H", f"{parameter}={given}", NAME)


@pytest.mark.requirement("A46", "G24")
@pytest.mark.parametrize(
    ("parameter", "field"),
    [
        ("PATH=/evil", "PATH"),
        ("LD_PRELOAD=/evil.so", "LD_PRELOAD"),
        ("BASH_FUNC_x%%=() { id; }", "BASH_FUNC_x%%"),
        ("Heartbeat_interval=1", "Heartbeat_interval"),
        ("heartbeat_interval=1\n2", "heartbeat_interval"),
        ("nosuch=1", "nosuch"),
        ("ignore_acpi=" + "x" * (64 * 1024 + 1), "ignore_acpi"),
    ],
)
def test_a_hostile_os_parameter_is_refused(
    cluster: LocalCluster, parameter: str, field: str
) -> None:
    for words in (
        ["gnt-instance", "modify", "-O", parameter, NAME],
        ["gnt-instance", "reinstall", "-f", "-O", parameter, NAME],
        ["gnt-os", "modify", "-O", parameter, "tiny"],
    ):
        said = refused(cluster, *words)
        assert field in said or "refuses the parameters" in said or "OSP_" in said
