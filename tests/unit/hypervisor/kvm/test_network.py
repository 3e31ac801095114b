"""Tap devices: what connects them, and that none is left after a failure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.process import CLEAN_ENVIRONMENT, CommandFailed, Completed
from ganeti.hypervisor.kvm.network import (
    INTERFACE_NAME_LIMIT,
    OWN_SCRIPT,
    make_taps,
    nic_environment,
    remove_taps,
    script_words,
    tap_name,
)
from ganeti.model.instance_spec import InstanceSpec, NetworkSpec, NicSpec

ROOT = Path("/")
ETC = Path("/nosuch")
BRIDGED = NicSpec(uuid="n1", index=0, mac="aa:00:00:00:00:01", link="br0")
ROUTED = NicSpec(
    uuid="n2", index=1, mac="aa:00:00:00:00:02", mode="routed", link="100", ip="192.0.2.7"
)


def instance(*nics: NicSpec) -> InstanceSpec:
    return InstanceSpec(
        name="web1", uuid="u", hypervisor="kvm", os="o", memory=1, vcpus=1, hvparams={}, nics=nics
    )


class Host:
    """Remembers which tap devices there are; its script knows one bridge."""

    def __init__(self) -> None:
        self.taps: set[str] = set()
        self.rules: set[str] = set()
        self.connected: list[Mapping[str, str]] = []

    async def __call__(
        self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: bytes | None = None,
        env: Mapping[str, str] | None = None, check: bool = True,
    ) -> Completed:  # fmt: skip
        words = list(argv)
        done = Completed(tuple(words), 0, b"", b"")
        if words[:3] == ["ip", "tuntap", "add"]:
            self.taps.add(words[4])
        elif words[:3] == ["ip", "link", "delete"]:
            self.taps.discard(words[4])
        elif words[:4] == ["ip", "-4", "rule", "delete"]:
            self.rules.discard(words[5])
        elif words == ["/bin/sh", str(OWN_SCRIPT)]:
            assert env is not None
            assert env["INTERFACE"] in self.taps
            self.connected.append(env)
            self.rules.add(env["INTERFACE"])
            if env["LINK"] == "br9":
                raise CommandFailed(done, "Device does not exist")
        return done


def test_names_fit_the_kernel_and_differ_between_virtual_nodes() -> None:
    here, there = tap_name(Path("/a"), BRIDGED), tap_name(Path("/b"), BRIDGED)
    assert here != there
    assert here == tap_name(Path("/a"), BRIDGED)
    assert len(here) == INTERFACE_NAME_LIMIT


@pytest.mark.requirement("S82")
def test_the_script_gets_everything_by_the_names_of_ganeti() -> None:
    spec = msgspec.structs.replace(instance(), tags=("a", "b"))
    told = nic_environment("t0", msgspec.structs.replace(BRIDGED, vlan=".10"), spec)
    assert {name: value for name, value in told.items() if name not in CLEAN_ENVIRONMENT} == {
        "INTERFACE": "t0",
        "INTERFACE_INDEX": "0",
        "INTERFACE_UUID": "n1",
        "INSTANCE": "web1",
        "TAGS": "a b",
        "MAC": "aa:00:00:00:00:01",
        "MODE": "bridged",
        "LINK": "br0",
        "BRIDGE": "br0",
        "VLAN": ".10",
    }
    net = NetworkSpec(name="net", uuid="u7", network="192.0.2.0/24", gateway="192.0.2.1")
    told = nic_environment("t0", msgspec.structs.replace(BRIDGED, network=net), spec)
    assert {name: value for name, value in told.items() if name.startswith("NETWORK")} == {
        "NETWORK_NAME": "net",
        "NETWORK_UUID": "u7",
        "NETWORK_SUBNET": "192.0.2.0/24",
        "NETWORK_GATEWAY": "192.0.2.1",
    }
    assert nic_environment("t1", ROUTED, spec)["IP"] == "192.0.2.7"
    assert "BRIDGE" not in nic_environment("t1", ROUTED, spec)


@pytest.mark.requirement("G24")
@pytest.mark.parametrize("link", ["br0\nPATH=/x", "br\0"])
def test_a_value_that_would_become_more_than_a_value_is_refused(link: str) -> None:
    with pytest.raises(HypervisorError, match="NIC 0"):
        nic_environment("t0", msgspec.structs.replace(BRIDGED, link=link), instance())


@pytest.mark.parametrize(
    ("nic", "text"),
    [
        (NicSpec(uuid="n", index=0, mac="m", mode="routed"), "has no IP address"),
        (NicSpec(uuid="n", index=0, mac="m", mode="x"), "which KVM does not support"),
    ],
)
async def test_a_nic_that_cannot_be_connected_is_refused(nic: NicSpec, text: str) -> None:
    host = Host()
    with pytest.raises(HypervisorError, match=f"NIC 0.*{text}"):
        await make_taps(host, ROOT, instance(nic), ETC)
    assert host.taps == set()


async def test_taps_are_made_and_removed_again() -> None:
    host = Host()
    taps = await make_taps(host, ROOT, instance(BRIDGED, ROUTED), ETC)
    assert host.taps == set(taps)
    assert [told["MODE"] for told in host.connected] == ["bridged", "routed"]
    await remove_taps(host, taps)
    assert (host.taps, host.rules) == (set(), set())


async def test_a_missing_bridge_is_named_and_nothing_is_left() -> None:
    host = Host()
    missing = NicSpec(uuid="n3", index=1, mac="m", link="br9")
    with pytest.raises(HypervisorError, match=r"NIC 1 .*'br9'.*create the bridge"):
        await make_taps(host, ROOT, instance(BRIDGED, missing), ETC)
    assert (host.taps, host.rules) == (set(), set())


def test_the_script_of_the_administrator_is_used_in_place_of_ours(tmp_path: Path) -> None:
    assert script_words(tmp_path) == ["/bin/sh", str(OWN_SCRIPT)]
    own = tmp_path / "kvm-vif-bridge"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o644)
    assert script_words(tmp_path) == ["/bin/sh", str(OWN_SCRIPT)]
    own.chmod(0o755)
    assert script_words(tmp_path) == [str(own)]


def test_a_script_that_others_can_change_is_not_run(tmp_path: Path) -> None:
    own = tmp_path / "kvm-vif-bridge"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o757)
    with pytest.raises(HypervisorError, match="other users can change it"):
        script_words(tmp_path)
