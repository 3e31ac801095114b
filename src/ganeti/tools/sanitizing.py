"""What is left of a configuration that strangers may see; pure.

It works on a `config.data` of any version: what it looks for has the same names in all of them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model import wire

Document = dict[str, Any]
Translate = Callable[[str], str]

SECRET = "0" * 40
"""In the place of a mirrored disk's."""
MASK = "<removed>"
PUBLIC_KEYS = ("rsahostkeypub", "dsahostkeypub")
_SECRET_WORD = 5
"""Where it is in the words of a mirrored disk."""
_V4, _V6 = 0x0A000000, 0x20010DB8 << 96
"""10.0.0.0/8 and 2001:db8::/32, which are not routed in the Internet."""


@dataclass(frozen=True)
class Replacements:
    """The parts that are replaced besides the secrets."""

    names: bool = True
    addresses: bool = True
    volumes: bool = False
    systems: bool = True
    domain: str = "example.com"


def parsed(data: bytes) -> Document:
    """A file unchanged; InputError if it is not a configuration."""
    document = wire.parse_foreign(data, what="configuration")
    if not isinstance(document, dict) or not isinstance(document.get("cluster"), dict):
        raise InputError("this is not a config.data of Ganeti: it has no cluster", "configuration")
    return document


def sanitized(document: Document, replaced: Replacements) -> Document:
    """A copy without secrets; the same name or address is the same everywhere in it."""
    found: Document = _without_secrets(document)
    if replaced.systems:
        _replace_systems(found)
    if replaced.addresses:
        _replace_addresses(found)
    if replaced.volumes:
        _replace_volumes(found)
    return _renamed(found, _new_names(document, replaced.domain)) if replaced.names else found


def _without_secrets(given: Any) -> Any:
    if isinstance(given, list):
        return [_without_secrets(one) for one in given]
    if not isinstance(given, dict):
        return given
    found = {name: _without_secret(name, value) for name, value in given.items()}
    if str(found.get("dev_type", "")).startswith("drbd"):
        for name in ("logical_id", "physical_id"):
            words = found.get(name)
            if isinstance(words, list) and len(words) > _SECRET_WORD:
                words[_SECRET_WORD] = SECRET
    return found


def _without_secret(name: str, value: Any) -> Any:
    if name.startswith(("osparams_private", "osparams_secret")):
        return _masked(value)
    if name in PUBLIC_KEYS:
        return ""
    return {} if name == "candidate_certs" else _without_secrets(value)


def _masked(given: Any) -> Any:
    """The same names with no values."""
    if isinstance(given, dict):
        return {name: _masked(value) for name, value in given.items()}
    return MASK if given else given


def _objects(document: Document, table: str) -> list[Document]:
    found = document.get(table)
    return (
        [one for one in found.values() if isinstance(one, dict)] if isinstance(found, dict) else []
    )


def _numbered(prefix: str, width: int = 1, suffix: str = "") -> Translate:
    """A translation that gives each new text the next number."""
    numbers: dict[str, int] = {}

    def translate(text: str) -> str:
        return f"{prefix}{numbers.setdefault(text, len(numbers) + 1):0{width}}{suffix}"

    return translate


# Names: wherever they are written, as in directories of disks.


def _new_names(document: Document, domain: str) -> dict[str, str]:
    names = {str(document["cluster"].get("cluster_name")): f"cluster.{domain}"}
    for table, word in (("nodes", "node"), ("instances", "instance")):
        translate = _numbered(word, suffix=f".{domain}")
        for one in _objects(document, table):
            names.setdefault(str(one.get("name")), translate(str(one.get("name"))))
    return names


def _renamed(document: Document, names: dict[str, str]) -> Document:
    longest_first = sorted(filter(None, names), key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})(?![\w-])")

    def rename(given: Any) -> Any:
        if isinstance(given, str):
            return pattern.sub(lambda match: names[match[1]], given)
        if isinstance(given, list):
            return [rename(one) for one in given]
        if isinstance(given, dict):
            return {rename(name): rename(value) for name, value in given.items()}
        return given

    found: Document = rename(document)
    return found


