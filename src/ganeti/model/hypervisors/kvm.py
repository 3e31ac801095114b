"""The kvm hypervisor: its parameters, under the names that Ganeti's administrators know.

`KVM.upstream_lacks` has the parameters that are new here. `touches_host` marks parameters that reach beyond the guest:
files, programs, devices, listening sockets and users of the host.
"""

from ganeti.model.hypervisor_param import (
    HypervisorParam,
    HypervisorRow,
    absolute_or_empty,
    address_or_directory,
    address_or_interface,
    between,
    capabilities,
    cd_image,
    ciphers,
    cpu_mask,
    cpu_type,
    image_directories,
    one_line,
    one_of,
    password_file,
    port,
    positive,
    shell_words,
    usb_devices,
    user_or_empty,
    word_or_empty,
)
from ganeti.model.limits import MAX_DISKS, MAX_NICS

SPICE_FILES = ("/var/lib/ganeti/spice.pem", "/var/lib/ganeti/spice-ca.pem")
"""Key and certificate of SPICE servers, and the authority that signed it; the same on all nodes."""
VNC_PASSWORD_FILE = "/etc/ganeti/vnc-cluster-password"  # noqa: S105 - the path, not the password
"""The password file of all VNC consoles, unless a parameter names another file (S72)."""
MOST_CPUS = 1024
MOST_MEMORY_MIB = 16 * 1024 * 1024
FIRMWARES = ("bios", "uefi")

_DISK_KINDS = ("paravirtual", "scsi", "scsi-hd", "ide")
_NICS = (
    *("paravirtual", "e1000", "e1000-82540em", "e1000-82544gc", "e1000-82545em", "e1000e"),
    *("rtl8139", "ne2k_isa", "ne2k_pci", "i82551", "i82557b", "i82559er", "pcnet"),
)
_WAN = ("", "auto", "never", "always")


def _file(name: str, doc: str) -> HypervisorParam:
    return HypervisorParam(name, "", doc, is_path=True, touches_host=True, check=absolute_or_empty)


def _cd(name: str, which: str) -> HypervisorParam:
    doc = (
        f"image in the {which} CD drive, in one of image_directories; a running guest's is changed at"
        " once; 'empty' is a drive without a medium, the empty text no drive"
    )
    return HypervisorParam(name, "", doc, is_path=True, touches_host=True, check=cd_image)


_BOOT = (
    _file("kernel_path", "kernel to boot directly; empty boots from the disk"),
    _file("initrd_path", "initial ramdisk for kernel_path"),
    HypervisorParam(
        "kernel_args", "ro", "further words of the kernel's command line", check=one_line
    ),
    HypervisorParam("root_path", "/dev/vda1", "root device named to the kernel", check=one_line),
    HypervisorParam(
        "boot_order",
        "disk",
        "boot device without kernel_path",
        choices=("disk", "cdrom", "network", "floppy"),
    ),
    HypervisorParam(
        "firmware",
        "bios",
        "firmware of the guest; uefi stores its variables in a file with the instance",
        choices=FIRMWARES,
    ),
    HypervisorParam(
        "tpm", False, "a TPM 2.0 for the guest; its state is kept with the instance (needs swtpm)"
    ),
    HypervisorParam(
        "machine_version",
        "",
        "QEMU machine type, for example pc, q35 or pc-q35-7.2; pinned to a version at the instance's creation",
        check=word_or_empty,
    ),
    HypervisorParam("acpi", True, "offer ACPI to the guest, which a clean shutdown requires"),
    HypervisorParam("use_localtime", False, "start the guest's clock in local time, not UTC"),
    HypervisorParam(
        "reboot_behavior",
        "reboot",
        "action when the guest reboots itself: it reboots, or ends",
        choices=("reboot", "exit"),
    ),
    HypervisorParam(
        "user_shutdown", False, "a guest that shuts itself down is USER_down, and is not restarted"
    ),
)

_IMAGES = (
    _cd("cdrom_image_path", "first"),
    _cd("cdrom2_image_path", "second"),
    _file("floppy_image_path", "image in the floppy drive, in one of image_directories"),
    HypervisorParam(
        "cdrom_disk_type",
        "",
        "bus of the guest's CD drives; empty is ide",
        choices=("", "paravirtual", "scsi", "ide"),
    ),
    HypervisorParam(
        "image_directories",
        "/srv/ganeti/images",
        "directories of the nodes that hold images of CDs and floppies, with ':' between them",
        is_global=True,
        touches_host=True,
        check=image_directories,
    ),
)

