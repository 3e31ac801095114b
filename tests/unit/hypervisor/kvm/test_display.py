"""The words for displays, sound, USB and channels."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.display import (
    Spice,
    card,
    channel_words,
    devices_needed,
    display_words,
    vnc_socket,
)
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.params import Params
from tests.unit.hypervisor.kvm.test_command_line import PRINTABLE, parsed, values

SPICE = Spice("192.0.2.7", Path("/r/var/lib/ganeti"))


def instance(port: int | None = 11000) -> InstanceSpec:
    return InstanceSpec(
        name="web1", uuid="8dea39da-5dea-4e7c-9a63-1c2b3d4e5f60", hypervisor="kvm", os="",
        memory=96, vcpus=1, hvparams={}, network_port=port,
    )  # fmt: skip


def params(**others: object) -> Params:
    return hypervisor_defaults("kvm") | others


def words(port: int | None = 11000, **others: object) -> list[str]:
    return display_words(instance(port), params(**others), SPICE)


def test_a_guest_without_display_has_none_of_this() -> None:
    assert words(port=None) == []
    assert channel_words(params(), Path("/a")) == []


@pytest.mark.requirement("S73", "G23")
def test_vnc_wants_a_password_that_is_not_in_its_words() -> None:
    (value,) = values(words(vnc_bind_address="127.0.0.1"), "-vnc")
    assert value == "127.0.0.1:5100,password=on"
    (value,) = values(words(vnc_bind_address="::1", vnc_password_file=""), "-vnc")
    assert value == "[::1]:5100"


def test_vnc_in_a_directory_needs_no_port() -> None:
    (value,) = values(words(port=None, vnc_bind_address="/run/vnc"), "-vnc")
    assert value == "unix:/run/vnc/web1.vnc,password=on"
    assert vnc_socket(instance(), params(vnc_bind_address="/run/vnc")) == Path("/run/vnc/web1.vnc")


@pytest.mark.parametrize("port", [None, 80, 70000])
def test_a_display_without_a_possible_port_is_refused(port: int | None) -> None:
    with pytest.raises(HypervisorError, match="no network port"):
        words(port=port, vnc_bind_address="0.0.0.0")


def test_vnc_is_encrypted_with_or_without_certificates() -> None:
    plain = words(vnc_bind_address="::1", vnc_tls=True)
    assert values(plain, "-object") == ["tls-creds-anon,id=vnc-tls,endpoint=server"]
    assert "tls-creds=vnc-tls" in parsed(values(plain, "-vnc")[0])
    certified = words(
        vnc_bind_address="::1", vnc_tls=True, vnc_x509_path="/x,y", vnc_x509_verify=True
    )
    assert parsed(values(certified, "-object")[0])[3:] == ["dir=/x,y", "verify-peer=on"]


def test_spice_reports_what_was_asked_for() -> None:
    found = words(
        spice_bind="eth0", spice_use_tls=True, spice_password_file="/p", spice_ip_version=4,
        spice_image_compression="lz", spice_streaming_video="filter", soundhw="ac97",
    )  # fmt: skip
    parts = parsed(values(found, "-spice")[0])
    assert parts[:2] == ["addr=192.0.2.7", "tls-port=11000"]
    assert "x509-key-file=/r/var/lib/ganeti/spice.pem" in parts
    assert "image-compression=lz" in parts
    assert "ipv4=on" in parts
    assert not any("ticketing" in part or "password" in part for part in parts)
    assert values(found, "-audiodev") == ["spice,id=audio"]
    open_to_all = parsed(values(words(spice_bind="::1"), "-spice")[0])
    assert "disable-ticketing=on" in open_to_all
    assert "port=11000" in open_to_all


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, "none"),
        ({"vnc_bind_address": "::1"}, "std"),
        ({"spice_bind": "::1"}, "qxl"),
        ({"vga": "cirrus", "spice_bind": "::1"}, "cirrus"),
        ({"vga": "none", "vnc_bind_address": "::1"}, "none"),
    ],
)
def test_the_graphics_card_fits_the_display(given: dict[str, object], wanted: str) -> None:
    assert card(params(**given)) == wanted


def test_the_devices_that_qemu_must_know_are_named() -> None:
    assert devices_needed(params(vga="qxl", soundhw="hda")) == {
        "qxl-vga", "intel-hda", "hda-duplex"
    }  # fmt: skip
    assert devices_needed(params(soundhw="pcspk")) == set()


def test_usb_devices_emulated_and_of_the_host_have_controllers_of_their_own() -> None:
    found = words(usb_mouse="tablet", usb_devices="keyboard host:046d:c52b,host:1.12")
    assert values(found, "-device") == [
        "piix3-usb-uhci,id=usb",
        "usb-tablet,bus=usb.0",
        "usb-kbd,bus=usb.0",
        "qemu-xhci,id=usb-host",
        "usb-host,vendorid=0x046d,productid=0xc52b,bus=usb-host.0",
        "usb-host,hostbus=1,hostaddr=12,bus=usb-host.0",
    ]


def test_agents_have_channels() -> None:
    found = channel_words(params(use_guest_agent=True, spice_bind="::1"), Path("/run/x.a"))
    names = [part for one in values(found, "-device") for part in parsed(one) if "name=" in part]
    assert names == ["name=org.qemu.guest_agent.0", "name=com.redhat.spice.0"]
    assert "path=/run/x.a" in parsed(values(found, "-chardev")[0])


@pytest.mark.requirement("A44")
@given(
    PRINTABLE, st.sampled_from(["vnc_x509_path", "spice_tls_ciphers", "spice_image_compression"])
)
def test_no_text_of_a_display_becomes_another_property(text: str, name: str) -> None:
    if name == "vnc_x509_path":
        given: dict[str, Any] = {"vnc_bind_address": "::1", "vnc_tls": True}
    else:
        given = {"spice_bind": "::1", "spice_use_tls": True}
    plain = words(**{**given, name: "x"})
    found = words(**{**given, name: text or "x"})
    assert len(found) == len(plain)
    for before, after in zip(plain, found, strict=True):
        wanted = [part.split("=")[0] for part in parsed(before)]
        assert [part.split("=")[0] for part in parsed(after)] == wanted
