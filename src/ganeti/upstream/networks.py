"""Import and export of networks: upstream has a bit per address, this implementation has ranges."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.base.identifiers import plain_name
from ganeti.model import wire
from ganeti.model.address_pool import AddressPool, checked_address, checked_subnet, ranges_of
from ganeti.model.cluster_values import check_mac_prefix
from ganeti.model.objects import Network
from ganeti.upstream.choices import Reading
from ganeti.upstream.forms import Document
from ganeti.upstream.report import Judge
from ganeti.upstream.stored import STORED, read_stored, read_tags, written_stored

_READ = {
    *(*STORED, "name", "network", "gateway", "network6", "gateway6", "mac_prefix"),
    *("reservations", "ext_reservations"),
}
_FORMER = {"network_type", "family", "size"}
"""Fields of versions before 2.7, without effect."""
MARK = "1"


def read_network(reading: Reading, given: Document) -> Network | None:
    """Return a network; None if its subnet cannot be used."""
    what = f"network {given.get('name')}"
    reading.rest(what, given, _READ | _FORMER)
    prefix = given.get("mac_prefix")
    for field in ("reservations", "ext_reservations"):
        if set(given.get(field) or "") - {"0", MARK}:
            reading.unknown(what, field, "is not a line of 0 and 1")
    try:
        subnet = checked_subnet(str(given.get("network")), "network")
        gateway = given.get("gateway") or None
        if gateway is not None:
            gateway = checked_address(str(gateway), subnet, "gateway")
        if prefix:
            check_mac_prefix(prefix, "mac_prefix")
    except InputError as err:
        reading.unknown(what, err.field, err.message)
        return None
    network: Network = wire.convert(
        {
            **read_stored(reading, what, given),
            "name": reading.name("network", given.get("name"), plain_name),
            "network": str(subnet),
            "gateway": gateway,
            "network6": given.get("network6") or None,
            "gateway6": given.get("gateway6") or None,
            "mac_prefix": prefix or None,
            "tags": read_tags(reading, what, given),
        },
        Network,
        what=what,
    )
    fixed = set(AddressPool(network).reserved())
    marked = {
        number
        for number, bit in enumerate(str(given.get("ext_reservations") or ""))
        if bit == MARK and number < subnet.num_addresses
    }
    return replace(network, external=ranges_of(marked - fixed))


def written_network(judge: Judge, network: Network, taken: Iterable[str]) -> Document | None:
    """Return a network in the form of 3.0, and its addresses in use; None for IPv6."""
    what = f"network {network.name}"
    pool = AddressPool(network)
    if pool.subnet.version != 4:  # noqa: PLR2004 - IPv4
        judge.unknown(what, "network", "upstream Ganeti has no pools of IPv6 addresses")
        return None
    numbers = [number for ip in taken if (number := pool.number(ip)) is not None]
    found: dict[str, Any] = {
        **written_stored(network),
        "name": network.name,
        "network": network.network,
        "reservations": _bits(pool.size, numbers),
        "ext_reservations": _bits(pool.size, pool.reserved()),
    }
    for name in ("gateway", "network6", "gateway6", "mac_prefix"):
        if (value := getattr(network, name)) is not None:
            found[name] = value
    return found


def _bits(size: int, numbers: Iterable[int]) -> str:
    bits = bytearray(b"0" * size)
    for number in numbers:
        bits[number] = ord(MARK)
    return bits.decode()