_DISKS = (
    HypervisorParam("disk_type", "paravirtual", "bus of the guest's disks", choices=_DISK_KINDS),
    HypervisorParam(
        "disk_cache",
        "default",
        "host cache of disks; shared templates always use none",
        choices=("default", "none", "writeback", "writethrough"),
    ),
    HypervisorParam(
        "disk_aio",
        "threads",
        "host's interface for disk I/O; native requires disk_cache=none",
        choices=("threads", "native", "io_uring"),
    ),
    HypervisorParam(
        "disk_discard",
        "default",
        "handling of blocks that the guest discards; default ignores discards",
        choices=("default", "ignore", "unmap"),
    ),
    HypervisorParam(
        "scsi_controller_type",
        "virtio-scsi-pci",
        "the controller of scsi disks",
        choices=("lsi", "megasas", "virtio-scsi-pci"),
    ),
    HypervisorParam(
        "kvm_pci_reservations",
        12,
        f"ignored; kept for compatibility with Ganeti 3: every guest has a slot for each of {MAX_DISKS} disks and {MAX_NICS} interfaces",
        check=between(0, 28),
    ),
)

_NETWORK = (
    HypervisorParam(
        "nic_type", "paravirtual", "model of the guest's network interfaces", choices=_NICS
    ),
    HypervisorParam(
        "vhost_net",
        False,
        "move packets in the host's kernel; requires nic_type=paravirtual",
        touches_host=True,
    ),
    HypervisorParam(
        "virtio_net_queues", 1, "queues of a paravirtual interface", check=between(1, 8)
    ),
    HypervisorParam("vnet_hdr", True, "offload checksums and segmentation between guest and host"),
)

_DISPLAY = (
    HypervisorParam(
        "serial_console", True, "give the guest a serial console, which gnt-instance console opens"
    ),
    HypervisorParam(
        "serial_speed",
        38400,
        "speed of the serial console, passed to the kernel",
        check=one_of(9600, 19200, 38400, 57600, 115200),
    ),
    HypervisorParam(
        "vnc_bind_address",
        "",
        "address of the VNC server, or a directory for its socket; empty disables VNC",
        touches_host=True,
        check=address_or_directory,
    ),
    HypervisorParam("vnc_tls", False, "encrypt VNC", touches_host=True),
    _file("vnc_x509_path", "directory with server-cert.pem, server-key.pem and ca-cert.pem for VNC"),
    HypervisorParam("vnc_x509_verify", False, "require a certificate of vnc_x509_path from VNC clients", touches_host=True),
    HypervisorParam(
        "vnc_password_file",
        VNC_PASSWORD_FILE,
        "file in /etc/ganeti whose first line is the password of VNC; empty disables the password",
        is_path=True,
        is_shared_file=True,
        touches_host=True,
        check=password_file,
    ),
    HypervisorParam(
        "vga", "", "graphics card; empty is the default if the guest has a display",
        choices=("", "none", "std", "cirrus", "vmware", "qxl", "virtio"),
    ),
    HypervisorParam(
        "soundhw", "", "sound card; empty is none",
        choices=("", "ac97", "hda", "es1370", "sb16", "adlib", "cs4231a", "gus", "pcspk"),
    ),
    HypervisorParam("keymap", "", "keyboard layout of VNC, for example en-us", check=word_or_empty),
    HypervisorParam("usb_mouse", "", "a USB pointer", choices=("", "mouse", "tablet")),
    HypervisorParam(
        "usb_devices",
        "",
        "further USB devices: tablet, keyboard, host:VENDOR:PRODUCT …, with spaces between them",
        touches_host=True,
        check=usb_devices,
    ),
)  # fmt: skip

_SPICE = (
    HypervisorParam(
        "spice_bind",
        "",
        "address or interface of the SPICE server; empty disables SPICE",
        touches_host=True,
        check=address_or_interface,
    ),
    HypervisorParam(
        "spice_ip_version",
        0,
        "address family of the interface spice_bind: 4, 6, or 0 for either",
        check=one_of(0, 4, 6),
    ),
    HypervisorParam(
        "spice_password_file", "",
        "file in /etc/ganeti whose first line is the password of SPICE; empty is none",
        is_path=True, is_shared_file=True, touches_host=True, check=password_file,
    ),
    HypervisorParam(
        "spice_image_compression", "", "lossless compression of images",
        choices=("", "auto_glz", "auto_lz", "quic", "glz", "lz", "off"),
    ),
    HypervisorParam("spice_jpeg_wan_compression", "", "lossy compression on slow links", choices=_WAN),
    HypervisorParam(
        "spice_zlib_glz_wan_compression", "", "zlib compression on slow links", choices=_WAN
    ),
    HypervisorParam(
        "spice_streaming_video", "", "detection of videos", choices=("", "off", "all", "filter")
    ),
    HypervisorParam("spice_playback_compression", True, "compress sound"),
    HypervisorParam("spice_use_tls", False, "encrypt SPICE with the cluster's SPICE certificate", touches_host=True),
    HypervisorParam(
        "spice_tls_ciphers", "HIGH:-DES:-3DES:-EXPORT:-DH", "ciphers for SPICE", touches_host=True, check=ciphers
    ),
    HypervisorParam("spice_use_vdagent", True, "offer SPICE's agent to the guest"),
)  # fmt: skip

