"""Tap devices: the words, and that none is left after a failure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.base.process import CommandFailed, Completed
from ganeti.hypervisor.kvm.network import (
    INTERFACE_NAME_LIMIT,
    connect_commands,
    make_taps,
    remove_taps,
    tap_name,
)
from ganeti.model.instance_spec import InstanceSpec, NicSpec

ROOT = Path("/")
BRIDGED = NicSpec(uuid="n1", index=0, mac="aa:00:00:00:00:01", link="br0")
ROUTED = NicSpec(
    uuid="n2", index=1, mac="aa:00:00:00:00:02", mode="routed", link="100", ip="192.0.2.7"
)


def instance(*nics: NicSpec) -> InstanceSpec:
    return InstanceSpec(
        name="web1", uuid="u", hypervisor="kvm", os="o", memory=1, vcpus=1, hvparams={}, nics=nics
    )


class Host:
    """Remembers which tap devices there are; knows one bridge."""

    def __init__(self) -> None:
        self.taps: set[str] = set()
        self.commands: list[list[str]] = []

    async def __call__(
        self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: bytes | None = None,
        env: Mapping[str, str] | None = None, check: bool = True,
    ) -> Completed:  # fmt: skip
        words = list(argv)
        self.commands.append(words)
        done = Completed(tuple(words), 0, b"", b"")
        if words[:3] == ["ip", "tuntap", "add"]:
            self.taps.add(words[4])
        elif words[:3] == ["ip", "link", "delete"]:
            self.taps.discard(words[4])
        elif "master" in words and words[-1] != "br0":
            raise CommandFailed(done, "Device does not exist")
        return done


def test_names_fit_the_kernel_and_differ_between_virtual_nodes() -> None:
    here, there = tap_name(Path("/a"), BRIDGED), tap_name(Path("/b"), BRIDGED)
    assert here != there
    assert here == tap_name(Path("/a"), BRIDGED)
    assert len(here) == INTERFACE_NAME_LIMIT


def test_a_bridged_nic_joins_its_bridge_and_a_routed_one_gets_a_route() -> None:
    assert connect_commands("t0", BRIDGED) == [
        ["ip", "link", "set", "dev", "t0", "master", "br0"],
        ["ip", "link", "set", "dev", "t0", "up"],
    ]
    assert connect_commands("t1", ROUTED) == [
        ["ip", "link", "set", "dev", "t1", "up"],
        ["ip", "route", "replace", "192.0.2.7", "dev", "t1", "table", "100"],
    ]


@pytest.mark.parametrize(
    "nic",
    [
        NicSpec(uuid="n", index=0, mac="m", mode="routed"),
        NicSpec(uuid="n", index=0, mac="m", mode="openvswitch"),
    ],
)
def test_a_nic_that_cannot_be_connected_is_refused(nic: NicSpec) -> None:
    with pytest.raises(HypervisorError, match="NIC 0"):
        connect_commands("t0", nic)


async def test_taps_are_made_and_removed_again() -> None:
    host = Host()
    taps = await make_taps(host, ROOT, instance(BRIDGED, ROUTED))
    assert host.taps == set(taps)
    await remove_taps(host, taps)
    assert host.taps == set()


async def test_a_missing_bridge_is_named_and_nothing_is_left() -> None:
    host = Host()
    missing = NicSpec(uuid="n3", index=1, mac="m", link="br9")
    with pytest.raises(HypervisorError, match=r"NIC 1 .*'br9'.*make that bridge"):
        await make_taps(host, ROOT, instance(BRIDGED, missing))
    assert host.taps == set()
