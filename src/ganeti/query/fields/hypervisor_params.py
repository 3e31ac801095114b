"""Fields of hypervisor parameters: of the supported hypervisors, and of those that only Ganeti 3 has."""

from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.query.fields.field import UNAVAILABLE, Field, ValueKind, kind_of_param
from ganeti.query.fields.instance_row import InstanceRow

_TITLES = {
    "acpi": "ACPI",
    "boot_order": "Boot_order",
    "cdrom_image_path": "CDROM_image_path",
    "cpu_type": "cpu_type",
    "disk_type": "Disk_type",
    "initrd_path": "Initrd_path",
    "kernel_path": "Kernel_path",
    "nic_type": "NIC_type",
    "pae": "PAE",
    "pci_pass": "pci_pass",
    "vnc_bind_address": "VNC_bind_address",
}
"""Headings of Ganeti 3 that differ from the field's name."""

_OF_OTHERS = {
    ValueKind.BOOL: ("pae", "use_bootloader", "viridian"),
    ValueKind.NUMBER: ("cpu_cap", "cpu_weight", "num_ttys", "startup_timeout"),
    ValueKind.OTHER: (
        *("blockdev_prefix", "bootloader_args", "bootloader_path", "cpuid", "device_model"),
        *("devices", "drop_capabilities", "extra_cgroups", "extra_config", "init_script"),
        *("kvm_path", "pci_pass", "vif_script", "vif_type"),
    ),
}
"""Parameters of unsupported hypervisors, and parameters that instances cannot set."""


def hypervisor_param_fields() -> list[Field[InstanceRow]]:
    """Return a field for each parameter that an instance can have here (S83), or has in Ganeti 3."""
    found: dict[str, Field[InstanceRow]] = {}
    for params in HYPERVISOR_PARAMS.values():
        for param in params.values():
            if not param.is_global:
                found.setdefault(param.name, _field(param.name, kind_of_param(param)))
    for kind, names in _OF_OTHERS.items():
        for name in names:
            found.setdefault(name, _field(name, kind))
    return list(found.values())


def _field(name: str, kind: ValueKind) -> Field[InstanceRow]:
    return Field(
        f"hv/{name}",
        _TITLES.get(name, f"hv/{name}"),
        kind,
        f'Hypervisor parameter "{name}"',
        lambda row: row.hvparams.get(name, UNAVAILABLE),
    )
