"""Which parameters of kvm contradict each other."""

import pytest

from ganeti.hypervisor.kvm.rules import accelerator, contradictions
from ganeti.model.hypervisor_params import hypervisor_defaults
from ganeti.model.params import Params


def params(**others: object) -> Params:
    return hypervisor_defaults("kvm") | others


def test_the_defaults_do_not_contradict_each_other() -> None:
    assert contradictions(params()) == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"kernel_path": "/k", "root_path": ""}, "root_path"),
        ({"boot_order": "cdrom"}, "boot_order"),
        ({"boot_order": "floppy"}, "boot_order"),
        ({"boot_order": "floppy", "floppy_image_path": "/f", "firmware": "uefi"}, "boot_order"),
        ({"vnc_tls": True}, "vnc_tls"),
        ({"vnc_x509_path": "/x"}, "vnc_x509_path"),
        ({"vnc_bind_address": "::1", "vnc_x509_path": "/x"}, "vnc_x509_path"),
        ({"vnc_bind_address": "::1", "vnc_tls": True, "vnc_x509_verify": True}, "vnc_x509_verify"),
        ({"vnc_bind_address": "::1", "spice_bind": "::1"}, "spice_bind"),
        ({"spice_use_tls": True}, "spice_use_tls"),
        ({"spice_password_file": "/p"}, "spice_password_file"),
        ({"spice_bind": "::1", "spice_ip_version": 4}, "spice_ip_version"),
        ({"kvm_flag": "enabled", "accelerator": "tcg"}, "kvm_flag"),
        ({"nic_type": "e1000", "vhost_net": True}, "vhost_net"),
        ({"nic_type": "e1000", "virtio_net_queues": 2}, "virtio_net_queues"),
        ({"disk_aio": "native", "disk_cache": "writeback"}, "disk_aio"),
        ({"cdrom2_image_path": "/b"}, "cdrom2_image_path"),
    ],
)
def test_a_contradiction_is_one_sentence_that_begins_with_the_parameter(
    given: dict[str, object], named: str
) -> None:
    (problem,) = contradictions(params(**given))
    assert problem.startswith(f"{named}: ")


@pytest.mark.parametrize(
    "given",
    [
        {"kernel_path": "/k", "boot_order": "cdrom"},
        {"boot_order": "cdrom", "cdrom_image_path": "/a"},
        {"spice_bind": "eth0", "spice_ip_version": 6},
        {"vnc_bind_address": "::1", "vnc_tls": True, "vnc_x509_path": "/x"},
        {"security_model": "user", "security_domain": "nobody"},
        {"kvm_flag": "disabled", "accelerator": "tcg"},
        {"disk_aio": "native", "disk_cache": "none"},
    ],
)
def test_what_fits_together_is_taken(given: dict[str, object]) -> None:
    assert contradictions(params(**given)) == []


def test_the_old_flag_reports_which_accelerator() -> None:
    assert accelerator(params(kvm_flag="enabled")) == "kvm"
    assert accelerator(params(kvm_flag="disabled")) == "tcg"
    assert accelerator(params(accelerator="tcg")) == "tcg"
