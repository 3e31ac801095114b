"""Contradictions between parameters, independent of the node; pure."""

from ipaddress import ip_address

from ganeti.hypervisor.kvm.capabilities import capability_problems
from ganeti.model.params import Params

_NEED_SPICE = (
    *("spice_ip_version", "spice_password_file", "spice_image_compression", "spice_use_tls"),
    *("spice_jpeg_wan_compression", "spice_zlib_glz_wan_compression", "spice_streaming_video"),
)
_NEED_VNC = ("vnc_tls", "vnc_x509_path", "vnc_x509_verify")
_THROUGH_THE_CACHE = ("writeback", "writethrough")


def contradictions(hvparams: Params) -> list[str]:
    """Return the contradictions, a sentence each that names the parameter first; `hvparams` are complete."""
    return [
        *_boot(hvparams),
        *_vnc(hvparams),
        *_spice(hvparams),
        *_host(hvparams),
        *_devices(hvparams),
        *capability_problems(str(hvparams["migration_caps"])),
    ]


def accelerator(hvparams: Params) -> str:
    """Return `auto`, `kvm` or `tcg`; upstream's kvm_flag is an alternative."""
    flag = {"enabled": "kvm", "disabled": "tcg"}.get(str(hvparams["kvm_flag"]))
    return flag or str(hvparams["accelerator"])


def _boot(hvparams: Params) -> list[str]:
    if hvparams["kernel_path"]:
        if not hvparams["root_path"]:
            return ["root_path: a guest that boots kernel_path needs a root device"]
        return []
    found = []
    for order, image in (("cdrom", "cdrom_image_path"), ("floppy", "floppy_image_path")):
        if hvparams["boot_order"] == order and not hvparams[image]:
            found.append(f"boot_order: the drive is empty; {order} needs {image}")
    if hvparams["boot_order"] == "floppy" and hvparams["firmware"] == "uefi":
        found.append("boot_order: firmware=uefi does not boot from floppies")
    return found


def _vnc(hvparams: Params) -> list[str]:
    if not hvparams["vnc_bind_address"]:
        return [f"{name}: needs vnc_bind_address" for name in _NEED_VNC if hvparams[name]]
    found = []
    if hvparams["vnc_x509_path"] and not hvparams["vnc_tls"]:
        found.append("vnc_x509_path: needs vnc_tls")
    if hvparams["vnc_x509_verify"] and not hvparams["vnc_x509_path"]:
        found.append("vnc_x509_verify: needs vnc_x509_path, which has the authority to verify with")
    if hvparams["spice_bind"]:
        found.append(
            "spice_bind: an instance has one port, for VNC or SPICE; unset vnc_bind_address"
        )
    return found


def _spice(hvparams: Params) -> list[str]:
    bind, version = str(hvparams["spice_bind"]), int(hvparams["spice_ip_version"])
    if not bind:
        return [f"{name}: needs spice_bind" for name in _NEED_SPICE if hvparams[name]]
    try:
        given = ip_address(bind).version
    except ValueError:
        return []  # an interface
    if version not in (0, given):
        return [f"spice_ip_version: {bind} is not an IPv{version} address"]
    return []


def _host(hvparams: Params) -> list[str]:
    found = []
    wanted = {"enabled": "kvm", "disabled": "tcg"}.get(str(hvparams["kvm_flag"]))
    if wanted and hvparams["accelerator"] not in ("auto", wanted):
        found.append(
            f"kvm_flag: {hvparams['kvm_flag']} contradicts accelerator={hvparams['accelerator']}"
        )
    return found


def _devices(hvparams: Params) -> list[str]:
    found = []
    if hvparams["nic_type"] != "paravirtual":
        if hvparams["vhost_net"]:
            found.append("vhost_net: needs nic_type=paravirtual")
        if int(hvparams["virtio_net_queues"]) > 1:
            found.append("virtio_net_queues: needs nic_type=paravirtual")
    if hvparams["disk_aio"] == "native" and hvparams["disk_cache"] in _THROUGH_THE_CACHE:
        found.append("disk_aio: native needs disk_cache=none")
    if hvparams["max_memory"] and hvparams["mem_path"]:
        found.append("max_memory: huge pages (mem_path) cannot be added to a running guest")
    if hvparams["guest_agent_timeout"] and not hvparams["use_guest_agent"]:
        found.append("guest_agent_timeout: needs use_guest_agent")
    if hvparams["cdrom2_image_path"] and not hvparams["cdrom_image_path"]:
        found.append("cdrom2_image_path: needs cdrom_image_path")
    return found
