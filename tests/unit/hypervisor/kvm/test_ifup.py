"""The script that connects taps: the commands that it runs, for each mode."""

import subprocess
from pathlib import Path

import pytest

from ganeti.hypervisor.kvm.network import OWN_SCRIPT

pytestmark = pytest.mark.requirement("S82")

TOLD = {"INTERFACE": "tap0", "MAC": "aa:00:00:00:00:01", "MODE": "bridged", "LINK": "br0"}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory with programs that only note their words."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("ip", "bridge", "ovs-vsctl"):
        program = directory / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>"{tmp_path}/words"\n')
        program.chmod(0o755)
    return directory


def connect(tools: Path, **told: str) -> tuple[int, list[str], str]:
    """Exit status, the commands, and what the script said."""
    done = subprocess.run(
        ["/bin/sh", str(OWN_SCRIPT)],
        env={"PATH": f"{tools}:/usr/bin:/bin", **TOLD, **told},
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    words = tools.parent / "words"
    lines = words.read_text().splitlines() if words.exists() else []
    return done.returncode, lines, done.stderr


def test_a_bridged_tap_joins_its_bridge(tools: Path) -> None:
    assert connect(tools) == (
        0,
        ["ip link set dev tap0 master br0", "ip link set dev tap0 up"],
        "",
    )


def test_the_mtu_of_the_bridge_is_kept(tools: Path) -> None:
    # Every host has a loopback interface, with an MTU of its own.
    assert connect(tools, LINK="lo")[1][0] == "ip link set dev tap0 mtu 65536"


@pytest.mark.parametrize(
    ("vlan", "commands"),
    [
        ("10", ["vid 10 pvid untagged"]),
        (".10", ["vid 10 pvid untagged"]),
        (":20:30", ["vid 20", "vid 30"]),
        (".10:20", ["vid 10 pvid untagged", "vid 20"]),
    ],
)
def test_vlans_of_a_bridge_replace_the_first(tools: Path, vlan: str, commands: list[str]) -> None:
    status, lines, _err = connect(tools, VLAN=vlan)
    assert status == 0
    assert lines == [
        "ip link set dev tap0 master br0",
        "bridge vlan del dev tap0 vid 1",
        *(f"bridge vlan add dev tap0 {words}" for words in commands),
        "ip link set dev tap0 up",
    ]


@pytest.mark.parametrize(
    ("vlan", "words"),
    [
        ("", ""),
        (".10", " tag=10"),
        (":20:30", " trunks=20,30"),
        (".10:20", " tag=10 trunks=20 vlan_mode=native-untagged"),
    ],
)
def test_a_switch_gets_a_port(tools: Path, vlan: str, words: str) -> None:
    status, lines, _err = connect(tools, MODE="openvswitch", LINK="switch1", VLAN=vlan)
    assert status == 0
    assert lines == [
        f"ovs-vsctl --if-exists del-port tap0 -- add-port switch1 tap0{words}",
        "ip link set dev tap0 up",
    ]


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"MODE": "routed"}, "needs an IP address"),
        ({"MODE": "loud"}, "neither bridged nor routed"),
        ({"MODE": "split_vlan"}, "neither bridged nor routed"),
        ({"MODE": "bridged; id"}, "neither bridged nor routed"),
    ],
)
def test_what_cannot_be_connected_is_reported(tools: Path, told: dict[str, str], text: str) -> None:
    status, lines, err = connect(tools, **told)
    assert status != 0
    assert text in err
    assert lines == []


def test_a_failing_command_ends_the_script(tools: Path) -> None:
    (tools / "ip").write_text("#!/bin/sh\nexit 2\n")
    assert connect(tools)[0] != 0


@pytest.mark.requirement("G24")
def test_no_value_is_read_as_shell_words(tools: Path, tmp_path: Path) -> None:
    evil = f"$(touch {tmp_path}/evil) `touch {tmp_path}/evil`; touch {tmp_path}/evil"
    for mode in ("bridged", "openvswitch"):
        connect(tools, MODE=mode, LINK=evil, VLAN=evil, INTERFACE=evil)
    assert not (tmp_path / "evil").exists()
