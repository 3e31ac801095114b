"""Names: everything that could escape into a path, a shell or an option is refused."""

from collections.abc import Callable

import pytest

from ganeti.base.errors import InputError
from ganeti.base.identifiers import host_name, interface_name, mac_address, os_name, plain_name

ATTACKS = [
    "../x",
    "/etc/x",
    "a/../b",
    ".",
    "..",
    "",
    "x" * 256,
    "x\n",
    "a\nb",
    "a\0b",
    "-x",
    "a b",
    "$(id)",
    "`id`",
    ";id",
    "a|b",
    'a"b',
    "a'b",
    "%s%n",
    "{0}",
    "\u202ea",
    "\uff0e\uff0e",
    "a,b",
    "a=b",
]


@pytest.mark.requirement("A40")
@pytest.mark.parametrize("check", [host_name, plain_name, os_name, interface_name, mac_address])
@pytest.mark.parametrize("text", ATTACKS)
def test_attacks_are_no_names(check: Callable[[str, str], str], text: str) -> None:
    with pytest.raises(InputError) as caught:
        check(text, "field")
    assert caught.value.field == "field"


@pytest.mark.requirement("S91")
def test_a_uuid_is_no_host_name() -> None:
    with pytest.raises(InputError):
        host_name("bb3b2e42-1234-4234-8234-123456789abc", "name")


def test_good_names_are_folded_to_lower_case() -> None:
    assert host_name("Web1.Example.COM", "name") == "web1.example.com"
    assert mac_address("AA:00:00:12:34:56", "mac") == "aa:00:00:12:34:56"
    assert os_name("debootstrap+default", "os") == "debootstrap+default"


def test_a_multicast_mac_address_is_refused() -> None:
    with pytest.raises(InputError):
        mac_address("01:00:5e:00:00:01", "mac")
