"""The words for machine, firmware, CPUs, memory and clock."""

from pathlib import Path

import msgspec
import pytest

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.machine import (
    Firmware,
    clock_words,
    cpu_words,
    extra_words,
    fault_words,
    machine_words,
    memory_words,
    reserve_device,
)
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.params import Params
from tests.unit.hypervisor.kvm.test_command_line import INSTANCE, parsed, values


def params(**others: object) -> Params:
    return hypervisor_defaults("kvm") | others


def test_uefi_is_two_flash_chips_of_which_one_is_the_guests_own() -> None:
    words = machine_words("q35", params(), Firmware(Path("/code,1"), Path("/own")))
    assert parsed(values(words, "-machine")[0]) == [
        "type=q35", "acpi=on", "pflash0=firmware-code", "pflash1=firmware-variables"
    ]  # fmt: skip
    drives = [parsed(one) for one in values(words, "-blockdev")]
    assert drives[0][2:] == ["filename=/code,1", "read-only=on"]
    assert drives[2][2:] == ["filename=/own", "read-only=off"]


@pytest.mark.parametrize(
    ("vcpus", "given", "smp"),
    [
        (4, {}, "4"),
        (4, {"cpu_cores": 2}, "4,cores=2"),
        (4, {"max_vcpus": 2}, "4"),
        (2, {"max_vcpus": 8}, "2,maxcpus=8"),
        (3, {"max_vcpus": 8, "cpu_cores": 4}, "3,maxcpus=8,cores=4"),
        (4, {"cpu_sockets": 1, "cpu_cores": 2, "cpu_threads": 2}, "4,sockets=1,cores=2,threads=2"),
    ],
)
def test_qemu_gets_the_configured_topology(vcpus: int, given: dict[str, object], smp: str) -> None:
    instance = msgspec.structs.replace(INSTANCE, vcpus=vcpus)
    assert values(cpu_words(instance, params(**given)), "-smp") == [smp]


@pytest.mark.parametrize(
    ("vcpus", "given"),
    [
        (3, {"cpu_cores": 2}),
        (8, {"cpu_sockets": 1, "cpu_cores": 2, "cpu_threads": 2}),
        (1, {"cpu_threads": 2}),
        (6, {"max_vcpus": 5, "cpu_cores": 4}),
    ],
)
def test_a_topology_that_is_not_the_number_of_cpus_is_refused(
    vcpus: int, given: dict[str, object]
) -> None:
    with pytest.raises(HypervisorError, match=f"has {vcpus} CPUs"):
        cpu_words(msgspec.structs.replace(INSTANCE, vcpus=vcpus), params(**given))


def test_a_cpu_keeps_its_features() -> None:
    words = cpu_words(INSTANCE, params(cpu_type="Haswell,+vmx"))
    assert values(words, "-cpu") == ["Haswell,+vmx"]


def test_a_reserve_of_memory_is_a_device_with_blocks_of_one_size() -> None:
    given = params(max_memory=201)
    assert memory_words(INSTANCE, "kvm", given) == [
        "-m", "size=96M,maxmem=200M", "-object", "memory-backend-ram,id=reserve,size=104M,reserve=off"
    ]  # fmt: skip
    assert reserve_device(INSTANCE, given) == [
        "-device", "virtio-mem-pci,id=added-memory,memdev=reserve,block-size=2M,requested-size=0"
    ]  # fmt: skip
    for most in (0, 95, 97):
        assert memory_words(INSTANCE, "kvm", params(max_memory=most)) == ["-m", "size=96M"]
        assert reserve_device(INSTANCE, params(max_memory=most)) == []


def test_huge_pages_local_time_and_an_end_at_reboot() -> None:
    words = memory_words(INSTANCE, "kvm", params(mem_path="/dev/hugepages"))
    assert words == ["-m", "size=96M", "-mem-path", "/dev/hugepages", "-mem-prealloc"]
    assert clock_words(params(use_localtime=True, reboot_behavior="exit")) == [
        "-rtc", "base=localtime", "-no-reboot"
    ]  # fmt: skip
    assert clock_words(params(user_shutdown=True))[-1] == "-no-shutdown"


@pytest.mark.requirement("G24")
def test_further_words_are_taken_apart_without_a_shell() -> None:
    assert extra_words(params(kvm_extra="-device 'a b,c' $(id) `id`; x")) == [
        "-device", "a b,c", "$(id)", "`id`;", "x"
    ]  # fmt: skip
    with pytest.raises(HypervisorError, match="cannot be split"):
        extra_words(params(kvm_extra="'"))


def test_devices_that_notice_faults_pause_the_guest_and_are_off_by_default() -> None:
    assert fault_words(params()) == []
    words = fault_words(params(watchdog="i6300esb", pvpanic=True))
    assert values(words, "-device") == ["i6300esb,id=watchdog", "pvpanic,id=pvpanic"]
    assert values(words, "-action") == ["watchdog=pause,panic=pause"]