# OS definitions


def _replace_systems(document: Document) -> None:
    number = _numbered("os")

    def translate(name: str) -> str:
        system, plus, variant = name.partition("+")
        return f"{number(system)}{plus}{variant}"

    for one in _objects(document, "instances"):
        if isinstance(one.get("os"), str):
            one["os"] = translate(one["os"])
    cluster = document["cluster"]
    for name in ("os_hvp", "osparams", "osparams_private_cluster"):
        if isinstance(cluster.get(name), dict):
            cluster[name] = {translate(key): value for key, value in cluster[name].items()}
    for name in ("hidden_os", "blacklisted_os"):
        if isinstance(cluster.get(name), list):
            cluster[name] = [translate(str(one)) for one in cluster[name]]


# Addresses: one keeps its place in its network.


def _replace_addresses(document: Document) -> None:
    translate = _Addresses(document).new
    networks = _objects(document, "networks")
    places = [(document["cluster"], "master_ip")]
    places += [
        (one, name)
        for one in _objects(document, "nodes")
        for name in ("primary_ip", "secondary_ip")
    ]
    places += [
        (nic, "ip") for one in _objects(document, "instances") for nic in one.get("nics") or ()
    ]
    places += [
        (one, name) for one in networks for name in ("network", "network6", "gateway", "gateway6")
    ]
    for one, name in places:
        if isinstance(one, dict) and isinstance(one.get(name), str):
            one[name] = translate(one[name])
    for disk in _disks(document):  # mirrored ones named addresses until 2.11
        words = disk.get("physical_id")
        if isinstance(words, list):
            disk["physical_id"] = [translate(one) if isinstance(one, str) else one for one in words]


class _Addresses:
    """Old addresses and networks -> new ones."""

    def __init__(self, document: Document) -> None:
        self._new: dict[str, str] = {}
        self._next = {4: _V4, 6: _V6}
        self._networks: dict[IPv4Network | IPv6Network, int] = {}
        for one in _objects(document, "networks"):
            for name in ("network", "network6"):
                self._add(one.get(name))

    def _add(self, text: Any) -> None:
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            return
        if network not in self._networks:
            self._networks[network] = self._take(network.version, network.num_addresses)

    def _take(self, version: int, count: int) -> int:
        """The first of so many addresses (a power of two) that nothing has yet."""
        start = -(-self._next[version] // count) * count
        self._next[version] = start + count
        return start

    def new(self, text: str) -> str:
        """Text that is not an address stays."""
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            return text
        if (start := self._networks.get(network)) is not None and "/" in text:
            return f"{_text(start, network.version)}/{network.prefixlen}"
        address = network.network_address
        for known, start in self._networks.items():
            if address in known:
                return _text(start + int(address) - int(known.network_address), address.version)
        if text not in self._new:
            self._new[text] = _text(self._take(address.version, 1), address.version)
        return self._new[text]


def _text(number: int, version: int) -> str:
    return str(ip_address(number.to_bytes(4 if version == 4 else 16, "big")))  # noqa: PLR2004


# Volumes


def _replace_volumes(document: Document) -> None:
    translate = _numbered("volume", 4)
    for disk in _disks(document):
        if disk.get("dev_type") not in ("plain", "lvm"):
            continue
        for name in ("logical_id", "physical_id"):
            words = disk.get(name)
            if isinstance(words, list) and len(words) == 2:  # noqa: PLR2004 - group and name
                words[1] = translate(str(words[1]))


def _disks(given: Any) -> Iterator[Document]:
    """Wherever they are."""
    if isinstance(given, dict):
        if "dev_type" in given:
            yield given
        for value in given.values():
            yield from _disks(value)
    elif isinstance(given, list):
        for value in given:
            yield from _disks(value)
