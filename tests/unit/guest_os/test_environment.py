"""The variables that OS scripts get."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base.errors import InputError
from ganeti.guest_os.environment import (
    VARIABLES,
    ChosenOs,
    check_osparams,
    disk_of_script,
    instance_environment,
    verify_environment,
)
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS, hypervisor_defaults
from ganeti.model.instance_spec import DiskSpec, InstanceSpec, NetworkSpec, NicSpec, OsFacts

MAN_PAGE = Path(__file__).parents[3] / "docs" / "man" / "ganeti-os-interface.md"
BASE = {"PATH", "LC_ALL", "HOME"}


def disk(index: int, **changes: Any) -> DiskSpec:
    path = f"/srv/ganeti/file-storage/web1/disk{index}"
    spec = DiskSpec(
        uuid=f"disk-{index}", index=index, size=1024, template="file", logical_id=("loop", path)
    )
    return msgspec.structs.replace(spec, **changes)


def nic(index: int, **changes: Any) -> NicSpec:
    spec = NicSpec(uuid=f"nic-{index}", index=index, mac=f"aa:00:00:00:00:0{index}", link="br0")
    return msgspec.structs.replace(spec, **changes)


def instance(**changes: Any) -> InstanceSpec:
    spec = InstanceSpec(
        name="web1.example.com",
        uuid="instance-1",
        hypervisor="kvm",
        os="tiny+small",
        memory=512,
        vcpus=2,
        hvparams=hypervisor_defaults("kvm"),
        disk_template="file",
    )
    return msgspec.structs.replace(spec, **changes)


def chosen(api: int = 20, **osparams: str) -> ChosenOs:
    return ChosenOs("tiny", "small", api, osparams)


def dump(spec: InstanceSpec, os: ChosenOs | None = None, **more: Any) -> dict[str, str]:
    paths = [f"/node{disk.logical_id[1]}" for disk in spec.disks]
    return instance_environment(os or chosen(), spec, paths, **more)


@pytest.mark.requirement("S128", "S117", "S124")
@pytest.mark.parametrize(("debug", "level"), [(0, "0"), (1, "1"), (7, "1")])
def test_the_basic_variables_are_set(debug: int, level: str) -> None:
    env = dump(instance(disks=(disk(0),), nics=(nic(0), nic(1))), debug=debug)
    assert env["OS_API_VERSION"] == "20"
    assert (env["OS_NAME"], env["OS_VARIANT"]) == ("tiny", "small")
    assert env["INSTANCE_NAME"] == "web1.example.com"
    assert env["INSTANCE_OS"] == "tiny+small"
    assert env["HYPERVISOR"] == env["INSTANCE_HYPERVISOR"] == "kvm"
    assert (env["DISK_COUNT"], env["NIC_COUNT"]) == ("1", "2")
    assert env["DEBUG_LEVEL"] == level


@pytest.mark.requirement("S129")
def test_each_disk_has_its_variables() -> None:
    block = disk(1, template="plain", logical_id=("xenvg", "lv1"), mode="ro", size=7)
    spec = instance(disks=(disk(0), block))
    env = instance_environment(chosen(), spec, ["/a", "/dev/xenvg/lv1"])
    found = {name: value for name, value in env.items() if re.match("DISK_[0-9]", name)}
    assert found == {
        "DISK_0_PATH": "/a",
        "DISK_0_ACCESS": "rw",
        "DISK_0_FRONTEND_TYPE": "virtio",
        "DISK_0_BACKEND_TYPE": "file:loop",
        "DISK_0_UUID": "disk-0",
        "DISK_0_SIZE": "1024",
        "DISK_1_PATH": "/dev/xenvg/lv1",
        "DISK_1_ACCESS": "ro",
        "DISK_1_FRONTEND_TYPE": "virtio",
        "DISK_1_BACKEND_TYPE": "block",
        "DISK_1_UUID": "disk-1",
        "DISK_1_SIZE": "7",
    }


@pytest.mark.requirement("S129")
@pytest.mark.parametrize(
    ("mode", "access"),
    [("rw", "rw"), ("w", "rw"), ("W", "rw"), ("ro", "ro"), ("r", "ro"), ("R", "ro")],
)
def test_access_is_rw_or_ro_however_it_was_written(mode: str, access: str) -> None:
    assert dump(instance(disks=(disk(0, mode=mode),)))["DISK_0_ACCESS"] == access


def test_an_access_mode_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match=r"disks\[0\]\.mode"):
        dump(instance(disks=(disk(0, mode="x"),)))


@pytest.mark.parametrize(("kind", "shown"), [("paravirtual", "virtio"), ("ide", "ide")])
def test_devices_are_shown_as_the_guest_sees_them(kind: str, shown: str) -> None:
    hvparams = {**hypervisor_defaults("kvm"), "disk_type": kind}
    env = dump(instance(disks=(disk(0),), hvparams=hvparams))
    assert env["DISK_0_FRONTEND_TYPE"] == shown


NETWORK = NetworkSpec(
    name="net",
    uuid="u7",
    network="192.0.2.0/24",
    gateway="192.0.2.1",
    network6="2001:db8::/64",
    gateway6="2001:db8::1",
    mac_prefix="aa:00:01",
    tags=("a", "b"),
)


@pytest.mark.requirement("S130")
def test_an_interface_in_a_network_is_described_with_it() -> None:
    env = dump(instance(nics=(nic(0), nic(1, network=NETWORK))))
    assert {name: value for name, value in env.items() if "_NETWORK_" in name} == {
        "NIC_1_NETWORK_NAME": "net",
        "NIC_1_NETWORK_UUID": "u7",
        "NIC_1_NETWORK_SUBNET": "192.0.2.0/24",
        "NIC_1_NETWORK_GATEWAY": "192.0.2.1",
        "NIC_1_NETWORK_SUBNET6": "2001:db8::/64",
        "NIC_1_NETWORK_GATEWAY6": "2001:db8::1",
        "NIC_1_NETWORK_MAC_PREFIX": "aa:00:01",
        "NIC_1_NETWORK_TAGS": "a b",
    }


@pytest.mark.requirement("S130")
@pytest.mark.parametrize("count", [0, 1, 3])
def test_each_interface_has_its_variables(count: int) -> None:
    nics = tuple(nic(number, ip=f"192.0.2.{number}") for number in range(count))
    env = dump(instance(nics=nics))
    for number in range(count):
        assert env[f"NIC_{number}_MAC"] == f"aa:00:00:00:00:0{number}"
        assert env[f"NIC_{number}_IP"] == f"192.0.2.{number}"
        assert env[f"NIC_{number}_BRIDGE"] == env[f"NIC_{number}_LINK"] == "br0"
        assert env[f"NIC_{number}_MODE"] == "bridged"
        assert env[f"NIC_{number}_FRONTEND_TYPE"] == "virtio"
    assert f"NIC_{count}_MAC" not in env
    assert env["NIC_COUNT"] == str(count)


@pytest.mark.requirement("S130")
def test_an_interface_without_address_or_bridge_has_no_such_variable() -> None:
    env = dump(instance(nics=(nic(0, mode="routed", link="100"),)))
    assert env["NIC_0_LINK"] == "100"
    assert not {"NIC_0_IP", "NIC_0_BRIDGE"} & set(env)


@pytest.mark.requirement("S139")
@pytest.mark.parametrize(("disks", "nics"), [(0, 0), (1, 0), (16, 8)])
def test_any_number_of_disks_and_interfaces_fits(disks: int, nics: int) -> None:
    env = dump(instance(disks=tuple(map(disk, range(disks))), nics=tuple(map(nic, range(nics)))))
    assert sum(bool(re.fullmatch("DISK_[0-9]+_PATH", name)) for name in env) == disks
    assert sum(name.endswith("_MAC") for name in env) == nics


@pytest.mark.requirement("S118")
def test_hypervisor_and_backend_parameters_are_reported() -> None:
    env = dump(instance())
    for name in HYPERVISOR_PARAMS["kvm"]:
        assert env[f"INSTANCE_HV_{name}"] == str(hypervisor_defaults("kvm")[name])
    beparams = {"maxmem": 512, "minmem": 256, "auto_balance": True}
    env = dump(instance(), ChosenOs("tiny", "small", 20, {}, OsFacts(beparams=beparams)))
    assert {name: value for name, value in env.items() if "_BE_" in name} == {
        "INSTANCE_BE_maxmem": "512",
        "INSTANCE_BE_minmem": "256",
        "INSTANCE_BE_auto_balance": "True",
    }


FACTS = OsFacts(
    primary_node="uuid-1",
    secondary_nodes=("uuid-2", "uuid-3"),
    ctime=1700000000.25,
    mtime=1700000001.5,
    beparams={"maxmem": 512},
    disk_names=("system", ""),
    nic_names=("lan",),
)


def test_scripts_get_names_nodes_and_times_as_upstream_passes_them() -> None:
    spec = instance(disks=(disk(0), disk(1)), nics=(nic(0),))
    env = dump(spec, ChosenOs("tiny", "small", 15, {}, FACTS))
    assert (
        env.items()
        >= {
            "INSTANCE_PRIMARY_NODE": "uuid-1",
            "INSTANCE_SECONDARY_NODES": "uuid-2 uuid-3",
            "INSTANCE_CTIME": "1700000000.25",
            "INSTANCE_MTIME": "1700000001.5",
            "DISK_0_NAME": "system",
            "NIC_0_NAME": "lan",
        }.items()
    )
    assert "DISK_1_NAME" not in env


@pytest.mark.requirement("S131")
def test_a_disk_that_only_qemu_opens_has_a_uri_in_place_of_a_path() -> None:
    image = disk(0, template="rbd", logical_id=("rbd", "image"))
    env = instance_environment(chosen(), instance(disks=(image,)), ["rbd:pool/image"])
    assert env["DISK_0_URI"] == "rbd:pool/image"
    assert "DISK_0_PATH" not in env
    assert disk_of_script("EXPORT", "rbd:pool/image", 0) == {
        "EXPORT_DISK_URI": "rbd:pool/image",
        "EXPORT_INDEX": "0",
    }
    assert disk_of_script("IMPORT", "/dev/x", 1) == {
        "IMPORT_DEVICE": "/dev/x",
        "IMPORT_DISK_PATH": "/dev/x",
        "IMPORT_INDEX": "1",
    }


@pytest.mark.requirement("S116")
def test_older_versions_of_the_interface_do_not_get_newer_variables() -> None:
    spec = instance(disks=(disk(0),), nics=(nic(0, ip="192.0.2.1"),))
    ten, fifteen, twenty = (set(dump(spec, chosen(api, ns1="x"))) for api in (10, 15, 20))
    assert ten == BASE | {
        *("OS_API_VERSION", "OS_NAME", "INSTANCE_NAME", "INSTANCE_OS", "HYPERVISOR"),
        *("DEBUG_LEVEL", "DISK_COUNT", "NIC_COUNT"),
        *("DISK_0_PATH", "DISK_0_ACCESS", "DISK_0_FRONTEND_TYPE", "DISK_0_BACKEND_TYPE"),
        *("NIC_0_MAC", "NIC_0_IP", "NIC_0_BRIDGE", "NIC_0_FRONTEND_TYPE"),
    }
    assert {"OS_VARIANT", "INSTANCE_HYPERVISOR", "INSTANCE_HV_acpi"} < fifteen - ten
    assert ten < fifteen < twenty
    assert twenty - fifteen == {"OSP_NS1"}


@pytest.mark.requirement("S145")
def test_parameters_are_passed_in_upper_case_with_a_prefix() -> None:
    os = chosen(ns1="192.0.2.53", extra_packages="vim ssh")
    for env in (dump(instance(), os), verify_environment(os)):
        assert env["OSP_NS1"] == "192.0.2.53"
        assert env["OSP_EXTRA_PACKAGES"] == "vim ssh"


@pytest.mark.requirement("S144")
def test_an_empty_value_is_a_missing_parameter() -> None:
    empty = verify_environment(chosen(ns1="", ns2="x"))
    assert empty == verify_environment(chosen(ns2="x"))


def test_verify_sees_the_os_and_its_parameters_and_no_instance() -> None:
    env = verify_environment(chosen(ns1="x"))
    assert set(env) - BASE == {"OS_API_VERSION", "OS_NAME", "OS_VARIANT", "OSP_NS1"}


@pytest.mark.requirement("S131", "S127")
@pytest.mark.parametrize(
    "script",
    [
        {"OLD_INSTANCE_NAME": "old.example.com"},
        {"EXPORT_DEVICE": "/dev/x", "EXPORT_INDEX": "1"},
        {"IMPORT_DEVICE": "/dev/x", "IMPORT_INDEX": "0"},
    ],
)
def test_each_script_gets_the_same_variables_and_its_own(script: dict[str, str]) -> None:
    spec = instance(disks=(disk(0),))
    assert dump(spec, script=script) == {**dump(spec), **script}


@pytest.mark.requirement("A46", "G24")
@pytest.mark.parametrize(
    "key",
    [
        *("PATH", "LD_PRELOAD", "BASH_FUNC_x%%", "A=B", "Ns1", "NS1", "a-b", "a b", "", "ä"),
        *("a\0", "a\n", "x" * 65, "ns1\n", "../x", "$(id)"),
    ],
)
def test_a_name_outside_the_allow_list_is_refused(key: str) -> None:
    with pytest.raises(InputError, match="osparams"):
        check_osparams({key: "x"})
    with pytest.raises(InputError, match="osparams"):
        verify_environment(ChosenOs("tiny", "", 20, {key: "x"}))


@pytest.mark.requirement("A46", "G24")
def test_parameters_never_become_variables_of_the_system() -> None:
    env = dump(instance(), chosen(path="/evil", ld_preload="/evil.so"))
    assert env["OSP_PATH"] == "/evil"
    assert "/evil" not in env["PATH"]
    assert "LD_PRELOAD" not in env


@pytest.mark.requirement("A46")
@pytest.mark.parametrize("value", ["a\0b", "a\nb", "a\rb", "x" * (64 * 1024 + 1), "\ud800"])
def test_a_value_that_cannot_be_passed_is_refused(value: str) -> None:
    with pytest.raises(InputError, match="OSP_NS1"):
        check_osparams({"ns1": value})


@pytest.mark.requirement("A46")
def test_too_much_is_refused_before_a_script_is_started() -> None:
    check_osparams({"ns1": "x" * (64 * 1024)})
    with pytest.raises(InputError, match="at most 524288"):
        check_osparams({f"p{number}": "x" * 60_000 for number in range(9)})
    with pytest.raises(InputError, match="more than 256"):
        check_osparams({f"p{number}": "x" for number in range(5000)})


def test_a_newline_in_any_other_value_is_refused() -> None:
    with pytest.raises(InputError, match="INSTANCE_HV_kernel_args"):
        dump(instance(hvparams={"kernel_args": "ro\nsingle"}))


@pytest.mark.requirement("S233")
def test_the_manual_page_lists_every_variable_that_is_produced_and_no_other() -> None:
    documented = set(
        re.findall(r"^`([A-Z][A-Z]+[A-Za-z0-9_<>]+)`", MAN_PAGE.read_text(), re.MULTILINE)
    )
    assert documented == {one.name for one in VARIABLES}
    produced: set[str] = set()
    for script in (
        {"OLD_INSTANCE_NAME": "x"},
        {"INSTANCE_REINSTALL": "1"},
        *(disk_of_script(kind, at, 0) for kind in ("EXPORT", "IMPORT") for at in ("/x", "rbd:p/x")),
    ):
        disks = (disk(0), disk(1, template="rbd", logical_id=("rbd", "image")))
        spec = instance(disks=disks, nics=(nic(0, ip="192.0.2.1", network=NETWORK),))
        os = ChosenOs("tiny", "small", 20, {"ns1": "x"}, FACTS)
        produced |= set(instance_environment(os, spec, ["/x", "rbd:p/x"], script=script))
    for name in produced:
        assert any(re.fullmatch(one.pattern, name) for one in VARIABLES), name
    for one in VARIABLES:
        assert any(re.fullmatch(one.pattern, name) for name in produced), one.name


@pytest.mark.requirement("S233")
def test_the_manual_page_has_the_first_version_of_each_variable() -> None:
    text = MAN_PAGE.read_text()
    for one in VARIABLES:
        line = re.search(rf"^`{re.escape(one.name)}`[^\n]*", text, re.MULTILINE)
        assert line is not None
        assert (f"(since {one.since})" in line[0]) is (one.since > 10), line[0]
