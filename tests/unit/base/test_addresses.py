import socket
from typing import Any

import pytest

from ganeti.base.addresses import address_of_environment, is_address, is_loopback, own_address
from ganeti.base.errors import PrereqError


def resolving(*addresses: str) -> Any:
    def getaddrinfo(*_args: object, **_more: object) -> list[Any]:
        if not addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in addresses]

    return getaddrinfo


def test_the_variable_of_a_virtual_cluster_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANETI_ADDRESS", "127.0.7.1")
    monkeypatch.setattr(socket, "getaddrinfo", resolving("192.0.2.1"))
    assert own_address("node1.example", "--address") == "127.0.7.1"


@pytest.mark.parametrize("value", ["", "nonsense", "0.0.0.0"])
def test_a_useless_variable_is_as_none(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("GANETI_ADDRESS", value)
    assert address_of_environment() == ""


def test_loopback_addresses_of_a_name_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GANETI_ADDRESS", raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", resolving("127.0.1.1", "192.0.2.1"))
    assert own_address("node1.example", "--address") == "192.0.2.1"


@pytest.mark.parametrize("addresses", [(), ("127.0.1.1", "::1")])
def test_a_name_without_a_usable_address_asks_for_the_option(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    monkeypatch.delenv("GANETI_ADDRESS", raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", resolving(*addresses))
    with pytest.raises(PrereqError, match="--address"):
        own_address("node1.example", "--address")


def test_what_is_an_address_and_a_loopback_one() -> None:
    assert is_address("192.0.2.1")
    assert is_address("2001:db8::1")
    assert not is_address("::")
    assert not is_address("host")
    assert is_loopback("127.9.9.9")
    assert not is_loopback("192.0.2.1")
    assert not is_loopback("localhost")
