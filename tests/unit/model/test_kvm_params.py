"""The table of kvm's parameters: complete, sound, and strict with hostile values."""

import pytest

from ganeti.base.errors import InputError
from ganeti.model.hypervisor_param import HypervisorParam
from ganeti.model.hypervisor_params import (
    HYPERVISOR_PARAMS,
    check_hypervisor_params,
    hypervisor_defaults,
)
from ganeti.model.hypervisors.kvm import KVM, VNC_PASSWORD_FILE

UPSTREAM = """
acpi boot_order cdrom2_image_path cdrom_disk_type cdrom_image_path cpu_cores cpu_mask cpu_sockets
cpu_threads cpu_type disk_aio disk_cache disk_discard disk_type floppy_image_path initrd_path
kernel_args kernel_path keymap kvm_extra kvm_flag kvm_path kvm_pci_reservations machine_version
mem_path migration_bandwidth migration_caps migration_downtime migration_mode migration_port nic_type
reboot_behavior root_path scsi_controller_type security_domain security_model serial_console
serial_speed soundhw spice_bind spice_image_compression spice_ip_version spice_jpeg_wan_compression
spice_password_file spice_playback_compression spice_streaming_video spice_tls_ciphers spice_use_tls
spice_use_vdagent spice_zlib_glz_wan_compression usb_devices usb_mouse use_chroot use_guest_agent
use_localtime user_shutdown vga vhost_net virtio_net_queues vnc_bind_address vnc_password_file vnc_tls
vnc_x509_path vnc_x509_verify vnet_hdr
"""


def check(**params: object) -> dict[str, object]:
    return check_hypervisor_params("kvm", params, of_instance=False, field="hvparams")


def test_every_parameter_that_administrators_know_is_there_once() -> None:
    names = [param.name for param in KVM.params]
    own = {
        *("accelerator", "firmware", "guest_agent_timeout", "image_directories", "pvpanic", "tpm"),
        *("watchdog", "max_vcpus", "max_memory"),
    }
    assert set(names) - set(UPSTREAM.split()) == own
    assert set(UPSTREAM.split()) <= set(names)
    assert len(names) == len(set(names))


def test_defaults_pass_their_own_checks() -> None:
    defaults = hypervisor_defaults("kvm")
    assert check(**defaults) == defaults


@pytest.mark.requirement("S72")
def test_the_default_password_file_is_where_it_always_was() -> None:
    assert hypervisor_defaults("kvm")["vnc_password_file"] == VNC_PASSWORD_FILE
    assert VNC_PASSWORD_FILE == "/etc/ganeti/vnc-cluster-password"


@pytest.mark.requirement("S83")
@pytest.mark.parametrize(
    "name", [param.name for param in KVM.params if param.is_global], ids=lambda name: name
)
def test_a_global_parameter_is_refused_for_one_instance(name: str) -> None:
    value = HYPERVISOR_PARAMS["kvm"][name].default
    with pytest.raises(InputError, match="only be set for the whole cluster"):
        check_hypervisor_params("kvm", {name: value}, of_instance=True, field="hvparams")


TOUCHES_HOST = """
cdrom2_image_path cdrom_image_path cpu_mask floppy_image_path image_directories initrd_path kernel_path
kvm_extra kvm_path mem_path migration_port security_domain security_model spice_bind
spice_password_file spice_tls_ciphers spice_use_tls usb_devices use_chroot vhost_net vnc_bind_address
vnc_password_file vnc_tls vnc_x509_path vnc_x509_verify
"""
GUEST_ONLY = """
accelerator acpi boot_order cdrom_disk_type cpu_cores cpu_sockets cpu_threads cpu_type disk_aio
disk_cache disk_discard disk_type firmware kernel_args keymap kvm_flag kvm_pci_reservations
machine_version migration_bandwidth migration_caps migration_downtime migration_mode nic_type
reboot_behavior root_path scsi_controller_type serial_console serial_speed soundhw
spice_image_compression spice_ip_version spice_jpeg_wan_compression spice_playback_compression
spice_streaming_video spice_use_vdagent tpm spice_zlib_glz_wan_compression usb_mouse use_guest_agent
use_localtime user_shutdown vga virtio_net_queues vnet_hdr guest_agent_timeout pvpanic watchdog max_vcpus max_memory
"""


@pytest.mark.requirement("A44")
@pytest.mark.parametrize("param", KVM.params, ids=[param.name for param in KVM.params])
def test_of_every_parameter_it_is_decided_whether_it_touches_the_host(
    param: HypervisorParam,
) -> None:
    host, guest = TOUCHES_HOST.split(), GUEST_ONLY.split()
    assert (param.name in host, param.name in guest) == (param.touches_host, not param.touches_host)


