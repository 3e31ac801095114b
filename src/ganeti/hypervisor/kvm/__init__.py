"""KVM, on QEMU, through its monitor protocol."""
