"""The addresses of a network, and those that interfaces cannot have. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from ganeti.base.errors import InputError
from ganeti.model.objects import Network

SIZE_LEAST, SIZE_MOST = 4, 65_536
"""Addresses of one pool: from /30 to /16, or from /126 to /112."""
Ranges = tuple[tuple[int, int], ...]


class AddressPool:
    """The pool of one network; addresses are counted from the first one of the subnet."""

    def __init__(self, network: Network) -> None:
        self.subnet = ip_network(network.network)
        self._external = network.external
        self._fixed = {0: "it is the subnet's first", self.size - 1: "it is the subnet's last"}
        if network.gateway is not None and (at := self.number(network.gateway)) is not None:
            self._fixed[at] = "it is the gateway"

    @property
    def size(self) -> int:
        return self.subnet.num_addresses

    def number(self, ip: str) -> int | None:
        """Return the number of an address; None if it is not in the subnet."""
        address = ip_address(ip)
        if address.version != self.subnet.version or address not in self.subnet:
            return None
        return int(address) - int(self.subnet.network_address)

    def address(self, number: int) -> str:
        """Return the address of a number."""
        return str(self.subnet[number])

    def why_not(self, ip: str) -> str | None:
        """Return why no interface can have the address; None if one can."""
        number = self.number(ip)
        return f"it is not in {self.subnet}" if number is None else self._why_not(number)

    def _why_not(self, number: int) -> str | None:
        if number in self._fixed:
            return self._fixed[number]
        if any(first <= number <= last for first, last in self._external):
            return "it is reserved for other uses"
        return None

    def reserved(self) -> list[int]:
        """Return the numbers that no interface can have, in order."""
        numbers = {number for first, last in self._external for number in range(first, last + 1)}
        return sorted(numbers | self._fixed.keys())

    def free(self, is_taken: Callable[[str], bool]) -> str | None:
        """Return the first address that is available and unused."""
        reserved = set(self.reserved())
        addresses = (self.address(one) for one in range(self.size) if one not in reserved)
        return next((one for one in addresses if not is_taken(one)), None)

    def shown(self, taken: Iterable[str]) -> str:
        """Return a character for each address: `X` used or reserved, `.` free."""
        cells = ["."] * self.size
        numbers = {number for ip in taken if (number := self.number(ip)) is not None}
        for number in numbers.union(self.reserved()):
            cells[number] = "X"
        return "".join(cells)


def checked_subnet(text: str, field: str) -> IPv4Network | IPv6Network:
    """Return a subnet that can be a pool; InputError."""
    subnet = _subnet(text, field)
    if not SIZE_LEAST <= subnet.num_addresses <= SIZE_MOST:
        raise InputError(
            f"{text} has {subnet.num_addresses} addresses; a pool has from {SIZE_LEAST} to {SIZE_MOST}",
            field,
        )
    return subnet


def checked_subnet6(text: str, field: str) -> IPv6Network:
    """Return an IPv6 subnet of any size; InputError."""
    subnet = _subnet(text, field)
    if not isinstance(subnet, IPv6Network):
        raise InputError(f"{text!r:.60} is not an IPv6 subnet, for example 2001:db8::/64", field)
    return subnet


def _subnet(text: str, field: str) -> IPv4Network | IPv6Network:
    try:
        if "/" in text:
            return ip_network(text)
        why = "the length of its prefix is missing"
    except ValueError as err:
        why = str(err)
    raise InputError(f"{text!r:.60} is not a subnet, for example 192.0.2.0/24: {why}", field)


def checked_address(text: str, subnet: IPv4Network | IPv6Network, field: str) -> str:
    """Return an address of the subnet, in its canonical form; InputError."""
    try:
        address = ip_address(text)
    except ValueError as err:
        raise InputError(f"{text!r:.60} is not an IP address", field) from err
    if address.version != subnet.version or address not in subnet:
        raise InputError(f"{text} is not in {subnet}", field)
    return str(address)


def numbers_of(pool: AddressPool, given: Sequence[str], field: str) -> Iterator[int]:
    """Return the numbers of addresses and of ranges of them (`192.0.2.10-192.0.2.20`); InputError."""
    for index, text in enumerate(given):
        where = f"{field}[{index}]"
        first, dash, last = text.partition("-")
        start = pool.number(checked_address(first, pool.subnet, where))
        end = pool.number(checked_address(last, pool.subnet, where)) if dash else start
        if start is None or end is None or end < start:
            raise InputError(f"{text!r:.100} is not a range of addresses: first-last", where)
        yield from range(start, end + 1)


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Return numbers as ranges, in order."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def ranges_as_text(pool: AddressPool, numbers: Iterable[int]) -> str:
    """Return reserved addresses in printed form, with commas between."""
    return ", ".join(pool.address(number) for number in numbers)
