"""Pools of addresses: which can be given, and how reservations are kept and shown."""

import pytest

from ganeti.base.errors import InputError
from ganeti.model.address_pool import (
    AddressPool,
    checked_address,
    checked_subnet,
    checked_subnet6,
    numbers_of,
    ranges_as_text,
    ranges_of,
)
from ganeti.model.objects import Network, NetworkUuid


def pool(subnet: str = "192.0.2.0/29", **fields: object) -> AddressPool:
    given = {"uuid": NetworkUuid("n"), "name": "net", "network": subnet, **fields}
    return AddressPool(Network(**given))  # type: ignore[arg-type]  # fields of one test


@pytest.mark.parametrize(
    ("subnet", "gateway", "first"),
    [("192.0.2.0/29", "192.0.2.1", "192.0.2.2"), ("2001:db8::/120", "2001:db8::1", "2001:db8::2")],
)
def test_ends_and_gateway_are_never_given(subnet: str, gateway: str, first: str) -> None:
    one = pool(subnet, gateway=gateway)
    assert one.free(lambda _ip: False) == first
    assert one.why_not(first) is None
    assert one.why_not(gateway) == "it is the gateway"
    assert one.why_not(one.address(0)) == "it is the subnet's first"
    assert one.why_not(one.address(one.size - 1)) == "it is the subnet's last"


def test_taken_and_reserved_ones_are_passed_over_until_none_is_left() -> None:
    one = pool(external=((1, 2), (5, 5)))
    taken: set[str] = set()
    while (ip := one.free(taken.__contains__)) is not None:
        taken.add(ip)
    assert taken == {"192.0.2.3", "192.0.2.4", "192.0.2.6"}
    assert one.shown({"192.0.2.3"}) == "XXXX.X.X"
    assert one.why_not("192.0.2.2") == "it is reserved for other uses"
    assert one.why_not("198.51.100.1") == "it is not in 192.0.2.0/29"
    assert one.why_not("2001:db8::1") == "it is not in 192.0.2.0/29"
    assert ranges_as_text(one, one.reserved()).split(", ")[1] == "192.0.2.1"


def test_ranges_are_read_and_kept_as_ranges() -> None:
    one = pool()
    numbers = list(numbers_of(one, ["192.0.2.2-192.0.2.4", "192.0.2.1", "192.0.2.6"], "f"))
    assert ranges_of(numbers) == ((1, 4), (6, 6))
    assert ranges_of([]) == ()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["192.0.2.4-192.0.2.2"], "f[0]: '192.0.2.4-192.0.2.2' is not a range"),
        (["192.0.2.1", "192.0.3.1"], "f[1]: 192.0.3.1 is not in 192.0.2.0/29"),
        (["x; reboot"], "f[0]: 'x; reboot' is not an IP address"),
        ([""], "f[0]: '' is not an IP address"),
    ],
)
def test_wrong_addresses_are_named(given: list[str], text: str) -> None:
    with pytest.raises(InputError) as caught:
        list(numbers_of(pool(), given, "f"))
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    "text", ["192.0.2.1/24", "192.0.2.0", "10.0.0.0/15", "192.0.2.0/31", "2001:db8::/64", "x", ""]
)
def test_what_cannot_be_a_pool_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        checked_subnet(text, "network")


def test_an_ipv6_subnet_may_be_of_any_size_and_is_no_other() -> None:
    assert str(checked_subnet6("2001:DB8::/64", "f")) == "2001:db8::/64"
    with pytest.raises(InputError):
        checked_subnet6("192.0.2.0/24", "f")
    assert checked_address("2001:DB8:0::1", checked_subnet6("2001:db8::/64", "f"), "f") == (
        "2001:db8::1"
    )