@pytest.mark.requirement("A45")
@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("vnc_password_file", "/etc/shadow", "/etc/ganeti"),
        ("vnc_password_file", "/var/lib/ganeti/ca.key", "/etc/ganeti"),
        ("spice_password_file", "/etc/ganeti", "/etc/ganeti"),
        ("spice_password_file", "/etc/ganeti/", "/etc/ganeti"),
        ("spice_password_file", "/etc/ganeti/../shadow", "/etc/ganeti"),
        ("vnc_password_file", "/etc/ganetix/a", "/etc/ganeti"),
        ("vnc_password_file", "/etc/ganeti/allowed-uploads", "another purpose"),
        ("image_directories", "/", "more than images"),
        ("image_directories", "/srv", "more than images"),
        ("image_directories", "//etc/", "more than images"),
        ("image_directories", "/srv/iso:/proc/1", "/proc"),
        ("image_directories", "/sys/class", "/sys"),
        ("image_directories", "//dev//disk", "/dev"),
        ("image_directories", "/etc/ganeti", "/etc"),
        ("image_directories", "/var/lib/ganeti", "/var/lib/ganeti"),
    ],
)
def test_paths_of_the_host_stay_where_they_may_be(name: str, value: str, word: str) -> None:
    with pytest.raises(InputError, match=f"hvparams.{name}: .*{word}"):
        check(**{name: value})


@pytest.mark.parametrize(
    "name", ["kernel_path", "cdrom_image_path", "vnc_x509_path", "image_directories", "mem_path"]
)
@pytest.mark.parametrize("value", [f"/srv/{'x' * 256}", f"/srv/{'ä' * 128}", "/srv" + "/x" * 510])
def test_a_path_that_no_host_can_have_is_refused(name: str, value: str) -> None:
    with pytest.raises(InputError, match=f"hvparams.{name}"):
        check(**{name: value})


def test_what_names_a_file_of_the_host_touches_the_host() -> None:
    assert [p.name for p in KVM.params if p.is_path and not p.touches_host] == []
    wanted = {"kvm_extra", "usb_devices", "vnc_bind_address", "spice_bind", "security_model"}
    assert wanted <= {param.name for param in KVM.params if param.touches_host}


@pytest.mark.requirement("A44")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("machine_version", "pc,accel=tcg"),
        ("machine_version", "-S"),
        ("machine_version", "pc\n"),
        ("cpu_type", "host,vendor=x"),
        ("cpu_type", "-cpu"),
        ("cpu_type", "host,-S -monitor stdio"),
        ("cpu_type", "host\u200f"),
        ("usb_devices", "disk:/etc/shadow"),
        ("usb_devices", "serial::/dev/ttyS0"),
        ("usb_devices", "host:1.2,pcap=/etc/x"),
        ("vnc_bind_address", "0.0.0.0,password=off"),
        ("vnc_bind_address", "-1"),
        ("vnc_bind_address", "fe80::1%eth0,to=9"),
        ("vnc_bind_address", "/run/../etc"),
        ("spice_bind", "eth0,disable-ticketing=on"),
        ("spice_tls_ciphers", "HIGH,addr=::"),
        ("keymap", "../../etc/passwd"),
        ("keymap", "en-us,tls-creds=x"),
        ("kernel_args", "ro\nquiet"),
        ("kernel_args", "a\0b"),
        ("kvm_extra", "-device 'x"),
        ("kvm_extra", "-S\n-S"),
        ("migration_caps", "xbzrle,x"),
        ("cpu_mask", "0-2;3"),
        ("cpu_mask", "3-1"),
        ("cpu_mask", "1::2"),
        ("security_domain", "root"),
        ("security_domain", "-runas"),
        ("image_directories", "/"),
        ("image_directories", "/srv:etc"),
        ("image_directories", "/srv/../etc"),
        ("cdrom_image_path", "http://169.254.169.254/key"),
        ("cdrom_image_path", "a.iso"),
        ("mem_path", "/dev/./hugepages"),
        ("serial_speed", 12345),
        ("virtio_net_queues", 9),
        ("cpu_cores", -1),
        ("spice_ip_version", 5),
        ("migration_port", 65536),
        ("vga", "std,id=x"),
        ("soundhw", "all"),
    ],
)
def test_hostile_and_impossible_values_are_refused_with_their_field(
    name: str, value: object
) -> None:
    with pytest.raises(InputError) as caught:
        check(**{name: value})
    assert caught.value.field == f"hvparams.{name}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu_type", "Haswell-noTSX-IBRS,+vmx,-pcid,topoext=on"),
        ("cpu_type", "host"),
        ("usb_devices", "tablet host:046d:c52b host:1.12"),
        ("cpu_mask", "0-2,4"),
        ("cpu_mask", "0:1-2:all"),
        ("vnc_bind_address", "0.0.0.0"),
        ("vnc_bind_address", "::1"),
        ("vnc_bind_address", "/run/ganeti/vnc"),
        ("spice_bind", "br0.100"),
        ("kvm_extra", "-device 'virtio-rng-pci,id=a b'"),
        ("machine_version", "pc-i440fx-7.2"),
        ("migration_caps", "xbzrle:postcopy-ram"),
        ("image_directories", "/srv/iso:/mnt/images"),
        ("keymap", "de-ch"),
    ],
)
def test_usual_values_are_taken_as_they_are(name: str, value: str) -> None:
    assert check(**{name: value}) == {name: value}
