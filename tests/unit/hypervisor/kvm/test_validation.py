"""What keeps a guest from running on a node, with a pretended QEMU."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import HostError, HypervisorError
from ganeti.base.paths import Paths
from ganeti.base.process import Completed
from ganeti.hypervisor.kvm import firmware, validation
from ganeti.hypervisor.kvm.validation import machines, problems_here, spice_address
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.params import Params

HELP = {
    "-machine": "Supported machines are:\n"
    "pc                   Standard PC (alias of pc-i440fx-7.2)\n"
    "pc-i440fx-7.2        Standard PC (default)\n"
    "none                 empty machine\n",
    "-cpu": "Available CPUs:\nx86 qemu64  QEMU\nx86 Haswell\n",
    "-device": 'name "VGA", bus PCI\nname "qxl-vga", bus PCI, alias "qxl"\n',
    "-audiodev": "none\nspice\n",
}
ADDRESSES = [
    {
        "addr_info": [
            {"family": "inet6", "scope": "link", "local": "fe80::1"},
            {"family": "inet6", "scope": "global", "local": "2001:db8::5"},
            {"family": "inet", "scope": "global", "local": "10.0.0.5"},
        ]
    }
]


class Host:
    def __init__(self) -> None:
        self.help = dict(HELP)
        self.has_qemu = True

    async def run(
        self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: bytes | None = None,
        env: Mapping[str, str] | None = None, check: bool = True,
    ) -> Completed:  # fmt: skip
        if argv[0] == "ip":
            if argv[-1] != "eth0":
                raise HostError("no such device")
            text = json.dumps(ADDRESSES)
        elif self.has_qemu:
            assert argv[2] == "help"
            text = self.help[argv[1]]
        else:
            raise HostError("cannot be run")
        return Completed(tuple(argv), 0, text.encode(), b"")


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "vmlinuz"
    path.write_bytes(b"kernel")
    return path


async def problems(host: Host, tmp_path: Path, **given: object) -> list[str]:
    hvparams: Params = hypervisor_defaults("kvm") | {"kernel_path": "", **given}
    return await problems_here(Paths(tmp_path), host.run, "/usr/bin/qemu", hvparams)


async def test_what_this_node_can_do_has_no_problems(
    host: Host, tmp_path: Path, kernel: Path
) -> None:
    given = {"kernel_path": str(kernel), "machine_version": "pc", "cpu_type": "Haswell,+vmx"}
    assert await problems(host, tmp_path, **given) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kernel_path": "/nowhere/k"}, "kernel_path: /nowhere/k is not a readable file"),
        ({"initrd_path": "/"}, "initrd_path: / is not a readable file"),
        ({"machine_version": "pc-9"}, "machine_version: /usr/bin/qemu has no machine 'pc-9'"),
        ({"cpu_type": "Z80,+x"}, "cpu_type: /usr/bin/qemu has no CPU 'Z80'"),
        ({"mem_path": "/nowhere"}, "mem_path: /nowhere is not a directory"),
        ({"vnc_bind_address": "/nowhere"}, "vnc_bind_address: /nowhere is not a directory"),
        ({"cpu_mask": "99999"}, "cpu_mask: this node has no CPU 99999"),
        ({"vga": "vmware"}, "has no vmware-svga"),
        ({"spice_bind": "eth7"}, "spice_bind: this node has no interface eth7"),
        ({"migration_caps": "postcopy-ram"}, "migration_caps: postcopy-ram cannot be used"),
    ],
)
async def test_each_lack_is_a_sentence_that_names_the_parameter(
    host: Host, tmp_path: Path, given: dict[str, object], said: str
) -> None:
    found = await problems(host, tmp_path, **given)
    assert any(said in problem for problem in found), found


async def test_firmware_that_is_missing_is_named(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firmware, "kinds", list)
    found = await problems(host, tmp_path, firmware="uefi")
    assert found == [firmware.missing()]


async def test_a_qemu_without_spice_reports_it(host: Host, tmp_path: Path) -> None:
    host.help["-audiodev"] = "none\n"
    found = await problems(host, tmp_path, spice_bind="10.0.0.1")
    assert any("does not support SPICE" in problem for problem in found), found


async def test_a_qemu_that_cannot_be_asked_is_an_error(host: Host, tmp_path: Path) -> None:
    host.has_qemu = False
    with pytest.raises(HypervisorError, match="cannot be queried"):
        await problems(host, tmp_path, cpu_type="qemu64")


async def test_an_alias_stands_for_a_versioned_machine(host: Host) -> None:
    assert await machines(host.run, "/usr/bin/qemu") == {
        "pc": "pc-i440fx-7.2",
        "pc-i440fx-7.2": "pc-i440fx-7.2",
        "none": "none",
    }


@pytest.mark.parametrize(
    ("bind", "version", "address"),
    [
        ("10.1.1.1", 0, "10.1.1.1"),
        ("eth0", 0, "10.0.0.5"),
        ("eth0", 4, "10.0.0.5"),
        ("eth0", 6, "2001:db8::5"),
    ],
)
async def test_spice_is_served_at_an_address_or_the_first_of_an_interface(
    host: Host, bind: str, version: int, address: str
) -> None:
    hvparams = {"spice_bind": bind, "spice_ip_version": version}
    assert await spice_address(host.run, hvparams) == address


async def test_an_interface_without_an_address_of_the_kind_is_named(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ADDRESSES[0], "addr_info", ADDRESSES[0]["addr_info"][:1])
    with pytest.raises(HypervisorError, match="eth0 of this node has no IPv6 address"):
        await spice_address(host.run, {"spice_bind": "eth0", "spice_ip_version": 6})


async def test_a_keymap_must_be_one_of_qemus(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "de").write_text("")
    monkeypatch.setattr(validation, "KEYMAPS", tmp_path)
    assert await problems(host, tmp_path, keymap="de") == []
    found = await problems(host, tmp_path, keymap="xx")
    assert found == ["keymap: QEMU has no keymap xx on this node"]
