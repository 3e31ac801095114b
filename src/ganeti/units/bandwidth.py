"""The limit of the rate of a transfer, in opcodes."""

from ganeti.base.errors import InputError

BANDWIDTH_LIMIT = 100_000
"""MiB/s"""


def check_bandwidth(mib_s: int) -> None:
    """Refuse limits that cannot be meant."""
    if not 0 <= mib_s <= BANDWIDTH_LIMIT:
        raise InputError(f"must be from 0 to {BANDWIDTH_LIMIT}", "bandwidth")