_CPU = (
    HypervisorParam(
        "cpu_type", "", "CPU model of QEMU, with features after commas: host, Haswell,+vmx",
        check=cpu_type,
    ),
    HypervisorParam(
        "cpu_mask",
        "all",
        "CPUs of the host for the guest, for example 0-2,4; with ':' one set for each CPU of the guest",
        touches_host=True,
        check=cpu_mask,
    ),
    HypervisorParam("cpu_cores", 0, "cores of a socket; 0 leaves it to QEMU", check=between(0, MOST_CPUS)),
    HypervisorParam(
        "cpu_threads", 0, "threads of a core; 0 leaves it to QEMU", check=between(0, MOST_CPUS)
    ),
    HypervisorParam("cpu_sockets", 0, "sockets; 0 leaves it to QEMU", check=between(0, MOST_CPUS)),
    HypervisorParam(
        "max_vcpus",
        0,
        "processors that the guest can get while it runs; 0, or fewer than vcpus, adds no room",
        check=between(0, MOST_CPUS),
    ),
    HypervisorParam(
        "max_memory",
        0,
        "MiB that the guest can get while it runs; 0, or less than maxmem, adds no room",
        check=between(0, MOST_MEMORY_MIB),
    ),
    HypervisorParam(
        "mem_path",
        "",
        "directory of huge pages for the guest's memory",
        is_path=True,
        touches_host=True,
        check=absolute_or_empty,
    ),
)  # fmt: skip

_MIGRATION = (
    HypervisorParam(
        "migration_port",
        8102,
        "TCP port on which a node receives a guest; another free one if it is in use",
        is_global=True,
        touches_host=True,
        check=port,
    ),
    HypervisorParam(
        "migration_bandwidth",
        32,
        "maximum MiB per second of a migration",
        is_global=True,
        check=positive,
    ),
    HypervisorParam(
        "migration_downtime",
        30,
        "maximum pause of the guest at the end of a migration, in milliseconds",
        check=positive,
    ),
    HypervisorParam(
        "migration_mode",
        "live",
        "whether a guest keeps running while it is migrated",
        is_global=True,
        choices=("live", "non-live"),
    ),
    HypervisorParam(
        "migration_caps",
        "",
        "further migration capabilities of QEMU, for example xbzrle, with ':' between them",
        check=capabilities,
    ),
)

_HOST = (
    HypervisorParam(
        "security_model",
        "none",
        "user of QEMU: root, the user security_domain, or one of the cluster's uid pool",
        touches_host=True,
        choices=("none", "user", "pool"),
    ),
    HypervisorParam(
        "security_domain",
        "",
        "the user for security_model=user",
        touches_host=True,
        check=user_or_empty,
    ),
    HypervisorParam("use_chroot", False, "run QEMU in an empty root directory", touches_host=True),
    HypervisorParam(
        "use_guest_agent",
        False,
        "offer the guest a channel for QEMU's agent, which reports addresses and shuts the guest down",
    ),
    HypervisorParam(
        "guest_agent_timeout",
        0,
        "seconds without an answer of QEMU's agent, which answered before, until the guest counts as hung; longer"
        " than the guest's boot; 0 is never; requires use_guest_agent",
        check=between(0, 3600),
    ),
    HypervisorParam(
        "watchdog",
        "none",
        "watchdog device of the guest; a guest that stops petting it is paused and counts as hung",
        choices=("none", "i6300esb"),
    ),
    HypervisorParam(
        "pvpanic",
        False,
        "a device by which the guest's kernel reports its panic; the guest is paused and counts as panicked",
    ),
    HypervisorParam(
        "accelerator",
        "auto",
        "auto uses KVM if it works and software emulation otherwise",
        choices=("auto", "kvm", "tcg"),
    ),
    HypervisorParam(
        "kvm_flag",
        "",
        "enabled requires KVM, disabled requires software emulation; accelerator is the modern form",
        choices=("", "enabled", "disabled"),
    ),
    HypervisorParam(
        "kvm_path",
        "",
        "the QEMU program; empty looks in PATH",
        is_global=True,
        is_path=True,
        touches_host=True,
        check=absolute_or_empty,
    ),
    HypervisorParam(
        "kvm_extra",
        "",
        "further words for QEMU's command line, quoted as for a shell",
        touches_host=True,
        check=shell_words,
    ),
)

KVM = HypervisorRow(
    name="kvm",
    params=(
        *(*_BOOT, *_IMAGES, *_DISKS, *_NETWORK, *_DISPLAY, *_SPICE, *_CPU, *_MIGRATION, *_HOST),
    ),
    with_uid_pool={"security_model": "pool"},
    upstream_defaults={
        "kernel_path": "/boot/vmlinuz-3-kvmU",
        "kvm_path": "/usr/bin/kvm",
        "scsi_controller_type": "lsi",
        "vnc_password_file": "",
    },
    upstream_lacks={
        "accelerator": False,
        "firmware": True,
        "guest_agent_timeout": False,
        "image_directories": False,
        "max_memory": True,
        "max_vcpus": True,
        "pvpanic": False,
        "tpm": True,
        "watchdog": False,
    },
)
